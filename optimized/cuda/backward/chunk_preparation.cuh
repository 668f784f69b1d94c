#pragma once

#include "optimized/cuda/backward/backward_parameters.cuh"

/// The first launch: what a chunk of a value head does not need the states for.
namespace samestate::cuda {

/// G, T, W, U and P^T dO of one chunk and value head a block.
template <class Operand>
struct ChunkPreparation {
  using Parameters = BackwardParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr int kResidentBlocks = 2;
  static constexpr int kStride = row_stride<Operand>(kBackwardPanel);

  struct Shared {
    Operand *x, *y;  ///< panels of keys or values [rows, 64]
    Operand *P, *T;  ///< [rows, rows]
    float* A;        ///< [rows, rows], for a substitution that reads down columns
    BackwardGates gates;

    static SAMESTATE_HOST_DEVICE int a_stride(int rows) { return rows + 1; }
    static SAMESTATE_HOST_DEVICE int bytes(int rows) {
      return 4 * rows * kStride * static_cast<int>(sizeof(Operand)) + (rows * a_stride(rows) + 3) / 4 * 16 +
             BackwardGates::bytes(rows);
    }
    SAMESTATE_DEVICE Shared(unsigned char* memory, int rows)
        : x(reinterpret_cast<Operand*>(memory)),
          y(x + rows * kStride),
          P(y + rows * kStride),
          T(P + rows * kStride),
          A(reinterpret_cast<float*>(T + rows * kStride)),
          gates(A + (rows * a_stride(rows) + 3) / 4 * 4, rows) {}
  };

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<ChunkPreparation>(blocks_of(p.chunk_count * p.Hv, 1),
                                   static_cast<std::size_t>(Shared::bytes(p.padded_chunk())), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    const int rows = p.padded_chunk();
    const Shared s(memory, rows);
    for (std::int64_t item = block_index(); item < p.chunk_count * p.Hv; item += grid_blocks()) {
      const BackwardPlace at = place_of(p, item / p.Hv, item % p.Hv);
      make_gates(p, at, s, rows);
      make_scores(p, at, s, rows);
      if (p.delta) invert(p, item, at, s, rows);
      through_values(p, at, s, rows);
      if (p.delta) through_keys(p, at, s, rows);
      block_barrier();
    }
  }

 private:
  /// The sums of g in their order; other launches read them from global memory.
  static SAMESTATE_DEVICE void make_gates(const Parameters& p, const BackwardPlace& at, const Shared& s,
                                          int rows) {
    for (int i = thread_index(); i < rows; i += block_threads()) {
      const std::int64_t gate = (at.first + i) * p.Hv + at.head;
      const bool exists = i < at.tokens;
      const float g = exists && p.g != nullptr ? p.g[gate] : 0.0F;
      s.gates.beta[i] = !exists ? 0.0F : p.beta != nullptr ? p.beta[gate] : 1.0F;
      s.gates.G[i] = g < kHardReset ? kHardReset : g;
    }
    block_barrier();
    if (thread_index() == 0) {
      float sum = 0.0F;
      for (int i = 0; i < rows; ++i) s.gates.G[i] = sum += s.gates.G[i];
    }
    block_barrier();
    for (int i = thread_index(); i < at.tokens; i += block_threads())
      p.sums[(at.first + i) * p.Hv + at.head] = s.gates.G[i];
    for (int i = thread_index(); i < rows; i += block_threads())
      s.gates.from_start[i] = exponential(s.gates.G[i]);
  }

  /// A and P.
  static SAMESTATE_DEVICE void make_scores(const Parameters& p, const BackwardPlace& at, const Shared& s,
                                           int rows) {
    BackwardSums<Operand> KK, QK;
    for (int c = 0; c < p.dk; c += kBackwardPanel) {
      const BackwardPanel panel(c, p.dk);
      const std::int64_t key = (at.first * p.Hk + at.key_head) * p.dk + c;
      load_rows(s.x, kStride, p.k + key, p.Hk * p.dk, at.tokens, panel.columns, rows, panel.padded,
                p.keys_aligned());
      load_rows(s.y, kStride, p.q + key, p.Hk * p.dk, at.tokens, panel.columns, rows, panel.padded,
                p.keys_aligned());
      copy_wait();
      block_barrier();
      if (p.delta)
        KK.template add<Left::rows, Right::transposed>(s.x, s.x, kStride, rows, rows, panel.padded);
      QK.template add<Left::rows, Right::transposed>(s.y, s.x, kStride, rows, rows, panel.padded);
      block_barrier();
    }
    const BackwardGates& gates = s.gates;
    if (p.delta) {
      KK.template visit<Left::rows, Right::transposed>(rows, rows, [&](int i, int j, float x) {
        s.A[i * Shared::a_stride(rows) + j] = i > j ? gates.decayed(i, j, gates.beta[i] * x) : 0.0F;
      });
    }
    QK.template visit<Left::rows, Right::transposed>(rows, rows, [&](int i, int j, float x) {
      s.P[i * kStride + j] = kept_value(p, gates.decayed(i, j, x) * p.scale);
    });
    block_barrier();
  }

  static SAMESTATE_DEVICE void invert(const Parameters& p, std::int64_t item, const BackwardPlace& at,
                                      const Shared& s, int rows) {
    invert_unit_lower(s.A, Shared::a_stride(rows), s.T, kStride, rows, at.tokens);
    block_barrier();
    if constexpr (std::is_same_v<Operand, float>) {
      for (int i = thread_index(); i < rows * rows; i += block_threads()) {
        Operand& element = s.T[i / rows * kStride + i % rows];
        element = kept_value(p, element);
      }
      block_barrier();
    }
    store_rows(p.inverse + item * rows * rows, rows, s.T, kStride, rows, rows, true);
  }

  /// U and P^T dO.
  static SAMESTATE_DEVICE void through_values(const Parameters& p, const BackwardPlace& at, const Shared& s,
                                              int rows) {
    for (int c = 0; c < p.dv; c += kBackwardPanel) {
      const BackwardPanel panel(c, p.dv);
      const std::int64_t value = (at.first * p.Hv + at.head) * p.dv + c;
      load_rows(s.x, kStride, p.v + value, p.Hv * p.dv, at.tokens, panel.columns, rows, panel.padded,
                p.values_aligned());
      load_rows(s.y, kStride, (p.d_o != nullptr ? p.d_o : p.v) + value, p.Hv * p.dv,
                p.d_o != nullptr ? at.tokens : 0, panel.columns, rows, panel.padded, p.values_aligned());
      copy_wait();
      block_barrier();
      BackwardSums<Operand> U, local;
      local.template add<Left::transposed, Right::rows>(s.P, s.y, kStride, rows, panel.padded, rows);
      if (p.delta) {
        scale_rows(p, s.gates.beta, nullptr, s.x, rows, panel.padded);
        block_barrier();
        U.template add<Left::rows, Right::rows>(s.T, s.x, kStride, rows, panel.padded, rows);
      }
      block_barrier();
      local.template visit<Left::transposed, Right::rows>(
          rows, panel.padded, [&](int i, int e, float x) { s.y[i * kStride + e] = kept_value(p, x); });
      if (p.delta) {
        U.template visit<Left::rows, Right::rows>(
            rows, panel.padded, [&](int i, int e, float x) { s.x[i * kStride + e] = kept_value(p, x); });
      }
      block_barrier();
      store_rows(p.d_n + value, p.Hv * p.dv, s.y, kStride, at.tokens, panel.columns, p.values_aligned());
      if (p.delta)
        store_rows(p.n + value, p.Hv * p.dv, s.x, kStride, at.tokens, panel.columns, p.values_aligned());
      block_barrier();
    }
  }

  /// W.
  static SAMESTATE_DEVICE void through_keys(const Parameters& p, const BackwardPlace& at, const Shared& s,
                                            int rows) {
    for (int c = 0; c < p.dk; c += kBackwardPanel) {
      const BackwardPanel panel(c, p.dk);
      load_rows(s.x, kStride, p.k + (at.first * p.Hk + at.key_head) * p.dk + c, p.Hk * p.dk, at.tokens,
                panel.columns, rows, panel.padded, p.keys_aligned());
      copy_wait();
      block_barrier();
      scale_rows(p, s.gates.beta, s.gates.from_start, s.x, rows, panel.padded);
      block_barrier();
      multiply<Left::rows, Right::rows, Structure::dense>(
          s.T, kStride, s.x, kStride, rows, panel.padded, rows,
          [&](int i, int e, float x) { s.y[i * kStride + e] = kept_value(p, x); });
      block_barrier();
      store_rows(p.w + ((at.first * p.Hv + at.head) * p.dk + c), p.Hv * p.dk, s.y, kStride, at.tokens,
                 panel.columns, p.keys_aligned());
    }
  }

 public:
  /// x <- first second x by rows, as it is kept; `second` may be null.
  static SAMESTATE_DEVICE void scale_rows(const Parameters& p, const float* first, const float* second,
                                          Operand* x, int rows, int columns) {
    for (int i = thread_index(); i < rows * columns; i += block_threads()) {
      const int row = i / columns;
      const float factor = second != nullptr ? first[row] * second[row] : first[row];
      Operand& element = x[row * kStride + i % columns];
      element = kept_value(p, factor * widen(element));
    }
  }
};

}  // namespace samestate::cuda
