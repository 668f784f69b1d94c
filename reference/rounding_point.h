#pragma once

#include "reference/point.h"
#include "reference/sequence.h"

/// Where a kernel of low precision may store a result, and which products a matrix unit takes: the references mark the
/// points, each by its name (reference/point.h). On every exact scalar a mark is the identity; scalars of the oracles that
/// carry an error add the rounding that the contract allows there.
namespace samestate {

/// How a scalar passes a rounding point. Specialised by scalars that carry an error.
template <class Scalar>
struct RoundingPoint {
  static constexpr bool rounds = false;
  static Scalar stored(const Scalar& x) { return x; }
  static Scalar shift(const Scalar& x) { return x; }
  /// What is added up of an x whose products take `kept`, what was stored of it: kernels do either.
  static Scalar summed(const Scalar& x, const Scalar&) { return x; }
  /// A softmax stores its weights before they are divided by their sum, as kernels do that divide last.
  static bool divides_last() { return false; }
};

/// x, which a kernel may keep in its operand format from here on (a projection, a probability, an activation); a
/// scalar may leave single points out, as a kernel may.
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

/// Returns true if the products at `point` round their operands: those of a matrix unit that takes tf32, unless a scalar leaves the
/// point out. One point is one product (or products that a kernel makes alike): its unit rounds both operands or none.
template <class Scalar>
[[nodiscard]] bool rounds_operands(Point point) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_operands(point); }) {
    return RoundingPoint<Scalar>::rounds_operands(point);
  } else {
    return false;
  }
}

/// x as an operand of a product at `point`; what is stored before it is marked beside.
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

/// a b on the matrix unit: [n, m] and [m, k] -> [n, k]. Products that no mark names are made in working precision: of single
/// tokens with a state, of vectors, inside a substitution.
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

/// maximum <- max(maximum, score); whether it changed. A scalar that carries an error keeps all that a kernel may have
/// for it: of two scores of which either may be the larger one, both.
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

/// x as a factor of many products: a scalar that works out its value whenever it is asked does so once.
template <class Scalar>
[[nodiscard]] Scalar repeated_factor(const Scalar& x) {
  if constexpr (requires { RoundingPoint<Scalar>::factor(x); }) {
    return RoundingPoint<Scalar>::factor(x);
  } else {
    return x;
  }
}

/// The maximum as what a softmax subtracts from its scores. It cancels: whatever number is subtracted, the
/// probabilities are the same, so the maximum's own error is none of theirs.
template <class Scalar>
[[nodiscard]] Scalar softmax_shift(const Scalar& maximum) {
  return RoundingPoint<Scalar>::shift(maximum);
}

}  // namespace samestate
