#include "reference/linear.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samestate {

/// A scalar that keeps integers only where a result may be stored.
template <>
struct RoundingPoint<long double> {
  static constexpr bool rounds = true;
  static long double stored(const long double& x) { return std::round(x); }
  static long double operand(const long double& x) { return x; }
  static bool rounds_at(Point) { return true; }
};

namespace {

TEST(Linear, IsXTimesTheTransposedWeight) {
  Matrix<double> x(1, 2);
  x << 1, 2;
  Matrix<double> weight(3, 2);
  weight << 3, 4, 5, 6, 7, 8;
  Matrix<double> y(1, 3);
  y << 11, 17, 23;
  EXPECT_EQ(linear(x, weight), y);
  Vector<double> bias(3);
  bias << 1, 10, 100;
  Matrix<double> shifted(1, 3);
  shifted << 12, 27, 123;
  EXPECT_EQ(linear(x, weight, bias), shifted);
}

TEST(Linear, TakesNoTokensAndNoInputs) {
  const Matrix<double> none = linear(Matrix<double>(0, 2), Matrix<double>::Ones(3, 2).eval());
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(none.cols(), 3);
  EXPECT_EQ(linear(Matrix<double>(2, 0), Matrix<double>(3, 0)), (Matrix<double>::Zero(2, 3)));
}

TEST(Linear, IsARoundingPoint) {
  const Matrix<long double> x = Matrix<long double>::Constant(1, 2, 0.4L);
  static constexpr PointRow kRows[] = {{"y", "The output of this test."}};
  static constexpr PointTable kTable{"linear_test", PointTier::equation, kRows};
  EXPECT_EQ(linear(x, Matrix<long double>::Ones(1, 2).eval(), kTable["y"])(0, 0), 1.0L);
}

TEST(Linear, RefusesSizesThatDisagree) {
  const Matrix<double> x = Matrix<double>::Ones(1, 2);
  EXPECT_THROW((void)linear(x, Matrix<double>::Ones(2, 3).eval()), Error);
  EXPECT_THROW((void)linear(x, Matrix<double>::Ones(3, 2).eval(), Vector<double>::Ones(2).eval()), Error);
}

}  // namespace
}  // namespace samestate
