#pragma once

#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// The mean error that operands truncated to tf32 cause in a head.
struct TruncationBias {
  Vector<double> rows;  ///< [T] for o, 2-norms
  double state = 0.0;   ///< for the final state, Frobenius norm
};

/// Truncation makes every operand smaller, by 2^-11 of itself on average, and always in its own direction:
/// the effects of the truncated operands of one rounding point add up over products and tokens, whereas the
/// rest of their errors averages out. A float64 evaluation of the chunked form shrinks each point by that
/// much, one at a time, and the distances to the exact result are added, since the amount differs from point
/// to point (0.69 of it for an even spread of mantissas). Zero for contracts without such a point, and in the
/// recurrent form, which uses no matrix unit. Derived for contracts "tf32_truncated", because their
/// statistical bound assumes centred errors.
[[nodiscard]] TruncationBias truncation_bias(const Sequence<double>& x, const Path& path,
                                             const Contract& contract, bool delta);

}  // namespace samestate
