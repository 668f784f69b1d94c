#pragma once

#include "oracles/bounds/bound.h"

namespace samestate::bounds {

/// Elementwise bound on |T_kernel - T| that results from the algorithm that computes T = (I + A)^-1 (not from
/// the error of A, and not from storing T), for A strictly lower triangular [L, L] and its exact inverse T.
/// It consists of norms of the actual T, without a condition number. Reads inverse, its operands, merges and
/// accumulator. BOUNDS 6.
[[nodiscard]] Matrix<double> inverse_error(const Matrix<double>& A, const Matrix<double>& T,
                                           const Contract& contract, Mode mode);

/// The largest magnitude that an inverse by doubling sums in between, with terms taken by magnitude. With
/// repeated keys its powers of A hold binomials, which exceed the integers of a format of 24 bits from some
/// 30 tokens on and its range from some 90, although T itself is small. It is 0 for the other algorithms,
/// whose entries are those of T.
[[nodiscard]] double largest_of_inverse(const Matrix<double>& A, const Contract& contract);

/// The mean of T_kernel - T that truncating operands to tf32 causes: each operand is smaller than its value
/// by half of the largest truncation, 2^-11, on average (0.69 of that for an even spread of mantissas),
/// always in one direction, so the second moments of inverse_error do not contain it. Empty if the merges
/// round to nearest.
[[nodiscard]] Matrix<double> inverse_bias(const Matrix<double>& A, const Matrix<double>& T,
                                          const Contract& contract);

}  // namespace samestate::bounds
