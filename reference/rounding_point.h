#pragma once

#include <compare>
#include <source_location>
#include <string_view>

#include "reference/sequence.h"

/// Where a kernel of low precision may store a result, and which products a matrix unit takes: the references mark the
/// places, and mean nothing by it. On every exact scalar a mark is the identity; scalars of the oracles that carry an
/// error add the rounding that the contract allows there.
namespace samestate {

/// Which rounding point: where a reference marks it. Made by the compiler where the mark is called, so that no path of
/// the tree gets into a program.
class PointPlace {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a default argument std::source_location::current() becomes one.
  consteval PointPlace(const std::source_location& of) : line_(of.line()), column_(of.column()) {
    std::string_view path = of.file_name();
    // Two files of one name stand in different folders.
    const auto name = path.rfind('/');
    if (name != std::string_view::npos && name > 0) {
      const auto folder = path.rfind('/', name - 1);
      if (folder != std::string_view::npos) path.remove_prefix(folder + 1);
    }
    if (path.size() >= kLength) path.remove_prefix(path.size() - kLength + 1);
    for (std::size_t i = 0; i < path.size(); ++i) file_[i] = path[i];
  }

  /// The source and its folder.
  [[nodiscard]] std::string_view file() const { return file_; }
  [[nodiscard]] unsigned line() const { return line_; }
  [[nodiscard]] unsigned column() const { return column_; }
  friend bool operator==(const PointPlace& x, const PointPlace& y) {
    return x.line_ == y.line_ && x.column_ == y.column_ && x.file() == y.file();
  }
  friend auto operator<=>(const PointPlace&, const PointPlace&) = default;

 private:
  static constexpr std::size_t kLength = 48;
  char file_[kLength] = {};  // NOLINT(modernize-avoid-c-arrays)
  unsigned line_;
  unsigned column_;
};

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
[[nodiscard]] Scalar stored_scalar(const Scalar& x,
                                   const PointPlace& place = std::source_location::current()) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_at(place); }) {
    if (!RoundingPoint<Scalar>::rounds_at(place)) return x;
  }
  return RoundingPoint<Scalar>::stored(x);
}

/// Every element of x.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stored(Matrix<Scalar> x,
                                    const PointPlace& place = std::source_location::current()) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if constexpr (requires { RoundingPoint<Scalar>::rounds_at(place); }) {
      if (!RoundingPoint<Scalar>::rounds_at(place)) return x;
    }
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::stored(x.data()[i]);
  }
  return x;
}

/// Whether the products at `place` round their operands: those of a matrix unit that takes tf32, unless a scalar leaves the
/// place out. One place is one product (or products that a kernel makes alike): its unit rounds both operands or none.
template <class Scalar>
[[nodiscard]] bool rounds_operands(const PointPlace& place) {
  if constexpr (requires { RoundingPoint<Scalar>::rounds_operands(place); }) {
    return RoundingPoint<Scalar>::rounds_operands(place);
  } else {
    return false;
  }
}

/// x as an operand of a product at `place`; what is stored before it is marked beside.
template <class Scalar>
[[nodiscard]] Scalar operand_scalar(const Scalar& x, const PointPlace& place) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (rounds_operands<Scalar>(place)) return RoundingPoint<Scalar>::operand(x);
  }
  return x;
}

/// Every element of x.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> operand(Matrix<Scalar> x, const PointPlace& place) {
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (!rounds_operands<Scalar>(place)) return x;
    for (Index i = 0; i < x.size(); ++i) x.data()[i] = RoundingPoint<Scalar>::operand(x.data()[i]);
  }
  return x;
}

/// a b on the matrix unit: [n, m] and [m, k] -> [n, k]. Products that no mark names are made in working precision: of single
/// tokens with a state, of vectors, inside a substitution.
template <class A, class B>
[[nodiscard]] Matrix<typename A::Scalar> matrix_product(
    const Eigen::MatrixBase<A>& a, const Eigen::MatrixBase<B>& b,
    const PointPlace& place = std::source_location::current()) {
  using Scalar = typename A::Scalar;
  if constexpr (RoundingPoint<Scalar>::rounds) {
    if (rounds_operands<Scalar>(place)) {
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
