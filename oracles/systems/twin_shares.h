#pragma once

#include <string>

#include "oracles/systems/operator_twin.h"

/// How much of a kernel's errors does not come from the twin's roundings, row by row, and how many rows are
/// independent evidence of it.
namespace samestate {

/// Errors of this relative size come from fp32 itself and not from 16 bits.
inline constexpr double kErrorsOfFp32 = 0x1p-14;
/// This near to the middle between two numbers of a format, relatively, fp32 may write either.
inline constexpr double kTieOfFp32 = 0x1p-22;

/// x as the kernel wrote it: in the output's format if all that it wrote are numbers of that format, else in
/// fp32 (states). The nearer of the two formats would be the wrong choice: for a state in which one rounding
/// fell the other way, that may be either.
[[nodiscard]] Matrix<double> written(const Matrix<double>& x, const Matrix<double>& kernel, Format format);
/// The same for a twin, except that each element within kTieOfFp32 of a tie of a 16-bit format is taken from
/// the kernel. A mean of two values under equal weights is a tie in all rows and heads that have it, and a
/// kernel that multiplies by a reciprocal turns all of them.
[[nodiscard]] Matrix<double> written_beside(const Matrix<double>& twin, const Matrix<double>& kernel,
                                            Format format);

/// Smaller numbers have fewer bits than the format, and so do intermediate ones: so few bits do not show
/// which points a kernel has, and one that falls the other way is a large part of all.
[[nodiscard]] double least_normal(Format format);

/// The share of roundings that a kernel does not have in common with a twin, by row of one output:
///   rho_r = |x_r - t_r|^2 / (|x_r - y_r|^2 + |t_r - y_r|^2),
/// which is 0 if they are the same, near 1 for independent ones, and v / (2 s + v) for one more of variance v
/// in addition to s. -1 if nothing is rounded.
[[nodiscard]] Vector<double> unshared(const Matrix<double>& kernel, const Matrix<double>& twin,
                                      const Matrix<double>& exact);

/// For the rows that count, with rows that are not independent counted once: their number, the mean of
/// unshared(), and the row with the largest.
struct Share {
  double mean = 0.0;
  double most = 0.0;
  Index rows = 0;
  double elements =
      0.0;  ///< the number of these rows weighted by their errors: one large error beside tiny ones counts as
            ///< one
  Index worst = -1;
};
/// The share of output `name`, which is `x` for the kernel and `t` for a twin. Equal rows count once, and so
/// do rows of equal tokens: a rounding of a token falls one way or the other in all of them.
[[nodiscard]] Share share_of(const TwinSubject& of, const std::string& name, const Matrix<double>& x,
                             const Matrix<double>& t);

/// The number of directions among the twin's errors of a carried state, as in TwinRows::directions of the
/// family: one rounding before it is an outer product, which all rows of its matrix show. Infinite for other
/// outputs, whose errors are independent.
[[nodiscard]] double directions_of(const TwinSubject& of, const std::string& name, const Matrix<double>& t);

}  // namespace samestate
