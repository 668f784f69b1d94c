#pragma once

#include "oracles/bounds/bound.h"

/// Helpers of the bounds of both forms, which readers of the bounds do not need.
namespace samestate::bounds {

/// A hard reset may be written as any g from -128 to -infinity. e^-128 = 2.6e-56 lies below the smallest fp32
/// subnormal (2^-149 = 1.4e-45), so alpha is 0 in fp32 either way, and any exact alpha <= e^-128 differs from
/// 0 by less than the flush term min(alpha, 2^-126) that every decay carries. Kernels may replace such a g by
/// any value between -128 and itself before they sum it, but by none below -1024 (optimized/kernel.h): the
/// error of a sum grows with the magnitude of its terms, so the worse of the two ends covers everything in
/// between. Unclamped, g = -1e38 would make u32 |G| infinite.
inline constexpr double kDecayFloor = -128.0;
inline constexpr double kDeepestFloor = -1024.0;

[[nodiscard]] inline double clamped(double g) { return g < kDecayFloor ? kDecayFloor : g; }

/// Throws Error if shapes disagree: g, beta [T]; q, k [T, dk]; v [T, dv]; initial state [dk, dv]; carried
/// error dk x dk.
void check_shapes(const Sequence<double>& sequence, const StateError* carried_in);

/// The error of the initial state: the carried-in one, or zero. In det the coherent part is added to sigma
/// (F2).
[[nodiscard]] StateError starting_error(const StateError* carried_in, Mode mode, Index key_width);

/// A bound with room for every row; the caller fills in the exact output `o`.
[[nodiscard]] Bound empty_bound(const Sequence<double>& sequence);

/// Fills in what follows from Bp, Bc, o and carry: R, B, state, state_rows, largest (with o) and vacuous.
void finish(Bound& bound, Format output);

/// Row 2-norms.
[[nodiscard]] inline Vector<double> row_norms(const Matrix<double>& x) { return x.rowwise().norm(); }

/// sqrt(Sigma_ll): error of row l of the state (F3).
[[nodiscard]] Vector<double> diagonal_roots(const Matrix<double>& sigma);

/// sqrt(r_i^T Sigma r_i) for the rows r_i of R (F3).
[[nodiscard]] Vector<double> quadratic(const Matrix<double>& r, const Matrix<double>& sigma);

/// The format whose rounding error counts at a point where the default, fp32, adds nothing to the working
/// precision.
[[nodiscard]] inline Format below_fp32(Format format) {
  return format == Format::fp32 ? Format::none : format;
}

}  // namespace samestate::bounds
