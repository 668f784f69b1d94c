#pragma once

#include "oracles/bounds/bound.h"

namespace samestate::bounds {

/// Elementwise bound on |T_kernel - T| from the algorithm that computes T = (I + A)^-1 (not from the error of
/// A, not from storing T), for A strictly lower triangular [L, L] and its exact inverse T. It is made of
/// norms of the actual T, with no condition number. Reads inverse, its operands, merges and accumulator. BOUNDS 6.
[[nodiscard]] Matrix<double> inverse_error(const Matrix<double>& A, const Matrix<double>& T,
                                           const Contract& contract, Mode mode);

/// The largest that an inverse by doubling sums on the way, terms by their size: of repeated keys its powers of A hold binomials,
/// beyond the integers of a format of 24 bits from some 30 tokens on and beyond its range from some 90, where T itself is small. 0 of the other
/// ways, whose entries are T's.
[[nodiscard]] double largest_of_inverse(const Matrix<double>& A, const Contract& contract);

/// The mean of T_kernel - T that operands cut off to tf32 make: each is smaller than its value by half of the largest
/// truncation, 2^-11, on average (0.69 of that for an even spread of mantissas), all in one direction, so that the
/// second moments of inverse_error leave it out. Empty where the merges round to nearest.
[[nodiscard]] Matrix<double> inverse_bias(const Matrix<double>& A, const Matrix<double>& T,
                                          const Contract& contract);

}  // namespace samestate::bounds
