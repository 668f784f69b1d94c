#include "reference/activations.h"

#include <gtest/gtest.h>

#include <limits>

namespace samestate {
namespace {

TEST(Logistic, HasItsValuesAndDoesNotOverflow) {
  EXPECT_EQ(logistic(0.0), 0.5);
  EXPECT_NEAR(logistic(std::log(3.0)), 0.75, 1e-16);
  EXPECT_NEAR(logistic(-std::log(3.0)), 0.25, 1e-16);
  // GDN-45: sigma(2) = 0.8808, where the document's other sigma, silu, gives 1.7616 outside (0, 1).
  EXPECT_NEAR(logistic(2.0), 0.88079707797788243, 1e-15);
  EXPECT_NEAR(silu(2.0), 1.7615941559557649, 1e-15);
  EXPECT_EQ(logistic(1000.0), 1.0);
  EXPECT_EQ(logistic(-1000.0), 0.0);
  // From the other side, 1 - 1/(1 + e^x) would have no digit left.
  EXPECT_NEAR(logistic(-40.0) / std::exp(-40.0), 1.0, 1e-15);
}

TEST(Silu, IsXAboveAndZeroBelow) {
  EXPECT_EQ(silu(0.0), 0.0);
  EXPECT_NEAR(silu(std::log(3.0)), 0.75 * std::log(3.0), 1e-16);
  EXPECT_EQ(silu(1000.0), 1000.0);
  EXPECT_EQ(silu(-1000.0), 0.0);
  // Its minimum (GDN-45).
  EXPECT_NEAR(silu(-1.2784645427610738), -0.27846454276107380, 1e-15);
}

TEST(Softplus, KeepsItsDigitsAtBothEnds) {
  EXPECT_NEAR(softplus(0.0), std::log(2.0), 1e-16);
  EXPECT_NEAR(softplus(std::log(std::exp(1.0) - 1.0)), 1.0, 1e-15);
  EXPECT_EQ(softplus(1000.0), 1000.0);
  EXPECT_EQ(softplus(-1000.0), 0.0);
  // log(1 + e^-40) written so is log 1 = 0.
  EXPECT_NEAR(softplus(-40.0) / std::exp(-40.0), 1.0, 1e-15);
}

TEST(Activations, ActOnEveryElement) {
  Matrix<double> x(2, 2);
  x << 0, 2, -2, 1000;
  const Matrix<double> y = silu(x);
  const Matrix<double> p = logistic(x);
  for (Index i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y.data()[i], silu(x.data()[i]));
    EXPECT_EQ(p.data()[i], logistic(x.data()[i]));
  }
  EXPECT_EQ(silu(Matrix<double>(0, 3)).rows(), 0);
}

TEST(Softmax, RowsByHand) {
  Matrix<double> x(4, 2);
  x << 0, std::log(3.0), 1e4, 1e4, 1e4, -1e4, -1e4, -1e4 + std::log(4.0);
  const Matrix<double> p = softmax(x);
  EXPECT_NEAR(p(0, 0), 0.25, 1e-16);
  EXPECT_NEAR(p(0, 1), 0.75, 1e-16);
  EXPECT_EQ(p(1, 0), 0.5);
  EXPECT_EQ(p(1, 1), 0.5);
  EXPECT_EQ(p(2, 0), 1.0);
  EXPECT_EQ(p(2, 1), 0.0);
  EXPECT_NEAR(p(3, 1), 0.8, 1e-12);
}

TEST(Softmax, OfOneColumnIsOneAndOfNoneEmpty) {
  EXPECT_EQ(softmax(Matrix<double>::Constant(3, 1, -7.0).eval()), (Matrix<double>::Ones(3, 1)));
  EXPECT_EQ(softmax(Matrix<double>(3, 0)).cols(), 0);
  EXPECT_EQ(softmax(Matrix<double>(0, 3)).rows(), 0);
}

}  // namespace
}  // namespace samestate
