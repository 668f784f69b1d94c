#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracles/bounds/bound.h"
#include "oracles/bounds/skipped_points.h"
#include "oracles/bounds/softmax_order.h"
#include "oracles/rounding.h"
#include "reference/activations.h"
#include "reference/rounding_point.h"

/// A scalar that carries its own error: the exact value and a rigorous bound on the error of any correct fp32
/// evaluation of the same expression. Evaluating the reference templates with it bounds every system that has
/// no bound of its own. (The recurrent family keeps its own bounds: there errors of a state cancel, which
/// this scalar cannot see.)
///
/// Sums are bounded for any order. A sum of n terms keeps its count and the sum M of the largest possible
/// magnitudes of its terms; its rounding is charged only when the sum is used in another operation: (n - 1) u
/// M / (1 - (n - 1) u), Higham's bound for an arbitrary tree. So Eigen's products, loops and a kernel's own
/// blocking are all covered by one evaluation. A factor in front of a product (`c * (A * B)`) must be applied
/// after an eval(): otherwise Eigen multiplies each block of the sum by it, and each multiplied block is
/// charged as a sum of its own.
namespace samestate {

inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();
inline constexpr double kLargestOfFp32 = 0x1.fffffep127;

/// The roundings that the operations of a contract may make. Errors are relative, in units u of the working
/// precision.
struct RunningModel {
  double unit = 0x1p-24;        ///< of additions and multiplications (fp32)
  double tiny = 0x1p-125;       ///< results below 2^-126 may be flushed to zero; twice that, see shift()
  double division_units = 3.0;  ///< x / y may be x times a reciprocal, each within 1 unit
  double root_units = 2.0;      ///< sqrt, also through a reciprocal root
  double function_units = kFunctionUnits;  ///< log, log1p, expm1, sin, cos
  ExponentialModel exponential;            ///< exp, its measured constants
  bool ex2 = false;                        ///< exp(x) is ex2.approx(x log2 e), the product rounded
  double stored_unit = 0.0;  ///< for a rounding point of the reference (stored()); 0 if it does not round
  double stored_tiny = 0.0;  ///< absolute error of a rounding there
  double stored_most = kUnlimited;  ///< the largest value that a kernel can store there
  bool* overflows = nullptr;        ///< set if a value may overflow; see Running::overflows
  /// If not none, the value is the twin's: rounding points round it to nearest, and the error is the possible
  /// distance between the twin and a kernel with the same points. If all of value +- error rounds to one
  /// number, that distance becomes zero.
  Format nearest = Format::none;
  Format operand = Format::none;            ///< to which a matrix unit rounds its operands, if it does
  bool of_twin = false;                     ///< operands are rounded to nearest, or truncated, as in the twin
  bool* rounds = nullptr;                   ///< set if it does
  const SkippedPoints* skipped = nullptr;   ///< for the twin: points that the kernel does not have
  const SkippedPoints* switched = nullptr;  ///< points that the contract switches
  bool sums_stored = false;                 ///< for the twin: summed() takes the stored values
  SoftmaxOrder softmax;                     ///< for the twin

  /// The model of a contract: rounding points keep 16 bits if its operands do.
  [[nodiscard]] static RunningModel of(const Contract& contract);
  /// The same without the roundings at those points.
  [[nodiscard]] static RunningModel between_points(const Contract& contract);
  /// The model of the twin, with all points rounded to nearest.
  [[nodiscard]] static RunningModel twin(const Contract& contract);
};

namespace detail {
inline RunningModel& running_model() {
  thread_local RunningModel model;
  return model;
}
}  // namespace detail

/// Sets the model of this thread's arithmetic while the object lives.
class RunningScope {
 public:
  explicit RunningScope(const RunningModel& model) : before_(detail::running_model()) {
    detail::running_model() = model;
  }
  ~RunningScope() { detail::running_model() = before_; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  RunningModel before_;
};

class Running {
 public:
  Running() = default;
  Running(double exact)  // NOLINT: a constant of the equations is exact
      : value_(exact), magnitude_(std::abs(exact)), terms_(exact == 0.0 ? 0.0 : 1.0) {}

  /// A value known to within `error`.
  [[nodiscard, gnu::always_inline]] static inline Running within(double value, double error) {
    Running x;
    x.value_ = value;
    x.error_ = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
    x.magnitude_ = std::abs(value) + x.error_;
    x.terms_ = x.magnitude_ == 0.0 ? 0.0 : 1.0;
    return x;
  }

  /// A pending sum with that number of terms, the sum of their errors, and the sum of their largest possible
  /// magnitudes.
  [[nodiscard]] static Running sum_of(double terms, double value, double error, double magnitude) {
    Running x;
    x.value_ = value;
    x.error_ = error;
    x.magnitude_ = magnitude;
    x.terms_ = terms;
    return x;
  }

  /// x of a token for which a correct kernel may make another choice (EQUATIONS 8.2), known to within
  /// `error`. Values computed from it are not marked.
  [[nodiscard]] static Running undecided(const Running& x, double error) {
    Running y = within(x.value(), error).made_of(x);
    y.undecided_ = true;
    return y;
  }
  [[nodiscard]] bool undecided() const { return undecided_; }

  /// True if nothing is known about the value because its format may have no number for it, or for something
  /// that it is computed from: it may be a NaN. An error that is infinite for another reason (a divisor that
  /// may be zero, a choice) does not excuse a NaN.
  [[nodiscard]] bool overflows() const {
    return overflows_ || (terms_ > 1.0 && beyond_fp32(magnitude_, magnitude_ - error_));
  }
  /// This value, marked as computed from x. A finite error is passed through unmarked, so the common case
  /// costs nothing.
  [[nodiscard, gnu::always_inline]] inline Running made_of(const Running& x) const {
    Running y = *this;
    if (!(y.error_ < kUnlimited)) [[unlikely]]
      y.overflows_ = y.overflows_ || x.overflows();
    return y;
  }
  /// A value with an unlimited error, which an overflow may have caused.
  [[nodiscard]] static Running overflowing(double value) {
    Running y = within(value, kUnlimited);
    y.overflows_ = true;
    return y;
  }

  [[nodiscard]] double value() const { return value_; }
  /// True if its last operation was a sum whose rounding has not been charged yet.
  [[nodiscard]] bool is_pending() const { return terms_ > 1.0; }
  /// True if it is exactly one: a product with it rounds nothing.
  [[nodiscard]] bool is_one() const { return value_ == 1.0 && magnitude_ == 1.0 && error_ == 0.0; }
  /// The bound, including the rounding of a pending sum.
  [[nodiscard, gnu::always_inline]] inline double error() const {
    if (terms_ <= 1.0) return error_;
    const double roundings = (terms_ - 1.0) * detail::running_model().unit;
    if (!(roundings < 0.5 && in_range(magnitude_, magnitude_ - error_))) return kUnlimited;
    return error_ + roundings / (1.0 - roundings) * magnitude_;
  }

  /// Returns the value that a softmax subtracts in place of its maximum x. The softmax is the same whatever
  /// is subtracted, so a kernel's errors are those that it makes with its own maximum, taken as exact; only
  /// the rounding of the difference depends on the error of the maximum. An error above log 2 could move
  /// terms across the flush to zero; then the error stays.
  [[nodiscard]] static Running shift(const Running& x) {
    const double error = x.error();
    // Roundings to nearest after it do not cancel, so the twin's bound needs the error of the maximum.
    if (!(error < 0.69) || detail::running_model().of_twin) return x;
    Running y(x.value_);
    y.magnitude_ += error;
    return y;
  }

  friend Running operator-(Running x) {
    x.value_ = -x.value_;
    return x;
  }
  friend Running operator+(const Running& x, const Running& y) {
    Running sum;
    sum.value_ = x.value_ + y.value_;
    sum.error_ = x.error_ + y.error_;
    sum.magnitude_ = x.magnitude_ + y.magnitude_;
    sum.terms_ = x.terms_ + y.terms_;
    if (!(sum.error_ < kUnlimited)) [[unlikely]]
      sum.overflows_ = x.overflows() || y.overflows();
    return sum;
  }
  friend Running operator-(const Running& x, const Running& y) { return x + (-y); }
  [[gnu::always_inline]] friend inline Running operator*(const Running& x, const Running& y) {
    // A factor of one rounds nothing, so a pending sum stays pending. Eigen multiplies the partial sums of a
    // long product by its alpha, and each of them would otherwise be charged separately.
    if (x.is_one()) return y;
    if (y.is_one()) return x;
    const double ex = x.error();
    const double ey = y.error();
    // A factor of exactly zero stays zero whatever the other factor is, unless that may be infinite in its
    // format.
    if ((x.value_ == 0.0 && ex == 0.0) || (y.value_ == 0.0 && ey == 0.0))
      return std::isinf(ex + ey) && (x.overflows() || y.overflows()) ? overflowing(0.0) : Running{};
    return rounded(x.value_ * y.value_, std::abs(x.value_) * ey + std::abs(y.value_) * ex + ex * ey, 1.0)
        .made_of(x)
        .made_of(y);
  }
  friend Running operator/(const Running& x, const Running& y) {
    const double ex = x.error();
    const double room = std::abs(y.value_) - y.error();
    const double quotient = x.value_ / y.value_;
    if (!(room > 0.0)) return within(quotient, kUnlimited).made_of(x).made_of(y);
    return rounded(quotient, (ex + std::abs(quotient) * y.error()) / room,
                   detail::running_model().division_units)
        .made_of(x)
        .made_of(y);
  }
  Running& operator+=(const Running& y) { return *this = *this + y; }
  Running& operator-=(const Running& y) { return *this = *this - y; }
  Running& operator*=(const Running& y) { return *this = *this * y; }
  Running& operator/=(const Running& y) { return *this = *this / y; }

  // Comparisons look at the exact values; the caller must make sure that a kernel decides the same way
  // (EQUATIONS 8.2).
  friend bool operator<(const Running& x, const Running& y) { return x.value_ < y.value_; }
  friend bool operator>(const Running& x, const Running& y) { return x.value_ > y.value_; }
  friend bool operator<=(const Running& x, const Running& y) { return x.value_ <= y.value_; }
  friend bool operator>=(const Running& x, const Running& y) { return x.value_ >= y.value_; }
  friend bool operator==(const Running& x, const Running& y) { return x.value_ == y.value_; }
  friend bool operator!=(const Running& x, const Running& y) { return x.value_ != y.value_; }

  /// Returns x of an open choice whose alternative may use values that were not computed, of at most `size`.
  /// It overflows if anything did, or if one of these values may.
  [[nodiscard]] static Running unknown(const Running& x, double size) {
    const RunningModel& model = detail::running_model();
    Running y = undecided(x, kUnlimited);
    const bool beyond = !(size <= std::min(model.stored_most, kLargestOfFp32));
    if (beyond && model.overflows != nullptr) *model.overflows = true;
    y.overflows_ = y.overflows_ || beyond || (model.overflows != nullptr && *model.overflows);
    return y;
  }

  /// The value with its carried error and `units` roundings of the result.
  [[nodiscard, gnu::always_inline]] static inline Running rounded(double value, double carried,
                                                                  double units) {
    const RunningModel& model = detail::running_model();
    const double largest = std::abs(value) + carried;
    double error = carried + units * model.unit * largest;
    if (largest < 2.0 * model.tiny) error += model.tiny;
    return in_range(largest, std::abs(value)) ? within(value, error) : overflowing(value);
  }

 private:
  /// True if fp32 may have no number for a value of at most `most`, including its error. If the exact value
  /// is known, 2^128 minus a thousandth counts as out of range, because a kernel's operands may have been
  /// rounded up before. If the error is unlimited, `exact` decides.
  [[nodiscard]] static bool beyond_fp32(double most, double exact) {
    return exact > kLargestOfFp32 || (most > kLargestOfFp32 && most < kUnlimited);
  }

  /// True if fp32 has a number for a value, or for all partial sums of a sum whose terms have these
  /// magnitudes together. If it may have none, anything may follow.
  [[nodiscard, gnu::always_inline]] static inline bool in_range(double most, double exact) {
    if (!(most > kLargestOfFp32)) [[likely]]
      return true;
    if (!beyond_fp32(most, exact)) return true;
    bool* const flag = detail::running_model().overflows;
    if (flag != nullptr) *flag = true;
    return false;
  }

  double value_ = 0.0;
  double error_ = 0.0;      ///< for the terms
  double magnitude_ = 0.0;  ///< sum over the terms of |value| + error
  double terms_ = 0.0;      ///< the number of terms of a pending sum
  bool undecided_ = false;
  bool overflows_ = false;  ///< meaningful for an infinite error only
};

// For each function: the largest change of f over [value - error, value + error], plus the function's own
// units.

inline Running abs(const Running& x) { return Running::within(std::abs(x.value()), x.error()).made_of(x); }

inline Running sqrt(const Running& x) {
  const double root = std::sqrt(x.value());
  const double lower = std::sqrt(std::max(x.value() - x.error(), 0.0));
  const double carried = x.error() > 0.0 ? x.error() / (root + lower) : 0.0;
  return Running::rounded(root, carried, detail::running_model().root_units).made_of(x);
}

inline Running exp(const Running& x) {
  const RunningModel& model = detail::running_model();
  const double e = std::exp(x.value());
  const double units =
      model.ex2 ? model.exponential.ex2 + model.exponential.ex2_slope * (std::abs(x.value()) + x.error())
                : model.exponential.exact;
  const double carried = e * std::expm1(x.error());
  // With so large an error fp32 may have no number for the argument.
  if (!std::isfinite(carried)) [[unlikely]]
    return Running::overflowing(e);
  return Running::rounded(e, carried, units);
}

inline Running expm1(const Running& x) {
  const double e = std::expm1(x.value());
  return Running::rounded(e, std::exp(x.value()) * std::expm1(x.error()),
                          detail::running_model().function_units)
      .made_of(x);
}

inline Running log(const Running& x) {
  const double room = x.value() - x.error();
  const double carried = room > 0.0 ? x.error() / room : std::numeric_limits<double>::infinity();
  return Running::rounded(std::log(x.value()), x.error() > 0.0 ? carried : 0.0,
                          detail::running_model().function_units)
      .made_of(x);
}

inline Running log1p(const Running& x) {
  const double room = 1.0 + x.value() - x.error();
  const double carried = room > 0.0 ? x.error() / room : std::numeric_limits<double>::infinity();
  return Running::rounded(std::log1p(x.value()), x.error() > 0.0 ? carried : 0.0,
                          detail::running_model().function_units)
      .made_of(x);
}

inline Running sin(const Running& x) {
  // The argument reduction of a library may err by the unit of the result's range, not of the result.
  return Running::rounded(std::sin(x.value()), x.error() + detail::running_model().unit,
                          detail::running_model().function_units)
      .made_of(x);
}

inline Running cos(const Running& x) {
  return Running::rounded(std::cos(x.value()), x.error() + detail::running_model().unit,
                          detail::running_model().function_units)
      .made_of(x);
}

/// log(1 + e^x), in whatever way a kernel computes it: as log1p(exp(x)), as log(1 + exp(x)), where the 1
/// swallows a small e^x, or as x itself from 20 on. So one unit of 1 is added to the units of the result and
/// of the exponential's argument.
inline Running softplus(const Running& x) {
  const RunningModel& model = detail::running_model();
  const double value = std::max(x.value(), 0.0) + std::log1p(std::exp(-std::abs(x.value())));
  const double carried = x.error() + model.unit * (1.0 + model.exponential.exact);
  return Running::rounded(value, carried, model.function_units).made_of(x);
}

/// sigma(x), in whatever way a kernel computes it: as 1 / (1 + e^-x), or as (1 + tanh(x / 2)) / 2, where 1
/// cancels with a value within a rounding of -1: a tanh within two roundings of 1 leaves sigma within one of
/// them (bounds_operators.md 13). So one unit of 1 is added to the error, which silu multiplies by |x|.
inline Running logistic(const Running& x) {
  const Running y = logistic_by_exp(x);
  return Running::within(y.value(), y.error() + detail::running_model().unit).made_of(y);
}

template <>
struct RoundingPoint<Running> {
  static constexpr bool rounds = true;
  static Running stored(const Running& x) {
    const RunningModel& model = detail::running_model();
    const double error = x.error();
    if (model.nearest != Format::none) return nearest(x.value(), error, model.nearest);
    // zero is a number of the format
    if (model.stored_unit == 0.0 || (x.value() == 0.0 && error == 0.0)) return x;
    const double size = std::abs(x.value()) + (std::isfinite(error) ? error : 0.0);
    if (size > model.stored_most && model.overflows != nullptr) *model.overflows = true;
    if (size > model.stored_most) return Running::overflowing(x.value());
    return Running::within(x.value(),
                           error + model.stored_unit * (std::abs(x.value()) + error) + model.stored_tiny)
        .made_of(x);
  }
  /// The error is relative, so it holds whatever power of two or factor is applied to the operand or after
  /// the product. A value that is known exactly and is a number of the format stays unchanged.
  static Running operand(const Running& x) {
    const RunningModel& model = detail::running_model();
    // With three products of tf32 parts no operand is one rounded number, so there is no twin.
    if (model.rounds != nullptr && model.operand != Format::tf32x3) *model.rounds = true;
    const double error = x.error();
    const double value = x.value();
    if (model.of_twin)
      return error == 0.0 ? turned(value, model.operand) : nearest(value, error, model.operand);
    if (error == 0.0 && round_to(value, whole_in(model.operand)) == value) return x;
    return Running::within(value, error + unit_roundoff(model.operand) * (std::abs(value) + error) +
                                      subnormal_error(model.operand))
        .made_of(x);
  }
  static Running shift(const Running& x) { return Running::shift(x); }
  /// The twin's stored weights depend on the maximum that was subtracted, so it takes the hull: in a kernel,
  /// a score may be the larger one after a rounding before it has fallen the other way.
  static bool take_larger(Running& maximum, const Running& score) {
    const bool larger = maximum < score;
    if (!detail::running_model().of_twin) {
      if (larger) maximum = score;
      return larger;
    }
    const double value = std::max(maximum.value(), score.value());
    const double upper = std::max(maximum.value() + maximum.error(), score.value() + score.error());
    const double lower = std::max(maximum.value() - maximum.error(), score.value() - score.error());
    const double error = std::max(upper - value, value - lower);
    if (!larger && !(error > maximum.error())) return false;
    maximum = error == score.error() && larger ? score : Running::within(value, error);
    return true;
  }
  /// The larger error, except for the twin.
  static Running summed(const Running& x, const Running& kept) {
    const RunningModel& model = detail::running_model();
    return !model.of_twin || model.sums_stored ? kept : x;
  }
  /// True if a sum of products with x may be made in any order and may contain products with zero. An x that
  /// may be infinite forbids both.
  static bool joins_any_sum(const Running& x) { return std::isfinite(x.value()) && std::isfinite(x.error()); }
  static bool divides_last() { return detail::running_model().softmax.divides_last; }
  static std::int64_t key_tile(std::int64_t keys) { return detail::running_model().softmax.tile_of(keys); }
  static double lazy_by() { return detail::running_model().softmax.lazy_by; }
  static bool last_keys_first() { return detail::running_model().softmax.last_keys_first; }
  static std::int64_t keys_a_part(std::int64_t keys) { return detail::running_model().softmax.part_of(keys); }
  static bool rounds_at(Point point) {
    const RunningModel& model = detail::running_model();
    return (model.skipped == nullptr || !model.skipped->has(point)) &&
           contract_rounds_at(point, model.switched);
  }
  static bool rounds_operands(Point point) {
    return detail::running_model().operand != Format::none && rounds_at(point);
  }

 private:
  /// A value that is known exactly, as data are, rounds to one number; a tie gives both neighbours, since
  /// units round it to even or away from zero.
  static Running turned(double x, Format format) {
    const double y = round_to(x, format);
    const double half = format == Format::tf32_truncated ? 0.0 : half_ulp(x, format);
    return Running::within(y, std::isfinite(y) && half > 0.0 && std::abs(y - x) == half ? 2.0 * half : 0.0);
  }
  static Running nearest(double x, double error, Format format) {
    const double y = round_to(x, format);
    if (error == 0.0 || !std::isfinite(y) || !std::isfinite(error)) return Running::within(y, error);
    return Running::within(y, std::max(round_to(x + error, format) - y, y - round_to(x - error, format)));
  }
};

}  // namespace samestate

template <>
struct Eigen::NumTraits<samestate::Running> : Eigen::GenericNumTraits<samestate::Running> {
  using Real = samestate::Running;
  using NonInteger = samestate::Running;
  using Nested = samestate::Running;
  using Literal = double;
  enum {
    IsComplex = 0,
    IsInteger = 0,
    IsSigned = 1,
    RequireInitialization = 1,
    ReadCost = 4,
    AddCost = 8,
    MulCost = 16
  };
};

// Code that multiplies matrices of Running needs these products.
#include "oracles/bounds/running_products.h"  // IWYU pragma: keep
