#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// One step of test-time training a token, each from a state of its own (EQUATIONS 5.12): S' = S + beta k (v - S^T k)^T, beta = eta of the
/// gradient step, eta / (1 + eta |k|^2) of the proximal one. Memory-bound: a state is read once and written once.
namespace samestate::cuda {

template <class Operand>
struct LearningStepParameters {
  const Operand* S = nullptr;  ///< [tokens, dk, dv]
  const Operand* k = nullptr;  ///< [tokens, dk]
  const Operand* v = nullptr;  ///< [tokens, dv]
  const float* eta = nullptr;  ///< [tokens]
  Operand* next = nullptr;     ///< [tokens, dk, dv]
  std::int64_t tokens = 0;     ///< tokens of all sequences
  int dk = 1, dv = 1;
  bool proximal = false;
};

/// A token's columns of 128 bytes a block, eight lanes a row; all rows lie in registers, as they were stored, between the sums over
/// them and the write. At most 32 * `loads` rows.
template <class Operand, int loads>
struct LearningStep {
  using Parameters = LearningStepParameters<Operand>;
  static constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kLanes = 8, kRows = kThreads / kLanes, kColumns = kLanes * n;
  using Elements = Vector<Operand, n>;

  struct alignas(16) Shared {
    float sums[kWarps][kLanes][n];  ///< S^T k of a warp's rows
    float squares[kWarps];          ///< sums of squares of k
  };

  static SAMESTATE_HOST_DEVICE int slabs(const Parameters& p) { return (p.dv + kColumns - 1) / kColumns; }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const std::int64_t token = quotient(block_index(), slabs(p));
    const auto slab = static_cast<int>(block_index() - token * slabs(p));
    const int lane = thread_index() % kLanes, first = thread_index() / kLanes;
    const int column = slab * kColumns + lane * n;
    const bool vector = p.dv % n == 0;
    const std::int64_t rows = token * p.dk;
    Elements S[loads];
    float k[loads];
    SAMESTATE_UNROLL
    for (int i = 0; i < loads; ++i) {
      const int row = first + i * kRows;
      const Operand* const from = p.S + (rows + row) * p.dv;
      if (vector) {
        S[i] =
            load_settled<true>(reinterpret_cast<const Elements*>(from + column), row < p.dk && column < p.dv);
      } else {
        S[i] = row < p.dk ? load_part<Operand, n>(from, column, p.dv, false) : Elements{};
      }
      k[i] = row < p.dk ? widen(p.k[rows + row]) : 0.0F;
    }
    const Elements v = load_part<Operand, n>(p.v + token * p.dv, column, p.dv, vector);
    const float eta = p.eta[token];
    float u[n] = {}, squares = 0.0F;
    SAMESTATE_UNROLL
    for (int i = 0; i < loads; ++i) {
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) u[e] = fused(k[i], element(S[i], e), u[e]);
      squares = fused(k[i], k[i], squares);
      keep_as_stored(S[i]);
    }
    add_up(shared, lane, u, squares);
    const float beta = p.proximal ? eta / (1.0F + eta * squares) : eta;
    SAMESTATE_UNROLL
    for (int e = 0; e < n; ++e) u[e] = beta * (element(v, e) - u[e]);
    SAMESTATE_UNROLL
    for (int i = 0; i < loads; ++i) {
      const int row = first + i * kRows;
      if (row >= p.dk) break;
      float next[n];
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) next[e] = fused(k[i], u[e], element(S[i], e));
      Operand* const to = p.next + (rows + row) * p.dv;
      if (!vector) {
        store_part<Operand, n>(to, column, p.dv, false, next);
      } else if (column < p.dv) {
        store_result<true>(reinterpret_cast<Elements*>(to + column), narrowed<Operand>(next));
      }
    }
  }

  /// Over all rows: those of a warp by shuffles, then its sums with the others'.
  static SAMESTATE_DEVICE void add_up(Shared& shared, int lane, float (&u)[n], float& squares) {
    SAMESTATE_UNROLL
    for (int mask = kLanes; mask < 32; mask *= 2) {
      SAMESTATE_UNROLL
      for (float& x : u) x += shuffle_xor(x, mask);
      squares += shuffle_xor(squares, mask);
    }
    if (lane_index() < kLanes) {
      SAMESTATE_UNROLL
      for (int e = 0; e < n; ++e) shared.sums[warp_index()][lane][e] = u[e];
      shared.squares[warp_index()] = squares;
    }
    block_barrier();
    squares = 0.0F;
    SAMESTATE_UNROLL
    for (float& x : u) x = 0.0F;
    SAMESTATE_UNROLL
    for (int warp = 0; warp < kWarps; ++warp) {
      SAMESTATE_UNROLL
      for (int e = 0; e < n; e += 4) {
        const Quad part = load_quad(&shared.sums[warp][lane][e]);
        u[e] += part.x, u[e + 1] += part.y, u[e + 2] += part.z, u[e + 3] += part.w;
      }
      squares += shared.squares[warp];
    }
  }

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<LearningStep>(blocks_of(p.tokens * slabs(p), 1), sizeof(Shared), p, stream);
  }
};

/// Launches the grid that fits dk, which is at most 512.
template <class Operand>
void launch_learning_step(const LearningStepParameters<Operand>& p, cudaStream_t stream) {
  if (p.dk <= 32) return LearningStep<Operand, 1>::launch(p, stream);
  if (p.dk <= 128) return LearningStep<Operand, 4>::launch(p, stream);
  if (p.dk <= 256) return LearningStep<Operand, 8>::launch(p, stream);
  LearningStep<Operand, 16>::launch(p, stream);
}

}  // namespace samestate::cuda
