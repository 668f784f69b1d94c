#include "reference/l2norm.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

// EQUATIONS 5.2: |l2norm(x)|^2 = n / (n + 1e-6); a zero row stays exactly zero.
TEST(L2Norm, AddsEpsilonToTheSumOfSquares) {
  Matrix<double> x(3, 2);
  x << 3, 4, 0, 0, 1e-3, 0;
  const Matrix<double> y = l2norm(x);
  EXPECT_NEAR(y.row(0).squaredNorm(), 25 / (25 + 1e-6), 1e-15);
  EXPECT_EQ(y.row(1), (Matrix<double>::Zero(1, 2)));
  // |x|^2 = 1e-6 gives length 0.7071 and not 1 (8.3): max(|x|, eps) would give 1 (BUGS M48).
  EXPECT_NEAR(y.row(2).norm(), std::sqrt(0.5), 1e-15);
}

}  // namespace
}  // namespace samestate
