#pragma once

#include <string>

#include "oracles/systems/operator_twin.h"

/// How much of a kernel's errors is not the twin's, row by row, and how many rows say so on their own.
namespace samestate {

/// Errors of this size, relative, are fp32's own and none of 16 bit.
inline constexpr double kErrorsOfFp32 = 0x1p-14;
/// So near to the middle between two numbers of a format, relative, fp32 may write either.
inline constexpr double kTieOfFp32 = 0x1p-22;

/// x as the kernel wrote it: in the output's format where all that it wrote are numbers of that, else in fp32 (states).
/// Not in the nearer of both: of a state where one rounding fell the other way, that may be either.
[[nodiscard]] Matrix<double> written(const Matrix<double>& x, const Matrix<double>& kernel, Format format);
/// The same of a twin, each element that lies kTieOfFp32 or less from a tie of a 16-bit format as the kernel has it. A mean of two
/// values under equal weights is a tie in all rows and heads that have it, and a kernel that multiplies by a reciprocal turns all.
[[nodiscard]] Matrix<double> written_beside(const Matrix<double>& twin, const Matrix<double>& kernel,
                                            Format format);

/// Numbers below have fewer bits than the format, those on the way to them too: which of the points a kernel has is not seen
/// in so few, and one that falls the other way is a large part of all.
[[nodiscard]] double least_normal(Format format);

/// The share of roundings that a kernel does not have in common with a twin, by row of one output:
///   rho_r = |x_r - t_r|^2 / (|x_r - y_r|^2 + |t_r - y_r|^2),
/// 0: the same; near 1: independent ones; v / (2 s + v): one more of variance v beside s. -1 where nothing is rounded.
[[nodiscard]] Vector<double> unshared(const Matrix<double>& kernel, const Matrix<double>& twin,
                                      const Matrix<double>& exact);

/// Of the rows that count, those of one witness being one: their number, the mean of unshared(), and the row where it is largest.
struct Share {
  double mean = 0.0;
  double most = 0.0;
  Index rows = 0;
  double elements =
      0.0;  ///< of these rows, as far as they carry their errors: one large one beside tiny ones is one
  Index worst = -1;
};
/// Of output `name`, which is `x` of the kernel and `t` of a twin. Equal rows are one witness, and so are rows of equal tokens: what
/// is rounded of a token falls one way or the other in all of them.
[[nodiscard]] Share share_of(const TwinSubject& of, const std::string& name, const Matrix<double>& x,
                             const Matrix<double>& t);

/// Directions that the twin's errors of a carried state share out among, as TwinRows::directions of the family: one
/// rounding on the way to it is an outer product, which all rows of its matrix show. Infinite for other outputs, whose
/// errors are their own.
[[nodiscard]] double directions_of(const TwinSubject& of, const std::string& name, const Matrix<double>& t);

}  // namespace samestate
