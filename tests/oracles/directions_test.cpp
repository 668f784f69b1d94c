#include "oracles/directions.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

double count_of(const Matrix<double>& e) {
  Directions directions;
  directions.add(e);
  return directions.count();
}

TEST(Directions, OneOuterProductIsOne) {
  const Vector<double> x = Vector<double>::LinSpaced(7, 1.0, 4.0),
                       y = Vector<double>::LinSpaced(5, -2.0, 3.0);
  EXPECT_NEAR(count_of(x * y.transpose()), 1.0, 1e-12);
  EXPECT_NEAR(count_of(y * x.transpose()), 1.0, 1e-12);
}

TEST(Directions, RowsThatHaveNothingInCommonAreAsMany) {
  EXPECT_NEAR(count_of(Matrix<double>::Identity(6, 6)), 6.0, 1e-12);
  EXPECT_NEAR(count_of(3.0 * Matrix<double>::Identity(4, 9)), 4.0, 1e-12);
  EXPECT_NEAR(count_of(Matrix<double>::Identity(9, 4)), 4.0, 1e-12);
}

TEST(Directions, SmallOnesCountForLittle) {
  Matrix<double> e = Matrix<double>::Identity(2, 2);
  e(1, 1) = 0.1;
  EXPECT_NEAR(count_of(e), 1.01 * 1.01 / 1.0001, 1e-9);
}

TEST(Directions, OfZerosThereAreNone) { EXPECT_EQ(count_of(Matrix<double>::Zero(3, 4)), 0.0); }

// Each of several matrices has directions of its own.
TEST(Directions, MatricesAddUp) {
  Directions directions;
  for (int i = 0; i < 3; ++i) directions.add(Matrix<double>::Ones(4, 5));
  EXPECT_NEAR(directions.count(), 3.0, 1e-12);
}

}  // namespace
}  // namespace samestate
