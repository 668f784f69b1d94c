#pragma once

#include "oracles/bounds/bound.h"

/// The decays of one chunk and their errors (BOUNDS 5, "Decay").
namespace samestate::bounds {

/// Relative error of the fp32 exponential according to the model; exp(0) = 1 is exact.
[[nodiscard]] double exponential_error(double x, Exponential exponential, const ExponentialModel& model);

/// The part of it that has the same sign over a range of arguments.
[[nodiscard]] double exponential_bias(double x, Exponential exponential, const ExponentialModel& model);

/// |alpha_kernel - alpha| beyond the relative error: fp32 loses a value below its normal range, entirely in
/// the worst case. It is 0 for values from 2^-124, which the relative error cannot carry below 2^-126.
[[nodiscard]] double flush_error(double value);

struct ChunkDecay {
  Matrix<double> between;        ///< [L, L] E_ij = exp(G_i - G_j) for j <= i, else 0
  Matrix<double> between_error;  ///< [L, L] absolute
  Vector<double> from_start;     ///< [L] exp(G_i)
  Vector<double> start_error;    ///< [L] absolute
  Vector<double> start_bias;     ///< [L] absolute: the exponential's bias alone
  Vector<double>
      end_bias;  ///< [L] the same for exp(G_L - G_j), and the effect on all of them of another sum for G_L
  Vector<double>
      end_error;  ///< [L] absolute, for exp(G_L - G_j): the last row of between_error, and the effect of
                  ///< another sum
};

/// The decays of one chunk with gates g. The error of a difference G_i - G_j is
///   det: u32 max(sum_{m=j+1..i} |G_m|, |G_i| + |G_j|) (sequential scan, where each sum is made from its rounded
///   predecessor, or exactly and rounded once) or u32 ceil(log2 L) (|G_i| + |G_j|) (tree), as `scan` says;
///   prob, semi: a scalar twin runs the fp32 scan both ways; twice the larger actual error, plus the quadrature
///   u32 / sqrt 3 sqrt(max(sum G_m^2, G_i^2 + G_j^2)). (Quadrature alone fails for constant g, whose roundings repeat.)
/// If log2 e multiplies each g first, the gates of the scalar twin are those products, and their roundings
/// are the slope of the exponential; if it multiplies the sums, each end is rounded once more: + u32 (|G_i| +
/// |G_j|), in quadrature in prob and semi.
/// The decay to the chunk's end may use a separate sum for G_L, since fp32 sums come in any order: a plain
/// sum beside the scan. All exp(G_L - G_j) are then off by one factor, 1 + delta, with |delta| at most the
/// errors of both sums of all g (BOUNDS 5.4).
/// Then eps = expm1(error + u32 |G_i - G_j| + exponential_error), and the error of E is eps E +
/// flush_error(E).
[[nodiscard]] ChunkDecay chunk_decay(const Vector<double>& g, Exponential exponential, Scan scan, Mode mode,
                                     const ExponentialModel& model, Log2e log2e = Log2e::difference);

}  // namespace samestate::bounds
