#include "reference/no_value.h"

#include <gtest/gtest.h>

#include "reference/test_time_training.h"

namespace samestate {
namespace {

// A matrix whose elimination meets a pivot of zero, and one that is only of another shape.
TEST(NoValue, IsSaidOfThePivotAndNotOfTheShape) {
  Matrix<double> M(2, 2), B(2, 1);
  M(0, 0) = M(0, 1) = M(1, 0) = M(1, 1) = 1.0;
  B(0, 0) = B(1, 0) = 1.0;
  EXPECT_THROW(static_cast<void>(solve_positive_definite(M, B)), NoValue);
  Matrix<double> low(1, 1);
  low(0, 0) = 1.0;
  try {
    static_cast<void>(solve_positive_definite(M, low));
    ADD_FAILURE() << "another height was taken";
  } catch (const NoValue& none) {
    ADD_FAILURE() << none.what();
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace samestate
