#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/operators/grid.cuh"

/// The states that reach the parts of sequences on one device: S <- M S + N over its parts, in order (BOUNDS 5.3), in fp32.
namespace samestate::cuda::ranks {

/// The state from which a map's own run starts, of each head of a part: I, or without the delta rule its first column.
struct UnitParameters {
  float* to = nullptr;  ///< [states, rows, columns]
  std::int64_t states = 0, rows = 0, columns = 0;
};
struct Unit {
  using Parameters = UnitParameters;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.states * p.rows * p.columns;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    p.to[item] = item / p.columns % p.rows == item % p.columns ? 1.0F : 0.0F;
  }
};

/// What a device holds of one sequence: `count` of the places of ComposeParameters::order.
struct Chain {
  std::int64_t first = 0, count = 0;
};

/// Dense row-major tensors in device memory.
struct ComposeParameters {
  const Chain* chains = nullptr;        ///< [count]
  const std::int64_t* order = nullptr;  ///< numbers of parts, those of a chain in the order of their tokens
  const float* M = nullptr;  ///< [passing, Hv, dk, dk]; without the delta rule [passing, Hv, dk, 1], of
                             ///< which the first number is M
  const float* N = nullptr;  ///< [passing, Hv, dk, dv]
  const float* incoming = nullptr;  ///< [count, Hv, dk, dv]: the state that reaches a chain
  float* reached = nullptr;         ///< [parts, Hv, dk, dv]
  float* outgoing = nullptr;  ///< [count, Hv, dk, dv]: behind a chain whose last part passes its state on
  std::int64_t count = 0;
  std::int64_t passing = 0;  ///< parts below it pass their state on
  std::int64_t Hv = 1;
  int dk = 1, dv = 1;

  static constexpr int kColumns = 32;
  SAMESTATE_HOST_DEVICE std::int64_t tiles() const { return (dv + kColumns - 1) / kColumns; }
  SAMESTATE_HOST_DEVICE std::int64_t items() const { return count * Hv * tiles(); }
  /// S and what it becomes.
  [[nodiscard]] std::size_t shared_bytes() const {
    return 2 * sizeof(float) * kColumns * static_cast<std::size_t>(dk);
  }
};

/// A block carries 32 columns of the state of one head through a chain; a lane has a column, a warp every eighth row or
/// eight rows.
template <bool delta>
struct Compose {
  using Parameters = ComposeParameters;
  static constexpr int kColumns = Parameters::kColumns;
  static constexpr int kThreads = 256;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kRows = 8;  ///< that a warp makes at once: an element of S is read once for them

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<Compose>(blocks_of(p.items(), 1), p.shared_bytes(), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    for (std::int64_t item = block_index(); item < p.items(); item += grid_blocks()) {
      carry(p, item, reinterpret_cast<float*>(shared));
      block_barrier();
    }
  }

 private:
  static SAMESTATE_DEVICE void carry(const Parameters& p, std::int64_t item, float* shared) {
    const int column = static_cast<int>(item % p.tiles()) * kColumns + lane_index();
    const std::int64_t head = item / p.tiles() % p.Hv;
    const std::int64_t number = item / p.tiles() / p.Hv;
    const bool exists = column < p.dv;
    const Chain chain = p.chains[number];
    const auto state = [&](std::int64_t of) { return (of * p.Hv + head) * p.dk * p.dv + column; };
    float* S = shared + lane_index();
    float* next = S + p.dk * kColumns;
    const float* incoming = p.incoming + state(number);
    for (int l = warp_index(); l < p.dk; l += kWarps)
      S[l * kColumns] = exists ? incoming[static_cast<std::int64_t>(l) * p.dv] : 0.0F;
    block_barrier();
    for (std::int64_t i = 0; i < chain.count; ++i) {
      const std::int64_t part = p.order[chain.first + i];
      store(p, S, p.reached + state(part), exists);
      if (part >= p.passing) return;
      const float* N = p.N + state(part);
      if constexpr (delta) {
        multiply(p, p.M + (part * p.Hv + head) * p.dk * p.dk, N, S, next, exists);
      } else {
        const float M = p.M[(part * p.Hv + head) * p.dk];
        for (int l = warp_index(); l < p.dk; l += kWarps)
          next[l * kColumns] =
              exists ? fused(M, S[l * kColumns], N[static_cast<std::int64_t>(l) * p.dv]) : 0.0F;
      }
      block_barrier();
      float* const old = S;
      S = next;
      next = old;
    }
    store(p, S, p.outgoing + state(number), exists);
  }

  static SAMESTATE_DEVICE void store(const Parameters& p, const float* S, float* to, bool exists) {
    if (!exists) return;
    for (int l = warp_index(); l < p.dk; l += kWarps)
      to[static_cast<std::int64_t>(l) * p.dv] = S[l * kColumns];
  }

  /// next = M S + N. Rows past the last are its copies, which nobody stores.
  static SAMESTATE_DEVICE void multiply(const Parameters& p, const float* M, const float* N, const float* S,
                                        float* next, bool exists) {
    for (int first = warp_index() * kRows; first < p.dk; first += kWarps * kRows) {
      const float* rows[kRows];
      float sums[kRows];
      SAMESTATE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        rows[r] = M + static_cast<std::int64_t>(first + r < p.dk ? first + r : p.dk - 1) * p.dk;
        sums[r] = 0.0F;
      }
      int j = 0;
      if (p.dk % 4 == 0) {
        for (; j < p.dk; j += 4) {
          const float s[4] = {S[j * kColumns], S[(j + 1) * kColumns], S[(j + 2) * kColumns],
                              S[(j + 3) * kColumns]};
          SAMESTATE_UNROLL
          for (int r = 0; r < kRows; ++r) {
            const Quad m = load_quad(rows[r] + j);
            sums[r] = fused(m.w, s[3], fused(m.z, s[2], fused(m.y, s[1], fused(m.x, s[0], sums[r]))));
          }
        }
      }
      for (; j < p.dk; ++j) {
        SAMESTATE_UNROLL
        for (int r = 0; r < kRows; ++r) sums[r] = fused(rows[r][j], S[j * kColumns], sums[r]);
      }
      SAMESTATE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (first + r >= p.dk) break;
        next[(first + r) * kColumns] =
            exists ? sums[r] + N[static_cast<std::int64_t>(first + r) * p.dv] : 0.0F;
      }
    }
  }
};

}  // namespace samestate::cuda::ranks
