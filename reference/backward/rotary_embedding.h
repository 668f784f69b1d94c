#pragma once

#include "reference/rotary_embedding.h"

namespace samestate {

/// The gradient of x for y = rotate(x, tables, pairs, heads): dy turned back by the same angles, since a
/// rotation is orthogonal; columns that are not rotated pass. Tables are constants. dy: [T, heads * d] ->
/// the same. Throws Error as rotate does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rotate_backward(const Matrix<Scalar>& dy, const RotaryTables<Scalar>& tables,
                                             RotaryPairs pairs = RotaryPairs::halves, Index heads = 1) {
  return rotate(dy, RotaryTables<Scalar>{tables.cos, -tables.sin}, pairs, heads);
}

}  // namespace samestate
