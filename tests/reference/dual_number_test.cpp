#include "reference/dual_number.h"

#include <gtest/gtest.h>

#include <limits>

#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/norms.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using Dual = DualNumber<double>;

TEST(DualNumber, Arithmetic) {
  const Dual x(3.0, 1.0);
  EXPECT_EQ((x * x).value(), 9.0);
  EXPECT_EQ((x * x).derivative(), 6.0);
  EXPECT_EQ((Dual(1) / x).value(), 1.0 / 3.0);
  EXPECT_EQ((Dual(2) / Dual(4.0, 1.0)).derivative(), -0.125);  // -2 / x^2
  EXPECT_EQ((x - x * 2).derivative(), -1.0);
  EXPECT_EQ((-x).derivative(), -1.0);
  EXPECT_EQ((x + 5).derivative(), 1.0);
  Dual y(2.0, 1.0);
  y += x;
  y *= y;
  y -= 1;
  y /= 2;  // ((2 + 3)^2 - 1) / 2, derivative 5 * 2
  EXPECT_EQ(y.value(), 12.0);
  EXPECT_EQ(y.derivative(), 10.0);
}

TEST(DualNumber, Functions) {
  const Dual x(0.5, 2.0);
  EXPECT_DOUBLE_EQ(exp(x).derivative(), 2 * std::exp(0.5));
  EXPECT_DOUBLE_EQ(expm1(x).value(), std::expm1(0.5));
  EXPECT_DOUBLE_EQ(expm1(x).derivative(), 2 * std::exp(0.5));
  EXPECT_DOUBLE_EQ(log(x).derivative(), 4.0);
  EXPECT_DOUBLE_EQ(log1p(x).derivative(), 2.0 / 1.5);
  EXPECT_DOUBLE_EQ(sqrt(Dual(4.0, 1.0)).derivative(), 0.25);
  EXPECT_DOUBLE_EQ(sin(x).derivative(), 2 * std::cos(0.5));
  EXPECT_DOUBLE_EQ(cos(x).derivative(), -2 * std::sin(0.5));
  EXPECT_EQ(abs(Dual(-2.0, 1.0)).value(), 2.0);
  EXPECT_EQ(abs(Dual(-2.0, 1.0)).derivative(), -1.0);
  EXPECT_EQ(abs(Dual(0.0, 1.0)).derivative(), 1.0);
}

// Branches follow the value: silu and softplus have the derivatives of calculus on both sides of their
// branch.
TEST(DualNumber, ThroughTheActivations) {
  for (const double at : {-30.0, -1.5, 0.0, 0.7, 30.0}) {
    const double s = logistic(at);
    EXPECT_NEAR(softplus(Dual(at, 1.0)).derivative(), s, 4e-16) << at;
    EXPECT_NEAR(logistic(Dual(at, 1.0)).derivative(), s * (1 - s), 4e-16) << at;
    EXPECT_NEAR(silu(Dual(at, 1.0)).derivative(), s + at * s * (1 - s), 1e-14) << at;
  }
}

TEST(DualNumber, ComparesByValue) {
  EXPECT_TRUE(Dual(1.0, 5.0) == Dual(1.0, 7.0));
  EXPECT_TRUE(Dual(1.0, 5.0) < Dual(2.0, 0.0));
  EXPECT_TRUE(Dual(2.0) >= 2);
  EXPECT_TRUE(Dual(2.0) != 3);
  EXPECT_FALSE(Dual(std::numeric_limits<double>::quiet_NaN()) <= 1);
}

// The derivative of a norm's row along itself: scaling x changes the norm through epsilon alone.
TEST(DualNumber, ThroughEigen) {
  Matrix<Dual> x(1, 2);
  x << Dual(3.0, 3.0), Dual(4.0, 4.0);
  const Matrix<Dual> y = rms_norm<Dual>(x, Vector<Dual>::Ones(2), Dual(0));
  EXPECT_NEAR(y(0, 0).value(), 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(y(0, 0).derivative(), 0.0, 1e-15);
  EXPECT_EQ((x * x.transpose())(0, 0).derivative(), 50.0);
  EXPECT_EQ(x.squaredNorm().derivative(), 50.0);
}

// d state / d beta_0 of two tokens by hand: k = v = 1, g = 0, S_0 = 0 gives S_2 = b0 + b1 (1 - b0), so 1 -
// b1.
TEST(DualNumber, ThroughTheRecurrence) {
  Sequence<Dual> x;
  x.q = Matrix<Dual>::Ones(2, 1);
  x.k = x.q;
  x.v = x.q;
  x.g = Vector<Dual>::Zero(2);
  x.beta = Vector<Dual>(2);
  x.beta << Dual(0.25, 1.0), Dual(0.75);
  x.initial_state = Matrix<Dual>::Zero(1, 1);
  const Trajectory<Dual> y = recurrent<GatedDeltaRule>(x);
  EXPECT_EQ(y.state(0, 0).value(), 0.8125);
  EXPECT_EQ(y.state(0, 0).derivative(), 0.25);
  EXPECT_EQ(chunked<GatedDeltaRule>(x, 2).state(0, 0).derivative(), 0.25);
}

// The whole derivative with respect to one decay, in 50 digits, against central differences: h^2 = 1e-30.
TEST(DualNumber, FiftyDigits) {
  using Wide = DualNumber<Decimal50>;
  const Sequence<Decimal50> x = test::draw(7, 3, 2, 4).cast<Decimal50>();
  Sequence<Wide> dual = x.cast<Wide>();
  dual.g(2) = Wide(x.g(2), Decimal50(1));
  const Trajectory<Wide> y = chunked<GatedDeltaRule>(dual, 4);
  const Decimal50 h("1e-15");
  Sequence<Decimal50> above = x;
  Sequence<Decimal50> below = x;
  above.g(2) += h;
  below.g(2) -= h;
  const Matrix<Decimal50> difference =
      (recurrent<GatedDeltaRule>(above).o - recurrent<GatedDeltaRule>(below).o) / Decimal50(2 * h);
  const Matrix<Decimal50> derivative = y.o.unaryExpr([](const Wide& e) { return e.derivative(); });
  EXPECT_GT(derivative.cwiseAbs().maxCoeff(), 1e-3);
  EXPECT_LE(test::relative(derivative, difference), 1e-28);
  EXPECT_EQ(derivative.topRows(2).cwiseAbs().maxCoeff(), 0);  // causality
}

}  // namespace
}  // namespace samestate
