#pragma once

#include "optimized/cuda/backward/backward_parameters.cuh"

/// The fourth launch: the gradients of one chunk, from the state before it and the cotangent of the one after it.
namespace samestate::cuda {

/// Shared memory of ChunkGradients, of the longest chunk, since offsets that depend on it take registers. A panel is 64 columns
/// of keys or values.
template <class Operand>
struct alignas(16) GradientBuffers {
  static constexpr int kRows = kBackwardPanel;
  static constexpr int kStride = row_stride<Operand>(kBackwardPanel);
  static constexpr int kSumStride = row_stride<float>(kBackwardPanel);
  static constexpr int kThreads = 32 * BackwardSums<Operand>::kWarps;
  using Tile64 = Operand[kRows * kStride];

  Tile64 x, y, z;                  ///< panels [rows, 64]
  Tile64 S, D;                     ///< a panel of keys by one of values [64, 64], and other panels
  Tile64 T, dP;                    ///< [rows, rows]
  Tile64 dM, dTT;                  ///< [rows, rows] dT, then dM; dT T^T
  float sums[kRows * kSumStride];  ///< [rows, 64] products
  float gates[4 * kRows];
  float dG[kRows], dbeta[kRows];
  float written[kRows];        ///< parts of the last token's dG
  float of_threads[kThreads];  ///< parts of <S, D>
};

template <class Operand>
struct ChunkGradients {
  using Parameters = BackwardParameters<Operand>;
  using Buffers = GradientBuffers<Operand>;
  static constexpr int kThreads = Buffers::kThreads;
  static constexpr int kResidentBlocks = sizeof(Operand) == 2 ? 2 : 1;
  static constexpr int kStride = Buffers::kStride, kSumStride = Buffers::kSumStride;

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<ChunkGradients>(blocks_of(p.chunk_count * p.Hv, 1), sizeof(Buffers), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* memory) {
    for (std::int64_t item = block_index(); item < p.chunk_count * p.Hv; item += grid_blocks()) {
      const BackwardPlace at = place_of(p, item / p.Hv, item % p.Hv);
      ChunkGradients(p, at, item, memory).all();
      block_barrier();
    }
  }

 private:
  SAMESTATE_DEVICE ChunkGradients(const Parameters& parameters, const BackwardPlace& place, std::int64_t of,
                                  unsigned char* memory)
      : p(parameters),
        at(place),
        item(of),
        rows(parameters.padded_chunk()),
        s(*reinterpret_cast<Buffers*>(memory)),
        gates(s.gates, Buffers::kRows) {}

  SAMESTATE_DEVICE void all() {
    load_gates(p, at, gates, rows);
    for (int i = thread_index(); i < rows; i += block_threads()) s.dG[i] = s.dbeta[i] = s.written[i] = 0.0F;
    if (p.delta) load_rows(s.T, kStride, p.inverse + item * rows * rows, rows, rows, rows, rows, rows, true);
    BackwardSums<Operand> dT;
    through_values(dT);
    for (int c = 0; c < p.dk; c += kBackwardPanel) through_states(BackwardPanel(c, p.dk), dT);
    if (p.delta) {
      through_inverse(dT);
      BackwardSums<Operand> KK;
      for (int c = 0; c < p.dk; c += kBackwardPanel) through_A(BackwardPanel(c, p.dk), KK);
      if (p.g != nullptr) gates_through_A(KK);
    }
    write_gates();
  }

  /// dP and dv, and the part of dT through beta V.
  SAMESTATE_DEVICE void through_values(BackwardSums<Operand>& dT) {
    BackwardSums<Operand> dON;
    for (int c = 0; c < p.dv; c += kBackwardPanel) {
      const BackwardPanel panel(c, p.dv);
      load_values(panel, p.d_o, s.x);
      load_values(panel, p.delta ? p.n : p.v, s.y);
      if (p.delta || p.d_v != nullptr) load_values(panel, p.d_n, s.z);
      if (p.delta) load_values(panel, p.v, s.S);
      copy_wait();
      block_barrier();
      dON.template add<Left::rows, Right::transposed>(s.x, s.y, kStride, rows, rows, panel.padded);
      if (p.delta) {
        scale(s.S, gates.beta, s.D, panel);
        multiply<Left::transposed, Right::rows, Structure::dense>(
            s.T, kStride, s.z, kStride, rows, panel.padded, rows,
            [&](int i, int e, float x) { s.sums[i * kSumStride + e] = x; });
        block_barrier();
        dT.template add<Left::rows, Right::transposed>(s.z, s.D, kStride, rows, rows, panel.padded);
        each_row(
            panel,
            [&](int i, int e) {
              const float of_U = s.sums[i * kSumStride + e];
              if (p.d_v != nullptr) value(p.d_v, panel, i, e) = kept_value(p, gates.beta[i] * of_U);
              return of_U * widen(s.S[i * kStride + e]);
            },
            [&](int i, float along) { s.dbeta[i] += along; });
      } else if (p.d_v != nullptr) {
        store_rows(&value(p.d_v, panel, 0, 0), p.Hv * p.dv, s.z, kStride, at.tokens, panel.columns,
                   p.values_aligned());
      }
      block_barrier();
    }
    dON.template visit<Left::rows, Right::transposed>(rows, rows, [&](int i, int j, float x) {
      s.dP[i * kStride + j] = kept_value(p, gates.decayed(i, j, x) * p.scale);
    });
  }

  /// A panel of dq, of dk through scores and state, and of dk through W, and the part of dT through W.
  SAMESTATE_DEVICE void through_states(const BackwardPanel& keys, BackwardSums<Operand>& dT) {
    BackwardSums<Operand> dOS, ND, dNS;
    for (int c = 0; c < p.dv; c += kBackwardPanel) {
      const BackwardPanel values(c, p.dv);
      load_values(values, p.d_o, s.x);
      load_values(values, p.delta ? p.n : p.v, s.y);
      if (p.delta) load_values(values, p.d_n, s.z);
      load_state(keys, values, p.states, s.S);
      load_state(keys, values, p.d_states, s.D);
      copy_wait();
      block_barrier();
      dOS.template add<Left::rows, Right::transposed>(s.x, s.S, kStride, rows, keys.padded, values.padded);
      ND.template add<Left::rows, Right::transposed>(s.y, s.D, kStride, rows, keys.padded, values.padded);
      if (p.delta)
        dNS.template add<Left::rows, Right::transposed>(s.z, s.S, kStride, rows, keys.padded, values.padded);
      if (p.g != nullptr) {
        float sum = c == 0 ? 0.0F : s.of_threads[thread_index()];
        SAMESTATE_NO_UNROLL
        for (int i = thread_index(); i < keys.padded * values.padded; i += block_threads()) {
          const int cell = i / values.padded * kStride + i % values.padded;
          sum = fused(widen(s.S[cell]), widen(s.D[cell]), sum);
        }
        s.of_threads[thread_index()] = sum;
      }
      block_barrier();
    }
    if (p.g != nullptr) add_to_last();
    load_keys(keys, p.k, s.x);
    load_keys(keys, p.q, s.y);
    keep_sums(dOS, keys, [&](int i, float x) { return p.scale * gates.from_start[i] * x; });
    copy_wait();
    block_barrier();
    add_product<Left::rows>(s.dP, s.x, keys);
    each_row(
        keys,
        [&](int i, int e) {
          const float dq = s.sums[i * kSumStride + e];
          key(p.q_part, keys, i, e) = kept_value(p, dq);
          return widen(s.y[i * kStride + e]) * dq;
        },
        [&](int i, float along) { s.dG[i] += along; });
    block_barrier();
    keep_sums(ND, keys, [&](int i, float x) { return gates.to_end[i] * x; });
    block_barrier();
    each_row(
        keys, [&](int i, int e) { return widen(s.x[i * kStride + e]) * s.sums[i * kSumStride + e]; },
        [&](int i, float along) { s.written[i] += along; });
    block_barrier();
    add_product<Left::transposed>(s.dP, s.y, keys);
    each_row(
        keys,
        [&](int i, int e) {
          const float dk = s.sums[i * kSumStride + e];
          key(p.k_part, keys, i, e) = kept_value(p, dk);
          return widen(s.x[i * kStride + e]) * dk;
        },
        [&](int i, float along) { s.dG[i] -= along; });
    if (p.delta) through_W(keys, dNS, dT);
    block_barrier();
  }

  /// dW, and what goes through it; K is in x.
  SAMESTATE_DEVICE void through_W(const BackwardPanel& keys, const BackwardSums<Operand>& dNS,
                                  BackwardSums<Operand>& dT) {
    dNS.template visit<Left::rows, Right::transposed>(
        rows, keys.padded, [&](int i, int e, float x) { s.z[i * kStride + e] = kept_value(p, -x); });
    SAMESTATE_NO_UNROLL
    for (int i = thread_index(); i < rows * keys.padded; i += block_threads()) {
      const int row = i / keys.padded, cell = row * kStride + i % keys.padded;
      s.S[cell] = kept_value(p, gates.beta[row] * gates.from_start[row] * widen(s.x[cell]));
    }
    block_barrier();
    dT.template add<Left::rows, Right::transposed>(s.z, s.S, kStride, rows, rows, keys.padded);
    multiply<Left::transposed, Right::rows, Structure::dense>(
        s.T, kStride, s.z, kStride, rows, keys.padded, rows,
        [&](int i, int e, float x) { s.sums[i * kSumStride + e] = x; });
    block_barrier();
    each_row(
        keys,
        [&](int i, int e) {
          const float of_W = s.sums[i * kSumStride + e];
          key(p.k_correction, keys, i, e) = kept_value(p, gates.beta[i] * gates.from_start[i] * of_W);
          return of_W * widen(s.x[i * kStride + e]);
        },
        [&](int i, float along) {
          s.dbeta[i] += gates.from_start[i] * along;
          s.dG[i] = fused(gates.beta[i] * gates.from_start[i], along, s.dG[i]);
        });
  }

  /// dM.
  SAMESTATE_DEVICE void through_inverse(const BackwardSums<Operand>& dT) {
    dT.template visit<Left::rows, Right::transposed>(
        rows, rows, [&](int i, int j, float x) { s.dM[i * kStride + j] = kept_value(p, i > j ? x : 0.0F); });
    block_barrier();
    multiply<Left::rows, Right::transposed, Structure::dense>(
        s.dM, kStride, s.T, kStride, rows, rows, rows,
        [&](int i, int j, float x) { s.dTT[i * kStride + j] = kept_value(p, x); });
    block_barrier();
    multiply<Left::transposed, Right::rows, Structure::dense>(
        s.T, kStride, s.dTT, kStride, rows, rows, rows, [&](int i, int j, float x) {
          s.dM[i * kStride + j] = kept_value(p, i > j ? gates.decayed(i, j, -x) : 0.0F);
        });
    block_barrier();
  }

  /// A panel of dk through A, added to the one through W.
  SAMESTATE_DEVICE void through_A(const BackwardPanel& keys, BackwardSums<Operand>& KK) {
    load_keys(keys, p.k, s.x);
    copy_wait();
    block_barrier();
    KK.template add<Left::rows, Right::transposed>(s.x, s.x, kStride, rows, rows, keys.padded);
    scale(s.x, gates.beta, s.y, keys);
    multiply<Left::rows, Right::rows, Structure::dense>(
        s.dM, kStride, s.x, kStride, rows, keys.padded, rows,
        [&](int i, int e, float x) { s.sums[i * kSumStride + e] = x; });
    block_barrier();
    each_row(
        keys,
        [&](int i, int e) {
          float& sum = s.sums[i * kSumStride + e];
          const float of_A = sum;
          sum = gates.beta[i] * of_A;
          return of_A * widen(s.x[i * kStride + e]);
        },
        [&](int i, float along) { s.dbeta[i] += along; });
    block_barrier();
    add_product<Left::transposed>(s.dM, s.y, keys);
    each_row(
        keys,
        [&](int i, int e) {
          Operand& correction = key(p.k_correction, keys, i, e);  // which the same thread has written
          correction = kept_value(p, widen(correction) + s.sums[i * kSumStride + e]);
          return 0.0F;
        },
        [](int, float) {});
    block_barrier();
  }

  /// Row and column sums of dM o beta K K^T.
  SAMESTATE_DEVICE void gates_through_A(const BackwardSums<Operand>& KK) {
    KK.template visit<Left::rows, Right::transposed>(rows, rows, [&](int i, int j, float x) {
      s.sums[i * kSumStride + j] = widen(s.dM[i * kStride + j]) * (gates.beta[i] * x);
    });
    block_barrier();
    for (int i = thread_index(); i < rows; i += block_threads()) {
      float sum = 0.0F;
      for (int j = 0; j < i; ++j) sum += s.sums[i * kSumStride + j];
      for (int j = i + 1; j < rows; ++j) sum -= s.sums[j * kSumStride + i];
      s.dG[i] += sum;
    }
  }

  SAMESTATE_DEVICE void write_gates() {
    block_barrier();
    const int last = at.tokens - 1;
    const std::int64_t gate = at.first * p.Hv + at.head;
    if (p.d_beta != nullptr) {
      for (int i = thread_index(); i < at.tokens; i += block_threads())
        p.d_beta[gate + i * p.Hv] = s.dbeta[i];
    }
    if (p.d_g == nullptr || thread_index() > 0) return;
    float sum = 0.0F;
    for (int i = 0; i < at.tokens; ++i) sum += s.written[i];
    s.dG[last] += sum;
    sum = 0.0F;
    for (int i = last; i >= 0; --i) p.d_g[gate + i * p.Hv] = sum += s.dG[i];
  }

  /// Adds e^{G_C} <S, D> of a panel to the last token's dG.
  SAMESTATE_DEVICE void add_to_last() {
    const float of_warp = warp_sum(s.of_threads[thread_index()]);
    if (lane_index() == 0) s.of_threads[thread_index()] = of_warp;
    block_barrier();
    if (thread_index() > 0) return;
    float sum = 0.0F;
    for (int warp = 0; warp < block_warps(); ++warp) sum += s.of_threads[32 * warp];
    s.written[at.tokens - 1] = fused(gates.from_start[rows - 1], sum, s.written[at.tokens - 1]);
  }

  /// sums <- factor(i, x) of a product of rows with a transposed panel.
  template <class Factor>
  SAMESTATE_DEVICE void keep_sums(const BackwardSums<Operand>& of, const BackwardPanel& keys,
                                  Factor&& factor) {
    of.template visit<Left::rows, Right::transposed>(
        rows, keys.padded, [&](int i, int e, float x) { s.sums[i * kSumStride + e] = factor(i, x); });
  }

  /// sums <- sums + A B, with a barrier behind it.
  template <Left left>
  SAMESTATE_DEVICE void add_product(const Operand* a, const Operand* b, const BackwardPanel& panel) {
    multiply<left, Right::rows, Structure::dense>(
        a, kStride, b, kStride, rows, panel.padded, rows,
        [&](int i, int e, float x) { s.sums[i * kSumStride + e] += x; });
    block_barrier();
  }

  /// to <- factors x by rows, as it is kept.
  SAMESTATE_DEVICE void scale(const Operand* x, const float* factors, Operand* to,
                              const BackwardPanel& panel) {
    for (int i = thread_index(); i < rows * panel.padded; i += block_threads()) {
      const int row = i / panel.padded, cell = row * kStride + i % panel.padded;
      to[cell] = kept_value(p, factors[row] * widen(x[cell]));
    }
  }

  /// element(row, column) for every token and column of a panel, a row a warp, and add(row, the sum of what they returned). The
  /// same thread has an element in every call.
  template <class Element, class Add>
  SAMESTATE_DEVICE void each_row(const BackwardPanel& panel, Element&& element, Add&& add) const {
    SAMESTATE_NO_UNROLL
    for (int i = warp_index(); i < at.tokens; i += block_warps()) {
      float sum = 0.0F;
      for (int e = lane_index(); e < panel.columns; e += 32) sum += element(i, e);
      sum = warp_sum(sum);
      if (lane_index() == 0) add(i, sum);
    }
  }

  SAMESTATE_DEVICE Operand& value(Operand* of, const BackwardPanel& panel, int i, int e) const {
    return of[((at.first + i) * p.Hv + at.head) * p.dv + panel.first + e];
  }
  SAMESTATE_DEVICE Operand& key(Operand* of, const BackwardPanel& panel, int i, int e) const {
    return of[((at.first + i) * p.Hv + at.head) * p.dk + panel.first + e];
  }
  /// A panel of a tensor [rows, Hv, dv]; zeros if it is absent.
  SAMESTATE_DEVICE void load_values(const BackwardPanel& panel, const Operand* from, Operand* to) const {
    load_rows(to, kStride, (from != nullptr ? from : p.v) + (at.first * p.Hv + at.head) * p.dv + panel.first,
              p.Hv * p.dv, from != nullptr ? at.tokens : 0, panel.columns, rows, panel.padded,
              p.values_aligned());
  }
  SAMESTATE_DEVICE void load_keys(const BackwardPanel& panel, const Operand* from, Operand* to) const {
    load_rows(to, kStride, from + (at.first * p.Hk + at.key_head) * p.dk + panel.first, p.Hk * p.dk,
              at.tokens, panel.columns, rows, panel.padded, p.keys_aligned());
  }
  SAMESTATE_DEVICE void load_state(const BackwardPanel& keys, const BackwardPanel& values,
                                   const Operand* from, Operand* to) const {
    load_rows(to, kStride, from + (item * p.dk + keys.first) * p.dv + values.first, p.dv, keys.columns,
              values.columns, keys.padded, values.padded, p.values_aligned());
  }

  const Parameters& p;
  const BackwardPlace at;
  const std::int64_t item;  ///< the place of the chunk and head in tensors [chunks, Hv, ..]
  const int rows;
  Buffers& s;
  const BackwardGates gates;
};

}  // namespace samestate::cuda
