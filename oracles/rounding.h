#pragma once

#include "reference/contract.h"

/// The formats as the oracles see them: constants and one rounding. Kernels round with code of their own
/// (optimized/cpu/rounding.h), so that a mistake here and a mistake there do not agree.
namespace samestate {

/// Largest relative error of one rounding: 2^-53 fp64, 2^-24 fp32, 2^-11 tf32 and fp16, 2^-10 tf32_truncated
/// (it drops bits), 2^-8 bf16, 0 none. BOUNDS 1.
[[nodiscard]] double unit_roundoff(Format format);

/// Largest absolute error of one rounding below the normal range: half the spacing of the subnormals, the
/// whole spacing for tf32_truncated; 0 for fp64 and none (never reached). BOUNDS 1, `eta`.
[[nodiscard]] double subnormal_error(Format format);

/// Largest finite value; infinity for none.
[[nodiscard]] double largest_finite(Format format);

/// `x` to the nearest value of `format`, ties to even, in one step from double; tf32_truncated drops the low
/// bits instead. Keeps subnormals and the sign of zero; beyond the range gives infinity (for tf32_truncated
/// from 2^128, where its fp32 operand no longer exists). fp64 and none return x; NaN stays NaN.
[[nodiscard]] double round_to(double x, Format format);

/// The same for fp32 data: fp32, fp64 and none return x.
[[nodiscard]] float round_to(float x, Format format);

/// Half the spacing of `format` at |x|, subnormals included: the hard bound on rounding a value of magnitude
/// up to |x| (for tf32_truncated the whole spacing). 0 for none; infinity or NaN where x is. BOUNDS 7,
/// `half_ulp_out`.
[[nodiscard]] double half_ulp(double x, Format format);

}  // namespace samestate
