#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/host/grid.cuh"

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

/// The part of one sequence that a device holds: `count` of the places of ComposeParameters::order.
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
  float* outgoing = nullptr;  ///< [count, Hv, dk, dv]: the state that the last part of a chain passes on
  std::int64_t count = 0;
  std::int64_t passing = 0;  ///< parts below it pass their state on
  std::int64_t Hv = 1;
  int dk = 1, dv = 1;

  static constexpr int kColumns = 8;
  SAMESTATE_HOST_DEVICE std::int64_t tiles() const { return (dv + kColumns - 1) / kColumns; }
  SAMESTATE_HOST_DEVICE std::int64_t items() const { return count * Hv * tiles(); }
  /// Returns the distance of the state's columns in shared memory, in floats: groups of four of eight columns
  /// are in 32 banks.
  SAMESTATE_HOST_DEVICE int stride() const { return (dk + 31) / 32 * 32 + 4; }
  /// S and what it becomes.
  [[nodiscard]] std::size_t shared_bytes() const {
    return 2 * sizeof(float) * kColumns * static_cast<std::size_t>(stride());
  }
};

/// A block carries 8 columns of the state of one head through a chain; a thread makes an element of it, or every 128th row's of its
/// column. A chain is one product after another: what counts is how soon one ends.
template <bool delta>
struct Compose {
  using Parameters = ComposeParameters;
  static constexpr int kColumns = Parameters::kColumns;
  static constexpr int kThreads = 1024;
  static constexpr int kRows = kThreads / kColumns;  ///< at once

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
  static SAMESTATE_DEVICE int first_row() { return thread_index() / kColumns; }

  static SAMESTATE_DEVICE void carry(const Parameters& p, std::int64_t item, float* shared) {
    const int of_tile = thread_index() % kColumns;
    const int column = static_cast<int>(item % p.tiles()) * kColumns + of_tile;
    const std::int64_t head = item / p.tiles() % p.Hv;
    const std::int64_t number = item / p.tiles() / p.Hv;
    const bool exists = column < p.dv;
    const Chain chain = p.chains[number];
    const auto state = [&](std::int64_t of) { return (of * p.Hv + head) * p.dk * p.dv + column; };
    float* S = shared + of_tile * p.stride();
    float* next = S + kColumns * p.stride();
    const float* incoming = p.incoming + state(number);
    for (int l = first_row(); l < p.dk; l += kRows)
      S[l] = exists ? incoming[static_cast<std::int64_t>(l) * p.dv] : 0.0F;
    block_barrier();
    for (std::int64_t i = 0; i < chain.count; ++i) {
      const std::int64_t part = p.order[chain.first + i];
      store(p, S, p.reached + state(part), exists);
      if (part >= p.passing) return;
      const float* M = p.M + (part * p.Hv + head) * p.dk * (delta ? p.dk : 1);
      const float* N = p.N + state(part);
      for (int l = first_row(); l < p.dk; l += kRows) {
        const float added = exists ? N[static_cast<std::int64_t>(l) * p.dv] : 0.0F;
        next[l] = delta ? product_of(p, M + static_cast<std::int64_t>(l) * p.dk, S) + added
                        : fused(M[0], S[l], added);
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
    for (int l = first_row(); l < p.dk; l += kRows) to[static_cast<std::int64_t>(l) * p.dv] = S[l];
  }

  /// Multiplies a row of M by a column of S, in order.
  static SAMESTATE_DEVICE float product_of(const Parameters& p, const float* row, const float* S) {
    constexpr int kAtOnce = 8;  // fours of the row under way
    float sum = 0.0F;
    int j = 0;
    for (; p.dk % 4 == 0 && j + 4 * kAtOnce <= p.dk; j += 4 * kAtOnce) {
      Quad m[kAtOnce];
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) m[i] = load_quad(row + j + 4 * i);
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const Quad s = load_quad(S + j + 4 * i);
        sum = fused(m[i].w, s.w, fused(m[i].z, s.z, fused(m[i].y, s.y, fused(m[i].x, s.x, sum))));
      }
    }
    for (; j < p.dk; ++j) sum = fused(row[j], S[j], sum);
    return sum;
  }
};

}  // namespace samestate::cuda::ranks
