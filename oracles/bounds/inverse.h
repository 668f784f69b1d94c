#pragma once

#include "oracles/bounds/bound.h"

namespace samestate::bounds {

/// Elementwise bound on |T_kernel - T| from the algorithm that computes T = (I + A)^-1 (not from the error of
/// A, not from storing T), for A strictly lower triangular [L, L] and its exact inverse T. It is made of
/// norms of the actual T, with no condition number. BOUNDS 6.
[[nodiscard]] Matrix<double> inverse_error(const Matrix<double>& A, const Matrix<double>& T, Inverse inverse,
                                           Format operand, Accumulator accumulator, Mode mode);

}  // namespace samestate::bounds
