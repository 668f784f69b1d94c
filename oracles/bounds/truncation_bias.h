#pragma once

#include "oracles/path.h"
#include "reference/contract.h"

namespace samestate {

/// What operands that are cut off to tf32 take from a head in the mean.
struct TruncationBias {
  Vector<double> rows;  ///< [T] of o, 2-norms
  double state = 0.0;   ///< of the final state, Frobenius
};

/// Cutting off makes every operand shorter, by 2^-11 of itself in the mean and at most, and always in its direction:
/// what the cut operands of one rounding point do to the outputs adds up over products and tokens, where the rest of
/// their errors averages out. Each point by itself is made so much shorter in a float64 evaluation of the chunked form,
/// and the distances to the exact one are added, since how much shorter it is differs from point to point (0.69 of it
/// for an even spread of mantissas). Zero for contracts without such a point, and in the recurrent form, which feeds no
/// matrix unit. Derived for contracts "tf32_truncated", whose statistical bound takes errors to be centred.
[[nodiscard]] TruncationBias truncation_bias(const Sequence<double>& x, const Path& path,
                                             const Contract& contract, bool delta);

}  // namespace samestate
