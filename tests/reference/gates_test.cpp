#include "reference/gates.h"

#include <gtest/gtest.h>

#include <limits>

namespace samestate {
namespace {

Vector<double> one_element(double value) { return Vector<double>::Constant(1, value); }

// E-04 (GDN-47): A_log = a = dt_bias = 0 gives -log 2; the printed, circular form gives -0.9136.
TEST(LogDecay, IsMinusLogTwoAtZero) {
  EXPECT_NEAR(log_decay(Matrix<double>::Zero(1, 1).eval(), one_element(0), one_element(0))(0, 0),
              -std::log(2.0), 1e-16);
}

TEST(LogDecay, AddsTheBiasAndScalesByHead) {
  Matrix<double> a(2, 2);
  a << 1, 1000, -3, -1000;
  Vector<double> A_log(2);
  A_log << std::log(16.0), std::log(2.0);
  Vector<double> dt_bias(2);
  dt_bias << -1, 0;
  const Matrix<double> g = log_decay(a, A_log, dt_bias);
  EXPECT_NEAR(g(0, 0), -16 * std::log(2.0), 1e-14);
  EXPECT_NEAR(g(1, 0), -16 * std::log1p(std::exp(-4.0)), 1e-14);
  EXPECT_NEAR(g(0, 1), -2000, 1e-12);
  EXPECT_EQ(g(1, 1), 0.0);
}

// GDN-28: A = 0 is A_log = -inf; no decay and no NaN.
TEST(LogDecay, OfRateZeroIsZero) {
  const double none = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(log_decay(Matrix<double>::Constant(1, 1, 5.0).eval(), one_element(none), one_element(0))(0, 0),
            0.0);
}

// 5.4: a kernel that takes softplus(x) for x from 20 on is off by less than e^-20.
TEST(LogDecay, DiffersFromTheThresholdedSoftplusByItsTail) {
  const double g =
      log_decay(Matrix<double>::Constant(1, 1, 20.0).eval(), one_element(0), one_element(0))(0, 0);
  EXPECT_NEAR(-g - 20.0, std::exp(-20.0), 1e-14);
  EXPECT_GT(-g - 20.0, 2.0e-9);
}

TEST(LogDecay, RefusesSizesThatDisagree) {
  const Matrix<double> a = Matrix<double>::Zero(3, 2);
  const Vector<double> two = Vector<double>::Zero(2);
  EXPECT_THROW((void)log_decay(a, one_element(0), two), Error);
  EXPECT_THROW((void)log_decay(a, two, one_element(0)), Error);
  EXPECT_EQ(log_decay(Matrix<double>(0, 2), two, two).rows(), 0);
}

TEST(WriteStrength, IsTheLogisticFunction) {
  Matrix<double> b(1, 4);
  b << 0, std::log(3.0), -1000, 1000;
  const Matrix<double> beta = write_strength(b);
  EXPECT_EQ(beta(0, 0), 0.5);
  EXPECT_NEAR(beta(0, 1), 0.75, 1e-16);
  EXPECT_EQ(beta(0, 2), 0.0);
  EXPECT_EQ(beta(0, 3), 1.0);
}

}  // namespace
}  // namespace samestate
