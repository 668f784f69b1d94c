#pragma once

#include "oracles/bounds/sampled_model.h"
#include "reference/rounding_point.h"

/// A double that only the rounding points of the references touch. In contracts of 16 bit the roundings between them
/// are 2^-16 of these and are bounded apart, so that a sample costs little more than the reference itself.
namespace samestate {

class Stored {
 public:
  Stored() = default;
  Stored(double x) : value_(x) {}  // NOLINT: a constant of the equations is exact
  [[nodiscard]] double value() const { return value_; }

  friend Stored operator-(Stored x) { return {-x.value_}; }
  friend Stored operator+(Stored x, Stored y) { return {x.value_ + y.value_}; }
  friend Stored operator-(Stored x, Stored y) { return {x.value_ - y.value_}; }
  friend Stored operator*(Stored x, Stored y) { return {x.value_ * y.value_}; }
  friend Stored operator/(Stored x, Stored y) { return {x.value_ / y.value_}; }
  Stored& operator+=(Stored y) { return *this = *this + y; }
  Stored& operator-=(Stored y) { return *this = *this - y; }
  Stored& operator*=(Stored y) { return *this = *this * y; }
  Stored& operator/=(Stored y) { return *this = *this / y; }
  friend bool operator<(Stored x, Stored y) { return x.value_ < y.value_; }
  friend bool operator>(Stored x, Stored y) { return x.value_ > y.value_; }
  friend bool operator<=(Stored x, Stored y) { return x.value_ <= y.value_; }
  friend bool operator>=(Stored x, Stored y) { return x.value_ >= y.value_; }
  friend bool operator==(Stored x, Stored y) { return x.value_ == y.value_; }
  friend bool operator!=(Stored x, Stored y) { return x.value_ != y.value_; }

 private:
  double value_ = 0.0;
};

inline Stored abs(Stored x) { return {std::abs(x.value())}; }
inline Stored sqrt(Stored x) { return {std::sqrt(x.value())}; }
inline Stored exp(Stored x) { return {std::exp(x.value())}; }
inline Stored expm1(Stored x) { return {std::expm1(x.value())}; }
inline Stored log(Stored x) { return {std::log(x.value())}; }
inline Stored log1p(Stored x) { return {std::log1p(x.value())}; }
inline Stored sin(Stored x) { return {std::sin(x.value())}; }
inline Stored cos(Stored x) { return {std::cos(x.value())}; }

template <>
struct RoundingPoint<Stored> {
  static constexpr bool rounds = true;
  static Stored stored(Stored x) { return {kept_in(x.value(), detail::sampling().model.kept)}; }
  static Stored shift(Stored x) { return x; }
  static Stored summed(Stored x, Stored kept) { return detail::sampling().model.sums_stored ? kept : x; }
  static bool divides_last() { return detail::sampling().model.divides_last; }
  static bool rounds_at(const PointPlace& place) { return model_rounds_at(place); }
};

}  // namespace samestate

template <>
struct Eigen::NumTraits<samestate::Stored> : Eigen::GenericNumTraits<samestate::Stored> {
  using Real = samestate::Stored;
  using NonInteger = samestate::Stored;
  using Nested = samestate::Stored;
  using Literal = double;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 1,
    AddCost = 1,
    MulCost = 1
  };
};
