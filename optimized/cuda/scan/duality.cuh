#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// Mamba-2's state space duality in chunks (EQUATIONS 5.10), the state handed on from chunk to chunk:
///   y = ((C B^T o e^{G_i - G_j}) Delta) x + e^G C S^T + D x,  S <- e^{G_C} S + x^T (Delta e^{G_C - G} B).
/// No number is rounded where a chunk ends, so that its length is the kernels' to choose, 32 on tensor cores and 16 by FMA, whatever the
/// case's. What both have in common.
namespace samestate::cuda {

inline constexpr int kDualityTokens = 32;   ///< tokens of a chunk on tensor cores
inline constexpr int kDualityColumns = 64;  ///< channels of a block of theirs

template <class Operand>
struct DualityParameters {
  const Operand* x = nullptr;   ///< [batch, tokens, H, P]
  const Operand* dt = nullptr;  ///< [batch, tokens, H] before bias and softplus
  const Operand* B = nullptr;   ///< [batch, tokens, G, N], C too
  const Operand* C = nullptr;
  const float* dt_bias = nullptr;  ///< [H], A_log and skip too
  const float* A_log = nullptr;
  const float* skip = nullptr;
  const float* state = nullptr;  ///< [batch, H, P, N], last_state too
  float* last_state = nullptr;
  Operand* y = nullptr;       ///< [batch, tokens, H, P]
  float* steps = nullptr;     ///< [batch, H, tokens, 4] of scratch: a DualityStep each
  float* products = nullptr;  ///< [batch, G, chunks, 16, 16] of scratch, by FMA: C_i . B_j
  float* carried = nullptr;   ///< [segments - 1, batch, H, P, N] of scratch, of tensor cores
  float* decays = nullptr;    ///< [segments - 1, batch, H], of a whole segment
  std::int64_t batch = 1;
  std::int64_t tokens = 0;
  std::int64_t chunk = 1;     ///< the kernel's chunk
  std::int64_t segment = 1;   ///< tokens
  std::int64_t segments = 1;  ///< at least 1
  int H = 1, G = 1, P = 1, N = 1;

  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t chunks() const { return (tokens + chunk - 1) / chunk; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t states() const { return batch * H; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int column_tiles() const {
    return (P + kDualityColumns - 1) / kDualityColumns;
  }
};

/// The step of a token: Delta, and the sum G of Delta A from the chunk's first token on as total + rest,
/// since the sum between two tokens is small compared with the sum before them.
struct DualityStep {
  float delta, total, rest;
  static SAMESTATE_DEVICE DualityStep at(const float* from) {
    const Quad step = load_quad(from);
    return {step.x, step.y, step.z};
  }
  /// e^{G - G of an earlier token}.
  [[nodiscard]] SAMESTATE_DEVICE float since(const DualityStep& earlier) const {
    return exponential((total - earlier.total) + (rest - earlier.rest));
  }
  [[nodiscard]] SAMESTATE_DEVICE float since_start() const { return exponential(total + rest); }
};

/// a + b, the rounding error of the totals in the rest.
SAMESTATE_DEVICE void add(DualityStep& a, float total, float rest) {
  const float sum = a.total + total, added = sum - a.total;
  a.rest += rest + ((a.total - (sum - added)) + (total - added));
  a.total = sum;
}

/// A chunk of a head a warp, a token a lane.
template <class Operand>
struct DualitySteps {
  using Parameters = DualityParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.batch * p.chunks() * p.H; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t of_b = quotient(item, p.H), b = quotient(of_b, p.chunks());
    const auto h = static_cast<int>(item - of_b * p.H);
    const std::int64_t begin = (of_b - b * p.chunks()) * p.chunk;
    const std::int64_t end = p.tokens - begin < p.chunk ? p.tokens : begin + p.chunk;
    const float bias = p.dt_bias[h], rate = -exponential(p.A_log[h]);
    const int lane = lane_index();
    float before = 0.0F, rest_before = 0.0F;
    for (std::int64_t first = begin; first < end; first += 32) {
      const std::int64_t t = first + lane;
      const float delta = t < end ? softplus(widen(p.dt[(b * p.tokens + t) * p.H + h]) + bias) : 0.0F;
      DualityStep step{delta, delta * rate, 0.0F};
      SAMESTATE_UNROLL
      for (int distance = 1; distance < 32; distance *= 2) {
        const int from = lane >= distance ? lane - distance : lane;
        const float total = shuffle(step.total, from), rest = shuffle(step.rest, from);
        if (lane >= distance) add(step, total, rest);
      }
      add(step, before, rest_before);
      before = shuffle(step.total, 31);
      rest_before = shuffle(step.rest, 31);
      if (t >= end) continue;
      const float values[4] = {step.delta, step.total, step.rest, 0.0F};
      *reinterpret_cast<Vector<float, 4>*>(p.steps + ((b * p.H + h) * p.tokens + t) * 4) =
          narrowed<float>(values);
    }
  }
};

}  // namespace samestate::cuda
