#pragma once

#include "oracles/bounds/running_error.h"
#include "oracles/bounds/sampled_model.h"
#include "oracles/limits.h"
#include "reference/activations.h"

/// A scalar whose roundings of working precision are drawn too: sums in any order, functions within their
/// units. The errors are those of bounds_operators.md 2: a sum of n terms, with value S and sum of squares Q,
/// has the error
///   u sqrt((n - 1) (S^2 / 3 + Q / 6) + Q),  or u n |S| / 2 if the terms are alike (S^2 >= 0.9 n Q).
/// For many terms every second sample adds one share of that, because a value just below 1 is rounded up
/// again and again in the sums of every token. The error is zero if the grid of the largest partial sum holds
/// the sum and all its terms, which is decided from their squares: eight odd numbers may add up to a multiple
/// of four although none of their partial sums is one.
namespace samestate {

class Stochastic {
 public:
  Stochastic() = default;
  Stochastic(double exact) : value_(exact) {}  // NOLINT: a constant of the equations is exact

  /// The value with the rounding of a pending sum drawn. The draw depends on the value, so asking twice gives
  /// the same answer.
  [[nodiscard]] double value() const { return drawn(0); }

  /// The value that a kernel writes to memory at this point. In samples by position its rounding belongs to
  /// this position alone.
  [[nodiscard]] Stochastic settled() const {
    detail::SamplingState& state = detail::sampling();
    return {drawn(state.model.by_place ? ++state.place * 0x632BE59BD9B4E019U : 0U)};
  }

  /// A result with `units` roundings of its own.
  [[nodiscard]] static Stochastic rounded(double value, double units) {
    Stochastic x;
    x.value_ = value;
    x.squares_ = value * value * units;
    x.terms_ = 1.0;
    return x;
  }

  /// A pending sum with that number of terms and the sum of their squares.
  [[nodiscard]] static Stochastic sum_of(double terms, double value, double squares) {
    Stochastic x;
    x.value_ = value;
    x.squares_ = squares;
    x.terms_ = terms;
    return x;
  }
  /// The grid of fp32 on which its partial sums lie, including the largest of them.
  [[nodiscard]] double grid() const {
    return 2.0 * half_ulp(std::sqrt(terms_ * squares_) + std::abs(value_), Format::fp32);
  }
  /// True if value and squares look as if all terms lay on the grid; then no rounding is drawn. Sixteen equal
  /// odd numbers also look so on a grid of four; code that has the terms can tell the difference.
  [[nodiscard]] bool seems_exact(double grid) const {
    return whole(value_ / grid) && (terms_ < 2.0 || whole(squares_ / (grid * grid)));
  }
  /// The same sum, with terms that do not all lie on the grid.
  [[nodiscard]] Stochastic off_grid(double grid) const {
    Stochastic x = *this;
    x.squares_ += 0.5 * grid * grid;
    return x;
  }
  /// x is a multiple of one.
  [[nodiscard]] static bool whole(double x) { return x == std::nearbyint(x); }
  /// True if it is exactly one: a product with it rounds nothing.
  [[nodiscard]] bool is_one() const { return value_ == 1.0 && terms_ == 0.0; }
  /// True if the rounding of its last operation has not been drawn yet.
  [[nodiscard]] bool is_pending() const { return terms_ > 0.0; }

  friend Stochastic operator-(Stochastic x) {
    x.value_ = -x.value_;
    return x;
  }
  friend Stochastic operator+(const Stochastic& x, const Stochastic& y) {
    // The own roundings of a function or quotient are not terms: the squares would not show that these are
    // alike.
    if (x.has_own_roundings()) return Stochastic(x.value()) + y;
    if (y.has_own_roundings()) return x + Stochastic(y.value());
    Stochastic sum;
    sum.value_ = planted(x.value_ + y.value_, Planted::partial);
    sum.squares_ = x.squares() + y.squares();
    sum.terms_ = x.terms() + y.terms();
    return sum;
  }
  friend Stochastic operator-(const Stochastic& x, const Stochastic& y) { return x + (-y); }
  friend Stochastic operator*(const Stochastic& x, const Stochastic& y) {
    // A factor of one rounds nothing: see Running.
    if (x.is_one()) return y;
    if (y.is_one()) return x;
    return rounded(x.value() * y.value(), 1.0);
  }
  friend Stochastic operator/(const Stochastic& x, const Stochastic& y) {
    return rounded(planted(x.value() / y.value(), Planted::quotients), 2.0);
  }
  Stochastic& operator+=(const Stochastic& y) { return *this = *this + y; }
  Stochastic& operator-=(const Stochastic& y) { return *this = *this - y; }
  Stochastic& operator*=(const Stochastic& y) { return *this = *this * y; }
  Stochastic& operator/=(const Stochastic& y) { return *this = *this / y; }
  friend bool operator<(const Stochastic& x, const Stochastic& y) { return x.value() < y.value(); }
  friend bool operator>(const Stochastic& x, const Stochastic& y) { return x.value() > y.value(); }
  friend bool operator<=(const Stochastic& x, const Stochastic& y) { return x.value() <= y.value(); }
  friend bool operator>=(const Stochastic& x, const Stochastic& y) { return x.value() >= y.value(); }
  friend bool operator==(const Stochastic& x, const Stochastic& y) { return x.value() == y.value(); }
  friend bool operator!=(const Stochastic& x, const Stochastic& y) { return x.value() != y.value(); }

 private:
  /// True for a single result with more than one rounding.
  [[nodiscard]] bool has_own_roundings() const { return terms_ == 1.0 && squares_ > value_ * value_; }
  [[nodiscard]] double squares() const { return terms_ == 0.0 ? value_ * value_ : squares_; }
  [[nodiscard]] double terms() const { return terms_ == 0.0 ? (value_ == 0.0 ? 0.0 : 1.0) : terms_; }

  [[nodiscard]] double drawn(std::uint64_t place) const {
    const SampledModel& model = detail::sampling().model;
    if (terms_ > 1.0 && model.planted == Planted::sums) return planted(value_, Planted::sums);
    if (terms_ == 0.0 || !model.working || !std::isfinite(value_)) return value_;
    constexpr double kUnit = 0x1p-24;
    const double grid = this->grid();
    if (seems_exact(grid)) return value_;
    const double square = value_ * value_;
    double size = kUnit * std::sqrt((terms_ - 1.0) * (square / 3.0 + squares_ / 6.0) + squares_);
    const double alike =
        terms_ > 2.0 && square >= 0.9 * terms_ * squares_ ? kUnit * std::abs(value_) * terms_ / 2.0 : 0.0;
    // One rounding is uniform, and so is the number of a sum's roundings that fall to one side; those of
    // other sums are approximately normal together.
    const bool normal = model.near_normal && terms_ > 1.0 && alike <= size;
    const bool shared = alike > size && terms_ > kAlikeTokens && !model.by_place;
    size = std::max(size, alike);
    if (std::abs(value_) < 0x1p-125) size += std::min(std::abs(value_), 0x1p-126);  // flushed to zero
    const double at = model.alike ? cell(grid) : value_;
    const std::uint64_t salt = model.salt ^ place;
    const double lost = model.stagnation * std::min(terms_ * squares_ / kStagnationSpread, square);
    if (shared) return value_ + size * std::copysign(1.0, value_) * random_function(1.0, ~model.salt);
    return value_ + size * (normal ? normal_function(at, salt) : random_function(at, salt)) -
           value_ * model.truncation * kUnit * std::ceil(terms_ / 16.0) -
           (lost > 0.0 ? lost / value_ * kUnit * terms_ : 0.0);
  }

  /// The place of the value on the grid, if there is one. A state that settles meets the same rounding again
  /// and again, and independent draws for each value on the way would let them cancel.
  [[nodiscard]] double cell(double grid) const {
    const double nearest = std::nearbyint(value_ / grid) * grid;
    return nearest == 0.0 ? value_ : nearest;
  }

  double value_ = 0.0;
  double squares_ = 0.0;  ///< the sum of the squares of a pending sum's terms
  double terms_ = 0.0;    ///< 0 if nothing is pending
};

inline Stochastic abs(const Stochastic& x) { return x.value() < 0.0 ? -x : x; }
inline Stochastic sqrt(const Stochastic& x) {
  return Stochastic::rounded(planted(std::sqrt(x.value()), Planted::functions), 2.0);
}
inline Stochastic exp(const Stochastic& x) {
  const SampledModel& model = detail::sampling().model;
  // x log2 e, rounded, which changes the result by |x| times as much. Below -110 fp32 has no number for it.
  const double at = x.value();
  const double product = model.by_base_two ? std::clamp(at, -110.0, 110.0) : 0.0;
  const double bias = 1.0 + 0x1p-24 * (model.exponential_bias + model.base_two_slope * product);
  return Stochastic::rounded(planted(std::exp(at), Planted::functions) * bias,
                             kFunctionUnits + product * product);
}
inline Stochastic expm1(const Stochastic& x) {
  return Stochastic::rounded(planted(std::expm1(x.value()), Planted::functions), kFunctionUnits);
}
inline Stochastic log(const Stochastic& x) {
  return Stochastic::rounded(planted(std::log(x.value()), Planted::functions), kFunctionUnits);
}
inline Stochastic log1p(const Stochastic& x) {
  return Stochastic::rounded(planted(std::log1p(x.value()), Planted::functions), kFunctionUnits);
}
/// Computed in the ways that Running covers. If the sum is rounded, the 1 swallows the same part of a small
/// e^x as in a kernel.
inline Stochastic softplus(const Stochastic& x) {
  if (x.value() >= 0.0) return x + log1p(exp(-x));
  if (!detail::sampling().model.adds_one) return log1p(exp(x));
  const double sum = (Stochastic(1.0) + exp(x)).value();
  return Stochastic::rounded(planted(std::log(std::max(sum, 1.0)), Planted::functions), kFunctionUnits);
}
/// Computed in the ways that Running covers: a sample that adds 1 to the e^x of a softplus also adds 1 to the
/// tanh of a logistic.
inline Stochastic logistic(const Stochastic& x) {
  if (!detail::sampling().model.adds_one) return logistic_by_exp(x);
  const double tanh = planted(std::tanh(0.5 * x.value()), Planted::functions);
  return Stochastic(0.5) * (Stochastic(1.0) + Stochastic::rounded(tanh, 2.0));
}
inline Stochastic sin(const Stochastic& x) {
  return Stochastic::rounded(planted(std::sin(x.value()), Planted::functions), kFunctionUnits);
}
inline Stochastic cos(const Stochastic& x) {
  return Stochastic::rounded(planted(std::cos(x.value()), Planted::functions), kFunctionUnits);
}

template <>
struct RoundingPoint<Stochastic> {
  static constexpr bool rounds = true;
  static Stochastic stored(const Stochastic& x) {
    return {kept_in(x.settled().value(), detail::sampling().model.kept)};
  }
  static Stochastic operand(const Stochastic& x) {
    return {kept_in(x.settled().value(), detail::sampling().model.operand)};
  }
  static Stochastic shift(const Stochastic& x) { return {x.value()}; }
  static Stochastic factor(const Stochastic& x) { return {x.value()}; }
  static Stochastic summed(const Stochastic& x, const Stochastic& kept) {
    return detail::sampling().model.sums_stored ? kept : x;
  }
  static bool divides_last() { return detail::sampling().model.softmax.divides_last; }
  static std::int64_t key_tile(std::int64_t keys) { return detail::sampling().model.softmax.tile_of(keys); }
  static double lazy_by() { return detail::sampling().model.softmax.lazy_by; }
  static bool last_keys_first() { return detail::sampling().model.softmax.last_keys_first; }
  static std::int64_t keys_a_part(std::int64_t keys) {
    return detail::sampling().model.softmax.part_of(keys);
  }
  static bool rounds_at(Point point) { return model_rounds_at(point); }
  static bool rounds_operands(Point point) { return model_rounds_operands(point); }
};

}  // namespace samestate

template <>
struct Eigen::NumTraits<samestate::Stochastic> : Eigen::GenericNumTraits<samestate::Stochastic> {
  using Real = samestate::Stochastic;
  using NonInteger = samestate::Stochastic;
  using Nested = samestate::Stochastic;
  using Literal = double;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 3,
    AddCost = 4,
    MulCost = 8
  };
};

#include "oracles/bounds/stochastic_products.h"  // IWYU pragma: keep
