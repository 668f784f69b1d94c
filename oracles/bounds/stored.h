#pragma once

#include <Eigen/Core>

#include "oracles/bounds/sampled_model.h"
#include "reference/rounding_point.h"

/// A double that is rounded only at the rounding points of the references. In contracts of 16 bits the
/// roundings in between are 2^-16 of these and are bounded separately, so that a sample costs little more
/// than the reference itself.
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
  static Stored operand(Stored x) { return {kept_in(x.value(), detail::sampling().model.operand)}; }
  static Stored shift(Stored x) { return x; }
  static Stored summed(Stored x, Stored kept) { return detail::sampling().model.sums_stored ? kept : x; }
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

/// Their products are those of the doubles that they hold.
template <class Index, int LhsOrder, int RhsOrder>
struct Eigen::internal::general_matrix_matrix_product<
    Index, samestate::Stored, LhsOrder, false, samestate::Stored, RhsOrder, false, Eigen::ColMajor, 1> {
  using Stored = samestate::Stored;
  using Traits = gebp_traits<Stored, Stored>;
  static_assert(sizeof(Stored) == sizeof(double) && std::is_standard_layout_v<Stored>);

  static void run(Index rows, Index columns, Index depth, const Stored* lhs, Index lhs_stride,
                  const Stored* rhs, Index rhs_stride, Stored* result, Index /*increment*/,
                  Index result_stride, const Stored& alpha, level3_blocking<Stored, Stored>& /*blocking*/,
                  GemmParallelInfo<Index>* /*info*/ = nullptr) {
    InMemory<LhsOrder> x(reinterpret_cast<const double*>(lhs), rows, depth, OuterStride<>(lhs_stride));
    InMemory<RhsOrder> y(reinterpret_cast<const double*>(rhs), depth, columns, OuterStride<>(rhs_stride));
    Map<Matrix<double, Dynamic, Dynamic>, 0, OuterStride<>> sum(reinterpret_cast<double*>(result), rows,
                                                                columns, OuterStride<>(result_stride));
    sum.noalias() += alpha.value() * x * y;
  }

 private:
  template <int Order>
  using InMemory = Map<const Matrix<double, Dynamic, Dynamic, Order>, 0, OuterStride<>>;
};
