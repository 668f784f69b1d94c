#pragma once

#include "optimized/cuda/units/intrinsics.cuh"

/// Parts of a row in global memory, by one access where the row is aligned for it.
namespace samestate::cuda {

/// `n` elements of a row from `column` on, zeros beyond `columns`; by one access where `vector`: rows are aligned then, and no
/// access goes half beyond.
template <class Operand, int n>
SAMESTATE_DEVICE Vector<Operand, n> load_part(const Operand* row, int column, int columns, bool vector) {
  if (vector) {
    return column < columns ? *reinterpret_cast<const Vector<Operand, n>*>(row + column)
                            : Vector<Operand, n>{};
  }
  float some[n];
  SAMESTATE_UNROLL
  for (int e = 0; e < n; ++e) some[e] = column + e < columns ? widen(row[column + e]) : 0.0F;
  return narrowed<Operand>(some);
}

template <class Operand, int n>
SAMESTATE_DEVICE void store_part(Operand* row, int column, int columns, bool vector, const float (&x)[n]) {
  if (vector) {
    if (column < columns) *reinterpret_cast<Vector<Operand, n>*>(row + column) = narrowed<Operand>(x);
    return;
  }
  SAMESTATE_UNROLL
  for (int e = 0; e < n; ++e) {
    if (column + e < columns) row[column + e] = narrow<Operand>(x[e]);
  }
}

/// 16 bytes of a row, zeros where they do not exist; there after copies_wait() and a barrier.
SAMESTATE_DEVICE void stage_piece(Bf16* to, const Bf16* from, bool exists) {
  if (exists) {
    copy_async_16(to, from);
  } else {
    *reinterpret_cast<Vector<Bf16, 8>*>(to) = {};
  }
}

/// Part `part` of four of `columns` columns of a row, of which `exist` exist, then zeros.
template <int columns>
SAMESTATE_DEVICE void stage_elements(Bf16* to, const Bf16* from, int exist, int part) {
  SAMESTATE_NO_UNROLL
  for (int c = part; c < columns; c += 4) to[c] = c < exist ? from[c] : Bf16{};
}

/// Eight elements from shared memory, of which `exist` are the row's; by one access where `vector`.
SAMESTATE_DEVICE void store_eight(Bf16* to, const Bf16* from, int exist, bool vector) {
  if (vector) {
    *reinterpret_cast<Vector<Bf16, 8>*>(to) = *reinterpret_cast<const Vector<Bf16, 8>*>(from);
    return;
  }
  SAMESTATE_NO_UNROLL
  for (int i = 0; i < 8 && i < exist; ++i) to[i] = from[i];
}

}  // namespace samestate::cuda
