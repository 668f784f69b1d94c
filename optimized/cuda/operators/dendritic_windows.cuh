#pragma once

#include <cstdint>

#include "optimized/cuda/operators/dendritic_lists.cuh"
#include "optimized/cuda/operators/pointwise.cuh"

/// q and k of the tokens that use a branch (EQUATIONS 7.3, steps 7, 11 and 13), and what the convolutions carry on.
namespace samestate::cuda {

/// One of q and k through its convolution.
template <class Operand>
struct ExpandedRows {
  const Operand* x = nullptr;       ///< [H, B, T, E, d], zero on pads
  const Operand* kernel = nullptr;  ///< [H d, W]
  const Operand* past = nullptr;    ///< [B, E, W - 1, H d]
  Operand* carried = nullptr;       ///< the same, afterwards
  Operand* y = nullptr;             ///< [B, T, H, slots, d], convolved
  float* factor = nullptr;          ///< [B, T, H, slots, N], of each window: what makes its length one
};

template <class Operand>
struct BranchRowParameters {
  DendriticShape shape;
  const int* branch = nullptr;  ///< [B, T, H, slots]
  ExpandedRows<Operand> q;
  ExpandedRows<Operand> k;
};

/// n channels from `c` on of token t of sequence b, branch e, head h; t from 1 - W on.
template <class Operand, int n>
SAMESTATE_DEVICE Vector<Operand, n> expanded_input(const DendriticShape& s, const ExpandedRows<Operand>& x,
                                                   std::int64_t b, std::int64_t t, int e, int h, int c) {
  const Operand* from =
      t < 0 ? x.past + ((b * s.branches() + e) * (s.taps - 1) + s.taps - 1 + t) * s.heads * s.channels +
                  h * s.channels
            : x.x + (((h * s.batch + b) * s.tokens + t) * s.branches() + e) * s.channels;
  return *reinterpret_cast<const Vector<Operand, n>*>(from + c);
}

/// The convolution of slot row `row` by one warp, and the factors of its windows; `line`: d floats of the warp's own.
template <class Operand, int n>
SAMESTATE_DEVICE void convolve_slot(const BranchRowParameters<Operand>& p, const ExpandedRows<Operand>& x,
                                    std::int64_t row, float* line) {
  using Elements = Vector<Operand, n>;
  const DendriticShape& s = p.shape;
  const int e = p.branch[row];
  const std::int64_t of_head = row / s.slots();
  const auto h = static_cast<int>(of_head % s.heads);
  const std::int64_t t = of_head / s.heads % s.tokens, b = of_head / s.heads / s.tokens;
  for (int c = lane_index() * n; c < s.channels; c += 32 * n) {
    const Operand* kernel = x.kernel + static_cast<std::int64_t>(h * s.channels + c) * s.taps;
    float y[n] = {};
    const auto add = [&](int j, int taps) {
      const Elements input = expanded_input<Operand, n>(s, x, b, t - taps + 1 + j, e, h, c);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) y[i] = fused(widen(kernel[i * taps + j]), element(input, i), y[i]);
    };
    if (s.taps == 4) {  // what models have: four loads under way at once
      SAMESTATE_UNROLL
      for (int j = 0; j < 4; ++j) add(j, 4);
    } else {
      for (int j = 0; j < s.taps; ++j) add(j, s.taps);
    }
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) y[i] = silu(y[i]);
    const Elements kept = narrowed<Operand>(y);
    *reinterpret_cast<Elements*>(x.y + row * s.channels + c) = kept;
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) line[c + i] = element(kept, i);
  }
  warp_barrier();
  for (int window = 0; window < s.windows; ++window) {
    float squares = 0.0F;
    for (int i = lane_index(); i < s.width; i += 32) {
      const float value = line[window * s.stride + i];
      squares = fused(value, value, squares);
    }
    const float factor = inverse_root(warp_sum(squares) + 1e-6F);
    if (lane_index() == 0) x.factor[row * s.windows + window] = factor;
  }
  warp_barrier();
}

/// Slot rows, a warp each. n above 1 where it divides d.
template <class Operand, int n>
struct BranchRowBody {
  using Parameters = BranchRowParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static std::size_t shared_bytes(const DendriticShape& s) {
    return static_cast<std::size_t>(kWarps * s.channels) * sizeof(float);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    float* const line = reinterpret_cast<float*>(shared) + warp_index() * p.shape.channels;
    for (std::int64_t i = block_index() * kWarps + warp_index(); i < 2 * p.shape.slot_rows();
         i += grid_blocks() * kWarps)
      convolve_slot<Operand, n>(p, i % 2 == 0 ? p.q : p.k, i / 2, line);
  }
};

/// The last W - 1 inputs of the convolutions of q and k, an element a thread.
template <class Operand>
struct CarriedElements {
  using Parameters = BranchRowParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    const DendriticShape& s = p.shape;
    return 2 * s.batch * s.branches() * (s.taps - 1) * s.heads * s.channels;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const DendriticShape& s = p.shape;
    const std::int64_t half = items(p) / 2;
    const ExpandedRows<Operand>& x = item < half ? p.q : p.k;
    const std::int64_t i = item % half;
    const auto c = static_cast<int>(i % s.channels);
    const auto h = static_cast<int>(i / s.channels % s.heads);
    const std::int64_t row = i / s.channels / s.heads;  // [B, E, W - 1]
    const auto before = static_cast<int>(row % (s.taps - 1));
    const auto e = static_cast<int>(row / (s.taps - 1) % s.branches());
    const std::int64_t b = row / (s.taps - 1) / s.branches();
    *reinterpret_cast<Vector<Operand, 1>*>(x.carried + i) =
        expanded_input<Operand, 1>(s, x, b, s.tokens - (s.taps - 1) + before, e, h, c);
  }
};

}  // namespace samestate::cuda
