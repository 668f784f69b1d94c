#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/layout.cuh"

/// The data that a block of the second launch reads, and where they are.
namespace samestate::cuda::simt {

/// Four columns of every `at_once`-th row from `first` on, `width` of them there.
SAMESTATE_DEVICE void load_rows_of(float* cell, int stride, const float* source, std::int64_t step, int first,
                                   int at_once, int rows, int width, bool aligned) {
  SAMESTATE_NO_UNROLL
  for (int row = first; row < kChunk; row += at_once, cell += at_once * stride, source += at_once * step) {
    if (aligned && row < rows && width >= 4) {
      copy_async_16(cell, source);
    } else {
      SAMESTATE_UNROLL
      for (int e = 0; e < 4; ++e) cell[e] = row < rows && e < width ? source[e] : 0.0F;
    }
  }
}

/// Threads that copy together.
struct Team {
  int index = thread_index(), size = kThreads;
};

/// Rows [0, rows) of `width` values, `step` apart, zero up to 64 rows of `columns`; there after copy_wait() and a barrier.
template <int columns>
SAMESTATE_DEVICE void fetch_rows(const Team& team, float* to, const float* from, std::int64_t step, int rows,
                                 int width) {
  constexpr int kQuads = columns / 4;
  const int at_once = team.size / kQuads;  // rows
  constexpr int kStride = columns + 4;
  const int column = team.index % kQuads * 4;
  const int first = team.index / kQuads;
  if (step % 4 != 0 || width % 4 != 0 || rows < kChunk || column >= width) {
    const bool aligned = step % 4 == 0 && width % 4 == 0;
    return load_rows_of(to + first * kStride + column, kStride, from + first * step + column, step, first,
                        at_once, rows, width - column, aligned);
  }
  float* cell = to + first * kStride + column;
  const float* source = from + first * step + column;
  SAMESTATE_UNROLL
  for (int i = 0; i < kChunk / at_once; ++i, cell += at_once * kStride, source += at_once * step)
    copy_async_16(cell, source);
}

/// 32 value columns of one head of one sequence: a block of the second launch.
struct Chain {
  const Work* call = nullptr;
  std::int64_t head = 0, key_head = 0;
  std::int64_t first = 0, end = 0;  ///< tokens of the sequence
  std::int64_t slot = 0;            ///< slot of its first chunk
  std::int64_t state = 0;           ///< where the block's columns of the states begin
  int column = 0;                   ///< the first of the block's
  int chunks = 0;

  Chain() = default;
  SAMESTATE_DEVICE Chain(const Work& c, std::int64_t block) : call(&c) {
    const Parameters<float>& p = c.p;
    column = static_cast<int>(block % c.value_tiles()) * kColumns;
    head = block / c.value_tiles() % p.Hv;
    key_head = c.key_head(head);
    const std::int64_t n = block / c.value_tiles() / p.Hv;
    first = c.first_token(n), end = c.first_token(n + 1);
    slot = c.first_slot(n);
    state = (n * p.Hv + head) * p.dk * p.dv + column;
    chunks = static_cast<int>((end - first + p.chunk - 1) / p.chunk);
  }

  /// Returns the first token of chunk m.
  SAMESTATE_DEVICE std::int64_t token(int m) const {
    return first + static_cast<std::int64_t>(m) * call->p.chunk;
  }
  SAMESTATE_DEVICE int tokens(int m) const {
    const std::int64_t left = end - token(m);
    return static_cast<int>(left < call->p.chunk ? left : call->p.chunk);
  }
  SAMESTATE_DEVICE const Prepared& prepared(int m) const {
    return call->prepared[(slot + m) * call->p.Hv + head];
  }
};

/// Rows of q or k of chunk m.
SAMESTATE_DEVICE void fetch_keys(const Chain& at, const Team& team, float* to, const float* rows, int m) {
  const Parameters<float>& p = at.call->p;
  fetch_rows<kKeys>(team, to, rows + (at.token(m) * p.Hk + at.key_head) * p.dk, p.Hk * p.dk, at.tokens(m),
                    p.dk);
}
SAMESTATE_DEVICE void fetch_values(const Chain& at, const Team& team, float* to, int m) {
  const Parameters<float>& p = at.call->p;
  fetch_rows<kColumns>(team, to, p.v + (at.token(m) * p.Hv + at.head) * p.dv + at.column, p.Hv * p.dv,
                       at.tokens(m), p.dv - at.column);
}
SAMESTATE_DEVICE void fetch_gates(const Chain& at, const Team& team, float* to, int m) {
  SAMESTATE_UNROLL
  for (int i = team.index; i < Prepared::kGates / 4; i += team.size)
    copy_async_16(to + 4 * i, at.prepared(m).beta + 4 * i);
}
}  // namespace samestate::cuda::simt
