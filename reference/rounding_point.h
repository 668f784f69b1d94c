#pragma once

#include <source_location>

#include "reference/sequence.h"

/// Where a kernel of low precision may store a result: the references mark the place, and mean nothing by it.
/// On every exact scalar it is the identity; the running-error scalar of the oracles adds the rounding that
/// the contract allows there.
namespace samestate {

/// Which rounding point: where a reference marks it.
using PointPlace = std::source_location;

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
/// scalar may leave single places out, as a kernel may.
template <class Scalar>
[[nodiscard]] Scalar stored_scalar(const Scalar& x, const PointPlace& place = PointPlace::current()) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_at(place); }) {
    if (!RoundingPoint<Scalar>::rounds_at(place)) return x;
  }
  return RoundingPoint<Scalar>::stored(x);
}

/// Every element of x.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stored(Matrix<Scalar> x, const PointPlace& place = PointPlace::current()) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if constexpr (requires { RoundingPoint<Scalar>::rounds_at(place); }) {
      if (!RoundingPoint<Scalar>::rounds_at(place)) return x;
    }
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::stored(x.data()[i]);
  }
  return x;
}

/// The maximum as what a softmax subtracts from its scores. It cancels: whatever number is subtracted, the
/// probabilities are the same, so the maximum's own error is none of theirs.
template <class Scalar>
[[nodiscard]] Scalar softmax_shift(const Scalar& maximum) {
  return RoundingPoint<Scalar>::shift(maximum);
}

}  // namespace samestate
