#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <random>

#include "reference/sequence.h"

/// Random data and comparison for the identities. The same seed gives the same float64 values in every
/// scalar.
namespace samestate {

/// A stream of values; each call draws the next ones.
template <class Scalar>
class IdentityDraw {
 public:
  explicit IdentityDraw(std::uint64_t seed) : engine_(seed) {}

  /// Uniform in [low, high).
  double uniform(double low = 0.0, double high = 1.0) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }
  /// Standard normal entries times `scale`.
  Matrix<Scalar> normal(Index rows, Index columns, double scale = 1.0) {
    Matrix<Scalar> x(rows, columns);
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = Scalar(scale * normal());
    return x;
  }
  Vector<Scalar> normal_vector(Index size, double scale = 1.0) {
    Vector<Scalar> x(size);
    for (Index i = 0; i < size; ++i) x(i) = Scalar(scale * normal());
    return x;
  }
  Vector<Scalar> uniform_vector(Index size, double low = 0.0, double high = 1.0) {
    Vector<Scalar> x(size);
    for (Index i = 0; i < size; ++i) x(i) = Scalar(uniform(low, high));
    return x;
  }

 private:
  std::mt19937_64 engine_;
};

/// max |a - b| / max |b|, or max |a - b| if b is all zero; infinity for different shapes or a NaN. The two
/// are matrices or vectors with the same scalar.
template <class A, class B>
[[nodiscard]] double relative_difference(const A& a, const B& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols()) return std::numeric_limits<double>::infinity();
  using Scalar = typename A::Scalar;
  using std::abs;
  Scalar difference(0);
  Scalar size(0);
  for (Index i = 0; i < a.rows(); ++i) {
    for (Index j = 0; j < a.cols(); ++j) {
      const Scalar d = abs(Scalar(a(i, j) - b(i, j)));
      if (!(d <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
      if (d > difference) difference = d;
      const Scalar s = abs(Scalar(b(i, j)));
      if (s > size) size = s;
    }
  }
  return static_cast<double>(size > 0 ? Scalar(difference / size) : difference);
}

}  // namespace samestate
