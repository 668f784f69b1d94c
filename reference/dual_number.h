#pragma once

#include <Eigen/Core>
#include <cmath>
#include <concepts>
#include <utility>

/// Forward-mode automatic differentiation: a value and its derivative along one direction. Evaluating a
/// reference template with it differentiates that very evaluation, so a hand-written gradient is checked
/// against the code of its loss and not against a second formula.
namespace samestate {

/// a + b e with e^2 = 0. `Base` is any scalar of the references. Comparisons look at the value alone, so the
/// value decides which branch is taken, and the derivative is that of this branch.
template <class Base>
class DualNumber {
 public:
  DualNumber() : value_(0), derivative_(0) {}

  /// A constant: derivative 0.
  template <class Number>
  requires(!std::same_as<Number, DualNumber> && std::constructible_from<Base, const Number&>)
      DualNumber(const Number& value)
      : value_(value), derivative_(0) {}  // NOLINT: implicit, as from a number

  DualNumber(Base value, Base derivative) : value_(std::move(value)), derivative_(std::move(derivative)) {}

  [[nodiscard]] const Base& value() const { return value_; }
  [[nodiscard]] const Base& derivative() const { return derivative_; }

  DualNumber& operator+=(const DualNumber& y) { return *this = *this + y; }
  DualNumber& operator-=(const DualNumber& y) { return *this = *this - y; }
  DualNumber& operator*=(const DualNumber& y) { return *this = *this * y; }
  DualNumber& operator/=(const DualNumber& y) { return *this = *this / y; }

  friend DualNumber operator-(const DualNumber& x) { return {Base(-x.value_), Base(-x.derivative_)}; }
  friend DualNumber operator+(const DualNumber& x, const DualNumber& y) {
    return {Base(x.value_ + y.value_), Base(x.derivative_ + y.derivative_)};
  }
  friend DualNumber operator-(const DualNumber& x, const DualNumber& y) {
    return {Base(x.value_ - y.value_), Base(x.derivative_ - y.derivative_)};
  }
  friend DualNumber operator*(const DualNumber& x, const DualNumber& y) {
    return {Base(x.value_ * y.value_), Base(x.derivative_ * y.value_ + x.value_ * y.derivative_)};
  }
  friend DualNumber operator/(const DualNumber& x, const DualNumber& y) {
    const Base quotient = x.value_ / y.value_;
    return {quotient, Base((x.derivative_ - quotient * y.derivative_) / y.value_)};
  }

  friend bool operator==(const DualNumber& x, const DualNumber& y) { return x.value_ == y.value_; }
  friend bool operator!=(const DualNumber& x, const DualNumber& y) { return x.value_ != y.value_; }
  friend bool operator<(const DualNumber& x, const DualNumber& y) { return x.value_ < y.value_; }
  friend bool operator<=(const DualNumber& x, const DualNumber& y) { return x.value_ <= y.value_; }
  friend bool operator>(const DualNumber& x, const DualNumber& y) { return x.value_ > y.value_; }
  friend bool operator>=(const DualNumber& x, const DualNumber& y) { return x.value_ >= y.value_; }

 private:
  Base value_;
  Base derivative_;
};

/// exp, log, log1p, expm1, sqrt, sin, cos: f(a + b e) = f(a) + f'(a) b e. At the edge of a domain the
/// derivative is whatever the division gives (for sqrt at 0 it is infinite, or NaN for a constant).
template <class Base>
[[nodiscard]] DualNumber<Base> exp(const DualNumber<Base>& x) {
  using std::exp;
  const Base e = exp(x.value());
  return {e, Base(e * x.derivative())};
}

template <class Base>
[[nodiscard]] DualNumber<Base> expm1(const DualNumber<Base>& x) {
  using std::exp;
  using std::expm1;
  return {Base(expm1(x.value())), Base(exp(x.value()) * x.derivative())};
}

template <class Base>
[[nodiscard]] DualNumber<Base> log(const DualNumber<Base>& x) {
  using std::log;
  return {Base(log(x.value())), Base(x.derivative() / x.value())};
}

template <class Base>
[[nodiscard]] DualNumber<Base> log1p(const DualNumber<Base>& x) {
  using std::log1p;
  return {Base(log1p(x.value())), Base(x.derivative() / (Base(1) + x.value()))};
}

template <class Base>
[[nodiscard]] DualNumber<Base> sqrt(const DualNumber<Base>& x) {
  using std::sqrt;
  const Base root = sqrt(x.value());
  return {root, Base(x.derivative() / (Base(2) * root))};
}

template <class Base>
[[nodiscard]] DualNumber<Base> sin(const DualNumber<Base>& x) {
  using std::cos;
  using std::sin;
  return {Base(sin(x.value())), Base(cos(x.value()) * x.derivative())};
}

template <class Base>
[[nodiscard]] DualNumber<Base> cos(const DualNumber<Base>& x) {
  using std::cos;
  using std::sin;
  return {Base(cos(x.value())), Base(-(sin(x.value()) * x.derivative()))};
}

/// |x|; the derivative at 0 is taken from the right.
template <class Base>
[[nodiscard]] DualNumber<Base> abs(const DualNumber<Base>& x) {
  return x < DualNumber<Base>(0) ? -x : x;
}

}  // namespace samestate

/// The traits that Eigen needs to take a dual number as the scalar of its matrices.
template <class Base>
struct Eigen::NumTraits<samestate::DualNumber<Base>> : Eigen::GenericNumTraits<samestate::DualNumber<Base>> {
  using Real = samestate::DualNumber<Base>;
  using NonInteger = Real;
  using Nested = Real;
  using Literal = Real;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 2 * int{NumTraits<Base>::ReadCost},
    AddCost = 2 * int{NumTraits<Base>::AddCost},
    MulCost = 3 * int{NumTraits<Base>::MulCost}
  };
  static Real epsilon() { return Real(NumTraits<Base>::epsilon()); }
  static Real dummy_precision() { return Real(NumTraits<Base>::dummy_precision()); }
  static Real highest() { return Real(NumTraits<Base>::highest()); }
  static Real lowest() { return Real(NumTraits<Base>::lowest()); }
  static int digits10() { return NumTraits<Base>::digits10(); }
};
