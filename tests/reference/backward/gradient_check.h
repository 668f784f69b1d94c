#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/dual_number.h"
#include "reference/scalars.h"
#include "reference/sequence.h"

/// Hand-written gradients against the forward templates, in float64 and in 100 digits, three ways: each element
/// against dual numbers; the adjoint identity <cotangents, J dx> = <gradients, dx> along random directions, with
/// J dx by dual numbers; and central differences, whose truncation error is below 1e-80. What the gradients are
/// compared with always has 100 digits.
namespace samestate::test {

template <class Scalar>
using Tensors = std::vector<Matrix<Scalar>>;

/// The scalar of a list of tensors, for generic lambdas.
template <class List>
using ScalarOf = typename std::decay_t<List>::value_type::Scalar;

/// A tensor of normal numbers.
[[nodiscard]] inline Matrix<double> normal(Index rows, Index columns, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> draw;
  Matrix<double> x(rows, columns);
  for (Index i = 0; i < x.size(); ++i) x.data()[i] = draw(engine);
  return x;
}

template <class To, class From>
[[nodiscard]] Tensors<To> cast(const Tensors<From>& x) {
  Tensors<To> out;
  for (const Matrix<From>& m : x) out.push_back(m.template cast<To>());
  return out;
}

/// Normal numbers in the shapes of `like`.
template <class Scalar>
[[nodiscard]] Tensors<double> normal_like(const Tensors<Scalar>& like, unsigned seed) {
  Tensors<double> out;
  for (const Matrix<Scalar>& m : like) out.push_back(normal(m.rows(), m.cols(), seed++));
  return out;
}

/// sum a b over all elements.
template <class Scalar>
[[nodiscard]] Scalar inner(const Tensors<Scalar>& a, const Tensors<Scalar>& b) {
  Scalar sum(0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (Index j = 0; j < a[i].size(); ++j) sum += a[i].data()[j] * b[i].data()[j];
  }
  return sum;
}

/// sum |a b|, the size to which an error of inner(a, b) is compared.
template <class Scalar>
[[nodiscard]] Scalar size_of_inner(const Tensors<Scalar>& a, const Tensors<Scalar>& b) {
  using std::abs;
  Scalar sum(0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (Index j = 0; j < a[i].size(); ++j) sum += abs(Scalar(a[i].data()[j] * b[i].data()[j]));
  }
  return sum;
}

/// |error| / size, infinite unless both are finite; |error| where the size is 0.
[[nodiscard]] inline double ratio(const Decimal100& error, const Decimal100& size) {
  const double e = static_cast<double>(abs(error));
  const double s = static_cast<double>(size);
  if (!(e < std::numeric_limits<double>::infinity())) return std::numeric_limits<double>::infinity();
  return s > 0 ? static_cast<double>(Decimal100(abs(error) / size)) : e;
}

/// The largest difference of each tensor over its largest element, the worst tensor; infinite if shapes
/// differ or a value is not finite.
[[nodiscard]] inline double worst(const Tensors<Decimal100>& is, const Tensors<Decimal100>& expected) {
  double out = 0.0;
  if (is.size() != expected.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (is[i].rows() != expected[i].rows() || is[i].cols() != expected[i].cols())
      return std::numeric_limits<double>::infinity();
    if (is[i].size() == 0) continue;
    const Decimal100 size = expected[i].cwiseAbs().maxCoeff();
    for (Index j = 0; j < is[i].size(); ++j)
      out = std::max(out, ratio(Decimal100(is[i].data()[j] - expected[i].data()[j]), size));
  }
  return out;
}

/// `forward`: Tensors<S> -> Tensors<S> for every scalar S. A backward pass is (inputs, cotangents of the
/// outputs) -> gradients of the inputs.
template <class Forward>
class GradientCheck {
 public:
  GradientCheck(Tensors<double> inputs, Forward forward, unsigned seed = 17)
      : inputs_(std::move(inputs)),
        forward_(std::move(forward)),
        cotangents_(normal_like(forward_(inputs_), seed)),
        expected_(by_dual_numbers()) {}

  /// Each element against dual numbers.
  template <class Scalar, class Backward>
  [[nodiscard]] double elements(const Backward& backward) const {
    return worst(cast<Decimal100>(gradients<Scalar>(backward)), expected_);
  }

  /// The adjoint identity: each input by itself, then all of them along three directions.
  template <class Scalar, class Backward>
  [[nodiscard]] double directions(const Backward& backward) const {
    const Tensors<Decimal100> g = cast<Decimal100>(gradients<Scalar>(backward));
    double out = 0.0;
    for (std::size_t i = 0; i < inputs_.size() + 3; ++i) {
      Tensors<double> along = normal_like(inputs_, 100 + static_cast<unsigned>(16 * i));
      for (std::size_t j = 0; j < along.size() && i < inputs_.size(); ++j) {
        if (j != i) along[j].setZero();
      }
      const Tensors<Decimal100> d = cast<Decimal100>(along);
      out = std::max(out, ratio(Decimal100(derivative(d) - inner(g, d)), size_of_inner(g, d)));
    }
    return out;
  }

  /// Central differences of three steps, extrapolated to h^6 = 1e-96.
  template <class Scalar, class Backward>
  [[nodiscard]] double differences(const Backward& backward) const {
    const Tensors<double> along = normal_like(inputs_, 1000);
    const Tensors<Decimal100> x = cast<Decimal100>(inputs_);
    const Tensors<Decimal100> d = cast<Decimal100>(along);
    const Tensors<Decimal100> c = cast<Decimal100>(cotangents_);
    const auto loss = [&](const Decimal100& h) {
      Tensors<Decimal100> moved = x;
      for (std::size_t i = 0; i < x.size(); ++i) moved[i] += h * d[i];
      return inner(c, forward_(moved));
    };
    const auto slope = [&](const Decimal100& h) { return Decimal100((loss(h) - loss(-h)) / (2 * h)); };
    const Decimal100 h("1e-16");
    const Decimal100 one = slope(h), half = slope(h / 2), quarter = slope(h / 4);
    const Decimal100 first = (4 * half - one) / 3, second = (4 * quarter - half) / 3;
    const Decimal100 limit = (16 * second - first) / 15;
    const Tensors<Decimal100> g = cast<Decimal100>(gradients<Scalar>(backward));
    return ratio(Decimal100(limit - inner(g, d)), Decimal100(size_of_inner(g, d)));
  }

  [[nodiscard]] const Tensors<double>& inputs() const { return inputs_; }
  [[nodiscard]] const Tensors<double>& cotangents() const { return cotangents_; }

 private:
  template <class Scalar, class Backward>
  [[nodiscard]] Tensors<Scalar> gradients(const Backward& backward) const {
    return backward(cast<Scalar>(inputs_), cast<Scalar>(cotangents_));
  }

  /// <cotangents, J d>.
  [[nodiscard]] Decimal100 derivative(const Tensors<Decimal100>& d) const {
    using Dual = DualNumber<Decimal100>;
    Tensors<Dual> x = cast<Dual>(inputs_);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (Index j = 0; j < x[i].size(); ++j) x[i].data()[j] = Dual(x[i].data()[j].value(), d[i].data()[j]);
    }
    const Tensors<Dual> y = forward_(x);
    return inner(cast<Dual>(cotangents_), y).derivative();
  }

  [[nodiscard]] Tensors<Decimal100> by_dual_numbers() const {
    Tensors<Decimal100> out = cast<Decimal100>(inputs_);
    Tensors<Decimal100> d = out;
    for (Matrix<Decimal100>& m : d) m.setZero();
    for (std::size_t i = 0; i < d.size(); ++i) {
      for (Index j = 0; j < d[i].size(); ++j) {
        d[i].data()[j] = 1;
        out[i].data()[j] = derivative(d);
        d[i].data()[j] = 0;
      }
    }
    return out;
  }

  Tensors<double> inputs_;
  Forward forward_;
  Tensors<double> cotangents_;
  Tensors<Decimal100> expected_;
};

/// The three ways in both precisions. A residual of 1e-15 in float64 that is not below 1e-70 in 100 digits would
/// be a coincidence. `float64` is the limit there.
template <class Forward, class Backward>
void expect_gradients(const GradientCheck<Forward>& check, const Backward& backward, double float64 = 1e-15) {
  const double of64[] = {check.template elements<double>(backward),
                         check.template directions<double>(backward),
                         check.template differences<double>(backward)};
  const double of100[] = {check.template elements<Decimal100>(backward),
                          check.template directions<Decimal100>(backward),
                          check.template differences<Decimal100>(backward)};
  const char* ways[] = {"elements", "directions", "differences"};
  const int call = testing::UnitTest::GetInstance()->current_test_info()->result()->test_property_count() / 6;
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(of64[i], float64) << ways[i];
    EXPECT_LE(of100[i], 1e-70) << ways[i];
    const std::string name = std::string(ways[i]) + "_" + std::to_string(call);
    testing::Test::RecordProperty(name + "_float64", std::to_string(of64[i] * 1e16) + "e-16");
    testing::Test::RecordProperty(name + "_hundred_digits", std::to_string(of100[i] * 1e100) + "e-100");
  }
}

/// Each of the three ways sees that this backward pass is wrong.
template <class Forward, class Backward>
void expect_seen(const GradientCheck<Forward>& check, const Backward& backward, const char* fault) {
  EXPECT_GT(check.template elements<double>(backward), 1e-4) << fault;
  EXPECT_GT(check.template directions<double>(backward), 1e-6) << fault;
  EXPECT_GT(check.template differences<double>(backward), 1e-6) << fault;
}

}  // namespace samestate::test
