#include "reference/norms.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

Vector<double> ones(Index n) { return Vector<double>::Ones(n); }
Vector<double> zeros(Index n) { return Vector<double>::Zero(n); }

// RMS-8: heads (1, 1) and (10, 10): all ones a head, 0.141 and 1.407 over the whole vector.
TEST(RmsNorm, IsTakenOverARow) {
  Matrix<double> heads(2, 2);
  heads << 1, 1, 10, 10;
  EXPECT_TRUE(rms_norm(heads, ones(2), 0.0).isOnes(1e-15));
  const Matrix<double> whole = heads.reshaped<Eigen::RowMajor>(1, 4);
  const Matrix<double> y = rms_norm(whole, ones(4), 0.0);
  EXPECT_NEAR(y(0, 0), 1 / std::sqrt(50.5), 1e-15);
  EXPECT_NEAR(y(0, 3), 10 / std::sqrt(50.5), 1e-15);
}

// 5.1: epsilon on the mean, inside the root: a row of mean square 1e-6 comes out with mean square 1/2.
TEST(RmsNorm, AddsEpsilonToTheMean) {
  const Matrix<double> y = rms_norm(Matrix<double>::Constant(1, 4, 1e-3).eval(), ones(4), 1e-6);
  EXPECT_NEAR(y(0, 2), std::sqrt(0.5), 1e-15);
}

TEST(RmsNorm, KeepsAZeroRowAndScalesByTheWeight) {
  Matrix<double> x(2, 2);
  x << 0, 0, 3, 3;
  Vector<double> w(2);
  w << 2, -5;
  const Matrix<double> y = rms_norm(x, w, 1e-6);
  EXPECT_EQ(y.row(0), (Matrix<double>::Zero(1, 2)));
  EXPECT_NEAR(y(1, 0), 2, 1e-6);
  EXPECT_NEAR(y(1, 1), -5, 1e-6);
}

// E-16: at weight 0 the plain norm gives 0 and the zero-centred one the normalised row.
TEST(RmsNormZeroCentred, HasWeightOnePlusW) {
  Matrix<double> x(1, 2);
  x << 2, -2;
  EXPECT_TRUE(rms_norm(x, zeros(2), 0.0).isZero(0));
  const Matrix<double> y = rms_norm_zero_centred(x, zeros(2), 0.0);
  EXPECT_EQ(y(0, 0), 1.0);
  EXPECT_EQ(y(0, 1), -1.0);
}

// RMS-4: the residual handed on is the sum BEFORE the norm.
TEST(RmsNormResidual, ReturnsTheSum) {
  Matrix<double> x(1, 2);
  x << 1, 2;
  Matrix<double> residual(1, 2);
  residual << 2, 1;
  const ResidualNorm<double> out = rms_norm_residual(x, residual, ones(2), 0.0);
  EXPECT_EQ(out.residual, (Matrix<double>::Constant(1, 2, 3.0)));
  EXPECT_EQ(out.y, (Matrix<double>::Constant(1, 2, 2.0)));
}

// RMS-1: x = (3, 4) and a gate that closes the first column and passes 1000 times the second.
TEST(RmsNormGated, NormsBeforeTheGate) {
  Matrix<double> x(1, 2);
  x << 3, 4;
  Matrix<double> z(1, 2);
  z << 0, 1000;
  const Matrix<double> before = rms_norm_gated(x, z, ones(2), 0.0);
  EXPECT_EQ(before(0, 0), 0.0);
  EXPECT_NEAR(before(0, 1), 4000 / std::sqrt(12.5), 1e-12);
  // Mamba-2's order normalises (0, 4000), so the gate's size is lost.
  const Matrix<double> after = rms_norm_of_gated(x, z, ones(2), 0.0);
  EXPECT_EQ(after(0, 0), 0.0);
  EXPECT_NEAR(after(0, 1), std::sqrt(2.0), 1e-15);
}

TEST(Norms, TakeNoRows) {
  const Matrix<double> none(0, 3);
  EXPECT_EQ(rms_norm(none, ones(3), 1e-6).rows(), 0);
  EXPECT_EQ(rms_norm_residual(none, none, ones(3), 1e-6).residual.rows(), 0);
}

TEST(Norms, RefuseShapesThatDisagree) {
  const Matrix<double> x = Matrix<double>::Ones(2, 3);
  const Matrix<double> other = Matrix<double>::Ones(2, 4);
  const Matrix<double> longer = Matrix<double>::Ones(3, 3);
  EXPECT_THROW((void)rms_norm(x, ones(2), 1e-6), Error);
  EXPECT_THROW((void)rms_norm_zero_centred(x, ones(4), 1e-6), Error);
  EXPECT_THROW((void)rms_norm_residual(x, other, ones(3), 1e-6), Error);
  EXPECT_THROW((void)rms_norm_gated(x, longer, ones(3), 1e-6), Error);
  try {
    (void)rms_norm_of_gated(x, other, ones(3), 1e-6);
    FAIL() << "a gate of another shape was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "norm: x is 2 x 3, the gate z 2 x 4; they must have one shape");
  }
}

}  // namespace
}  // namespace samestate
