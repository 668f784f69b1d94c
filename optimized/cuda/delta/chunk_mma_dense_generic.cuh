#pragma once

#include <cstdint>
#include <type_traits>

#include "optimized/cuda/delta/dense_parameters.cuh"
#include "optimized/cuda/delta/inverse.cuh"
#include "optimized/cuda/units/matmul.cuh"

/// The chunked form (EQUATIONS 5.5) of all four systems, one block a tile of value columns of one head; the
/// names are those of the contract (reference/contract.h). Everything lives in shared memory:
///
///   A  = strict_lower(beta K K^T o E)     T = (I + A)^-1     U = T beta V     W = T beta e^G K
///   V' = U - W S                          P = Q K^T o E
///   O  = scale (e^G Q S + P V')           S <- e^{G_C} S + K^T (e^{G_C - G} V')
///
/// and without the delta rule V' = V. E_ij = e^{G_i - G_j} for i >= j: no other difference is exponentiated.
namespace samestate::cuda {

inline constexpr int kChunkLimit = 64;
inline constexpr int kKeyLimit = 256;
static_assert(kChunkLimit <= 64, "the inverse gives a lane rows l and l + 32 of its columns");
static_assert(kChunkLimit % 16 == 0 && kKeyLimit % 16 == 0,
              "a warp's tile is 16 rows, its steps of the depth 16");

/// The decay below which e^g is not an fp32 number. A hard reset (g = -1e38) is cut to it before the
/// cumulative sum, whose differences after the reset would otherwise have no correct digit left (BUGS M09).
inline constexpr float kHardReset = -128.0F;

/// Sizes, row strides (elements) and byte offsets of the buffers of one block. A buffer whose content is dead
/// is taken over: W by Q's, P by A's, the decayed V' by beta V's, V' by U's.
struct ChunkLayout {
  int rows = 0, keys = 0, columns = 0;  ///< chunk, dk and tile, rounded up to 16
  int panel = 0;                        ///< columns of W made at once
  int key_stride = 0, panel_stride = 0, chunk_stride = 0, value_stride = 0;  ///< strides of operands
  int a_stride = 0, state_stride = 0;                                        ///< strides of fp32 buffers
  int k = 0, q_w = 0, k_scaled = 0, a_p = 0, t = 0, v = 0, u = 0, o = 0, state = 0, state_operand = 0,
      gates = 0;
  int bytes = 0;
};

template <class Operand>
inline ChunkLayout chunk_layout(int chunk, int dk, int tile, int panel, bool delta) {
  const auto padded = [](int n) { return (n + 15) / 16 * 16; };
  const int size = static_cast<int>(sizeof(Operand));
  ChunkLayout y;
  y.rows = padded(chunk), y.keys = padded(dk), y.columns = padded(tile), y.panel = panel;
  y.key_stride = row_stride<Operand>(y.keys), y.panel_stride = row_stride<Operand>(panel);
  y.chunk_stride = row_stride<Operand>(y.rows), y.value_stride = row_stride<Operand>(y.columns);
  y.a_stride = y.rows + 1;  // the substitution reads down columns
  y.state_stride = row_stride<float>(y.columns);
  const auto take = [&y](int bytes) {
    const int at = y.bytes;
    y.bytes += (bytes + 15) / 16 * 16;
    return at;
  };
  const auto larger = [](int a, int b) { return a > b ? a : b; };
  y.k = take(y.rows * y.key_stride * size);
  y.q_w = take(y.rows * y.key_stride * size);
  y.a_p = take(larger(delta ? y.rows * y.a_stride * 4 : 0, y.rows * y.chunk_stride * size));
  y.v = take(y.rows * y.value_stride * size);
  y.u = take(y.rows * y.value_stride * size);
  y.o = take(y.rows * y.state_stride * 4);
  y.state = take(y.keys * y.state_stride * 4);
  y.state_operand = std::is_same_v<Operand, float> ? y.state : take(y.keys * y.value_stride * size);
  y.gates = take(4 * y.rows * 4);
  if (delta) {
    y.t = take(y.rows * y.chunk_stride * size);
    y.k_scaled = take(y.rows * y.panel_stride * size);
  }
  return y;
}

/// Rows [0, tokens) and columns [0, width) of a matrix in global memory whose rows are `step` apart, into
/// shared memory; zero up to (rows, columns). There after copy_wait() and a barrier.
template <class Operand>
SAMESTATE_DEVICE void load_rows(Operand* to, int stride, const Operand* from, std::int64_t step, int tokens,
                                int width, int rows, int columns, bool aligned) {
  constexpr int kVector = 16 / static_cast<int>(sizeof(Operand));
  const int vectors = columns / kVector;
  for (int i = thread_index(); i < rows * vectors; i += block_threads()) {
    const int row = i / vectors;
    const int column = i % vectors * kVector;
    Operand* cell = to + row * stride + column;
    const Operand* source = from + row * step + column;
    if (aligned && row < tokens && column < width) {
      copy_async_16(cell, source);
    } else {
      for (int e = 0; e < kVector; ++e) {
        cell[e] = row < tokens && column + e < width ? source[e] : narrow<Operand>(0.0F);
      }
    }
  }
}

template <class Operand, bool delta>
class ChunkedBlock {
 public:
  SAMESTATE_DEVICE ChunkedBlock(const Parameters<Operand>& parameters, const ChunkLayout& layout,
                                unsigned char* shared)
      : p(parameters),
        y(layout),
        K(at<Operand>(shared, layout.k)),
        QW(at<Operand>(shared, layout.q_w)),
        scaled(at<Operand>(shared, layout.k_scaled)),
        A(at<float>(shared, layout.a_p)),
        P(at<Operand>(shared, layout.a_p)),
        T(at<Operand>(shared, layout.t)),
        V(at<Operand>(shared, layout.v)),
        U(at<Operand>(shared, layout.u)),
        O(at<float>(shared, layout.o)),
        S(at<float>(shared, layout.state)),
        S_operand(at<Operand>(shared, layout.state_operand)),
        beta(at<float>(shared, layout.gates)),
        G(beta + layout.rows),
        from_start(G + layout.rows),
        to_end(from_start + layout.rows) {}

  /// All chunks of one item. The next may follow at once: a thread stores and loads the same elements of S.
  SAMESTATE_DEVICE void run(std::int64_t index) {
    const Item x = item_of(p, index);
    load_state(x);
    for (std::int64_t t = 0; t < x.tokens; t += p.chunk) {
      const int tokens = static_cast<int>(x.tokens - t < p.chunk ? x.tokens - t : p.chunk);
      load(x, x.first_token + t, tokens);
      copy_wait();
      block_barrier();
      prepare(tokens);
      block_barrier();
      if constexpr (delta) {
        interact(tokens);
      } else {
        write_values();
      }
      block_barrier();
      finish(x, x.first_token + t, tokens);
      block_barrier();
    }
    store_state(x);
  }

 private:
  template <class Element>
  SAMESTATE_DEVICE static Element* at(unsigned char* shared, int offset) {
    return reinterpret_cast<Element*>(shared + offset);
  }

  /// S as it is carried and as it is multiplied.
  SAMESTATE_DEVICE void set_state(int row, int column, float value) {
    S[row * y.state_stride + column] = value;
    if constexpr (!std::is_same_v<Operand, float>) {
      S_operand[row * y.value_stride + column] = narrow<Operand>(value);
    }
  }

  SAMESTATE_DEVICE void load_state(const Item& x) {
    for (int i = thread_index(); i < y.keys * y.columns; i += block_threads()) {
      const int row = i / y.columns;
      const int column = i % y.columns;
      const bool exists = p.initial_state && row < p.dk && column < x.columns;
      set_state(row, column,
                exists ? p.initial_state[x.state + static_cast<std::int64_t>(row) * p.dv + column] : 0.0F);
    }
  }

  SAMESTATE_DEVICE void store_state(const Item& x) {
    if (!p.final_state) return;
    for (int i = thread_index(); i < y.keys * y.columns; i += block_threads()) {
      const int row = i / y.columns;
      const int column = i % y.columns;
      if (row < p.dk && column < x.columns) {
        p.final_state[x.state + static_cast<std::int64_t>(row) * p.dv + column] =
            S[row * y.state_stride + column];
      }
    }
  }

  /// Q, K, V and the gates of the chunk. Rows past its end are tokens that do nothing: k = v = beta = g = 0.
  SAMESTATE_DEVICE void load(const Item& x, std::int64_t first, int tokens) {
    const std::int64_t key_at = (first * p.Hk + x.key_head) * p.dk;
    const bool keys_aligned = p.dk * static_cast<int>(sizeof(Operand)) % 16 == 0;
    const bool values_aligned = p.dv * static_cast<int>(sizeof(Operand)) % 16 == 0;
    load_rows(K, y.key_stride, p.k + key_at, p.Hk * p.dk, tokens, p.dk, y.rows, y.keys, keys_aligned);
    load_rows(QW, y.key_stride, p.q + key_at, p.Hk * p.dk, tokens, p.dk, y.rows, y.keys, keys_aligned);
    load_rows(V, y.value_stride, p.v + (first * p.Hv + x.head) * p.dv + x.column, p.Hv * p.dv, tokens,
              x.columns, y.rows, y.columns, values_aligned);
    for (int i = thread_index(); i < y.rows; i += block_threads()) {
      const std::int64_t gate = (first + i) * p.Hv + x.head;
      beta[i] = i >= tokens ? 0.0F : p.beta ? p.beta[gate] : 1.0F;
      const float g = i < tokens && p.g ? p.g[gate] : 0.0F;
      G[i] = g < kHardReset ? kHardReset : g;
    }
  }

  /// G = cumulative sum of g, in order, and its exponentials; beta V; q and k normalised.
  SAMESTATE_DEVICE void prepare(int tokens) {
    if (warp_index() == 0) {
      if (lane_index() == 0) {
        float sum = 0.0F;
        for (int i = 0; i < y.rows; ++i) G[i] = sum += G[i];
      }
      warp_barrier();
      for (int i = lane_index(); i < y.rows; i += 32) {
        from_start[i] = decay<Operand>(G[i]);
        to_end[i] = decay<Operand>(G[y.rows - 1] - G[i]);
      }
    }
    if (p.l2norm) {
      for (int i = warp_index(); i < 2 * tokens; i += block_warps()) {
        normalize_row<Operand>((i < tokens ? K + i * y.key_stride : QW + (i - tokens) * y.key_stride), p.dk,
                               true);
      }
    }
    if constexpr (delta) {
      for (int i = thread_index(); i < y.rows * y.columns; i += block_threads()) {
        Operand& v = V[i / y.columns * y.value_stride + i % y.columns];
        v = narrow<Operand>(beta[i / y.columns] * widen(v));
      }
    }
  }

  /// E_ij x, masked before the exponential.
  SAMESTATE_DEVICE float decayed(int i, int j, float x) const {
    return i >= j ? x * decay<Operand>(G[i] - G[j]) : 0.0F;
  }

  /// O <- e^G Q S, while Q is there.
  SAMESTATE_DEVICE void read_state() {
    multiply<Left::rows, Right::rows, Structure::dense>(
        QW, y.key_stride, S_operand, y.value_stride, y.rows, y.columns, y.keys,
        [&](int i, int c, float x) { O[i * y.state_stride + c] = x * from_start[i]; });
  }

  /// P = Q K^T o E on and below the diagonal, zero above.
  SAMESTATE_DEVICE void attend() {
    multiply<Left::rows, Right::transposed, Structure::lower_result>(
        QW, y.key_stride, K, y.key_stride, y.rows, y.rows, y.keys,
        [&](int i, int j, float x) { P[i * y.chunk_stride + j] = narrow<Operand>(decayed(i, j, x)); });
  }

  /// V' of the delta rule: A, T, U, W.
  SAMESTATE_DEVICE void interact(int tokens) {
    multiply<Left::rows, Right::transposed, Structure::lower_result>(
        K, y.key_stride, K, y.key_stride, y.rows, y.rows, y.keys,
        [&](int i, int j, float x) { A[i * y.a_stride + j] = i > j ? decayed(i, j, x) * beta[i] : 0.0F; });
    read_state();
    block_barrier();
    invert_unit_lower(A, y.a_stride, T, y.chunk_stride, y.rows, tokens);
    scale_keys(0);
    block_barrier();
    attend();  // over A
    multiply<Left::rows, Right::rows, Structure::lower_left>(
        T, y.chunk_stride, V, y.value_stride, y.rows, y.columns, y.rows,
        [&](int i, int c, float x) { U[i * y.value_stride + c] = narrow<Operand>(x); });
    for (int first = 0; first < y.keys; first += y.panel) {
      block_barrier();
      if (first > 0) {
        scale_keys(first);
        block_barrier();
      }
      const int columns = y.keys - first < y.panel ? y.keys - first : y.panel;
      multiply<Left::rows, Right::rows, Structure::lower_left>(
          T, y.chunk_stride, scaled, y.panel_stride, y.rows, columns, y.rows, [&](int i, int l, float x) {
            QW[i * y.key_stride + first + l] = narrow<Operand>(x);  // over Q
          });
    }
    block_barrier();
    multiply<Left::rows, Right::rows, Structure::dense>(QW, y.key_stride, S_operand, y.value_stride, y.rows,
                                                        y.columns, y.keys, [&](int i, int c, float x) {
                                                          const int cell = i * y.value_stride + c;
                                                          set_values(i, cell, widen(U[cell]) - x);
                                                        });
  }

  /// beta e^G k, columns [first, first + panel) of it.
  SAMESTATE_DEVICE void scale_keys(int first) {
    const int columns = y.keys - first < y.panel ? y.keys - first : y.panel;
    for (int i = thread_index(); i < y.rows * columns; i += block_threads()) {
      const int row = i / columns;
      const int column = i % columns;
      scaled[row * y.panel_stride + column] =
          narrow<Operand>(beta[row] * from_start[row] * widen(K[row * y.key_stride + first + column]));
    }
  }

  /// V' = V of the systems without the delta rule.
  SAMESTATE_DEVICE void write_values() {
    read_state();
    attend();
    for (int i = thread_index(); i < y.rows * y.columns; i += block_threads()) {
      const int cell = i / y.columns * y.value_stride + i % y.columns;
      set_values(i / y.columns, cell, widen(V[cell]));
    }
  }

  /// V' over U, e^{G_C - G} V' over beta V.
  SAMESTATE_DEVICE void set_values(int i, int cell, float value) {
    U[cell] = narrow<Operand>(value);
    V[cell] = narrow<Operand>(to_end[i] * value);
  }

  /// O and S.
  SAMESTATE_DEVICE void finish(const Item& x, std::int64_t first, int tokens) {
    multiply<Left::rows, Right::rows, Structure::lower_left>(
        P, y.chunk_stride, U, y.value_stride, y.rows, y.columns, y.rows, [&](int i, int c, float sum) {
          if (i < tokens && c < x.columns) {
            p.o[((first + i) * p.Hv + x.head) * p.dv + x.column + c] =
                narrow<Operand>((O[i * y.state_stride + c] + sum) * p.scale);
          }
        });
    const float over_chunk = from_start[y.rows - 1];
    multiply<Left::transposed, Right::rows, Structure::dense>(
        K, y.key_stride, V, y.value_stride, y.keys, y.columns, y.rows, [&](int l, int c, float x_sum) {
          set_state(l, c, fused(S[l * y.state_stride + c], over_chunk, x_sum));
        });
  }

  const Parameters<Operand>& p;
  const ChunkLayout& y;
  Operand *const K, *const QW, *const scaled;
  float* const A;
  Operand *const P, *const T, *const V, *const U;
  float *const O, *const S;
  Operand* const S_operand;
  float *const beta, *const G, *const from_start, *const to_end;
};

}  // namespace samestate::cuda
