#pragma once

#include "oracles/bounds/bound.h"

/// The decays of one chunk and their errors (BOUNDS 5, "Decay").
namespace samestate::bounds {

/// Relative error of the fp32 exponential: 2 u32 (expf within one ulp), or 3 u32 + 1.5 |x| u32
/// (ex2.approx(x log2 e), product rounded); exp(0) = 1 is exact.
[[nodiscard]] double exponential_error(double x, Exponential exponential);

/// |alpha_kernel - alpha| beyond the relative error: fp32 loses a value below its normal range, all of it at
/// worst. 0 for values from 2^-124, where the relative error cannot carry them below 2^-126.
[[nodiscard]] double flush_error(double value);

struct ChunkDecay {
  Matrix<double> between;        ///< [L, L] E_ij = exp(G_i - G_j) for j <= i, else 0
  Matrix<double> between_error;  ///< [L, L] absolute
  Vector<double> from_start;     ///< [L] exp(G_i)
  Vector<double> start_error;    ///< [L] absolute
};

/// Of the gates g of one chunk. The error of a difference G_i - G_j is
///   det: u32 sum_{m=j+1..i} |G_m| (sequential scan) or u32 ceil(log2 L) (|G_i| + |G_j|) (tree), as `scan`
///   says; prob, semi: a scalar twin runs the fp32 scan both ways; twice the larger actual error, plus the
///   quadrature u32 / sqrt 3 sqrt(sum G_m^2). (Quadrature alone fails for constant g, whose roundings
///   repeat.)
/// then eps = expm1(error + u32 |G_i - G_j| + exponential_error), error of E = eps E + flush_error(E).
[[nodiscard]] ChunkDecay chunk_decay(const Vector<double>& g, Exponential exponential, Scan scan, Mode mode);

}  // namespace samestate::bounds
