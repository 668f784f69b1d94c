#pragma once

#include "reference/point.h"
#include "reference/sequence.h"

/// Marks for the places where a low-precision kernel may store a result and for the products that a matrix
/// unit computes. The references mark these points by name (reference/point.h). For every exact scalar a mark
/// is the identity; the oracles' scalars that carry an error add the rounding that the contract allows there.
namespace samestate {

/// Rounds a scalar at a rounding point. Scalars that carry an error specialise it.
template <class Scalar>
struct RoundingPoint {
  static constexpr bool rounds = false;
  static Scalar stored(const Scalar& x) { return x; }
  static Scalar shift(const Scalar& x) { return x; }
  /// The value that is added up when products take `kept`, the stored value of x: kernels add either.
  static Scalar summed(const Scalar& x, const Scalar&) { return x; }
  /// True if a softmax stores its weights before dividing by their sum, as kernels do that divide last.
  static bool divides_last() { return false; }
};

/// x, which a kernel may keep in its operand format from here on (a projection, a probability, an
/// activation). A scalar may leave out single points, as a kernel may.
template <class Scalar>
[[nodiscard]] Scalar stored_scalar(const Scalar& x, Point point) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_at(point); }) {
    if (!RoundingPoint<Scalar>::rounds_at(point)) return x;
  }
  return RoundingPoint<Scalar>::stored(x);
}

/// Every element of x.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stored(Matrix<Scalar> x, Point point) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if constexpr (requires { RoundingPoint<Scalar>::rounds_at(point); }) {
      if (!RoundingPoint<Scalar>::rounds_at(point)) return x;
    }
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::stored(x.data()[i]);
  }
  return x;
}

/// x, of which a kernel may keep `factor x` at the point: what it keeps, over the factor. x itself, without the rounding
/// of a division, where nothing is kept.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stored_with_factor(const Matrix<Scalar>& x, const Scalar& factor, Point point) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_at(point); }) {
    if (RoundingPoint<Scalar>::rounds_at(point) && factor != Scalar(0))
      return stored<Scalar>(factor * x, point) / factor;
  }
  return x;
}

/// True if the products at `point` round their operands: those on a matrix unit that takes tf32, unless the
/// scalar leaves the point out. One point is one product (or products that a kernel treats alike): its unit
/// rounds both operands or neither.
template <class Scalar>
[[nodiscard]] bool rounds_operands(Point point) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_operands(point); }) {
    return RoundingPoint<Scalar>::rounds_operands(point);
  } else {
    return false;
  }
}

/// x as an operand of a product at `point`; storing x before that is marked separately.
template <class Scalar>
[[nodiscard]] Scalar operand_scalar(const Scalar& x, Point point) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (rounds_operands<Scalar>(point)) return RoundingPoint<Scalar>::operand(x);
  }
  return x;
}

/// Every element of x.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> operand(Matrix<Scalar> x, Point point) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (!rounds_operands<Scalar>(point)) return x;
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::operand(x.data()[i]);
  }
  return x;
}

/// a b on the matrix unit: [n, m] and [m, k] -> [n, k]. Products without a mark are computed in working
/// precision: products of single tokens with a state, of vectors, and inside a substitution.
template <class A, class B>
[[nodiscard]] Matrix<typename A::Scalar> matrix_product(const Eigen::MatrixBase<A>& a,
                                                        const Eigen::MatrixBase<B>& b, Point point) {
  using Scalar = typename A::Scalar;
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (rounds_operands<Scalar>(point)) {
      Matrix<Scalar> x = a, y = b;
      for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::operand(x.data()[i]);
      for (Index i = 0; i < y.size(); ++i) y.data()[i] = RoundingPoint<Scalar>::operand(y.data()[i]);
      return x * y;
    }
  }
  return a * b;
}

/// maximum <- max(maximum, score); returns true if it changed. A scalar that carries an error keeps
/// everything that a kernel may hold as the maximum: if either of two scores may be the larger one, it keeps
/// both.
template <class Scalar>
bool take_larger(Scalar& maximum, const Scalar& score) {
  if constexpr (requires { RoundingPoint<Scalar>::take_larger(maximum, score); }) {
    return RoundingPoint<Scalar>::take_larger(maximum, score);
  } else {
    if (!(maximum < score)) return false;
    maximum = score;
    return true;
  }
}

/// x as a factor of many products: a scalar that evaluates lazily does so once.
template <class Scalar>
[[nodiscard]] Scalar repeated_factor(const Scalar& x) {
  if constexpr (requires { RoundingPoint<Scalar>::factor(x); }) {
    return RoundingPoint<Scalar>::factor(x);
  } else {
    return x;
  }
}

/// The maximum as a softmax subtracts it from its scores. It cancels: the probabilities are the same whatever
/// number is subtracted, so they do not inherit the maximum's own error.
template <class Scalar>
[[nodiscard]] Scalar softmax_shift(const Scalar& maximum) {
  return RoundingPoint<Scalar>::shift(maximum);
}

}  // namespace samestate
