#include "oracles/bounds/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracles/limits.h"

namespace samestate {
namespace {

TEST(FewRows, OneAndTwoRowsHaveLimitsInClosedForm) {
  EXPECT_NEAR(few_rows_limit(1), kRowLambda, 1e-9);
  // P(chi^2_2 > x) = e^{-x / 2}.
  const double tail = std::erfc(kRowLambda / std::sqrt(2.0));
  EXPECT_NEAR(few_rows_limit(2), std::sqrt(-std::log(tail)), 1e-9);
}

TEST(FewRows, MoreRowsHaveLessUntilManyHaveTheUsualLimit) {
  double before = few_rows_limit(0.5);
  EXPECT_GT(before, kRowLambda);
  for (double rows = 1.0; rows < kFewRows; rows += 0.25) {
    const double now = few_rows_limit(rows);
    EXPECT_TRUE(now < before || now == kHeadLimitFew) << rows;
    EXPECT_GE(now, kHeadLimitFew) << rows;
    before = now;
  }
  EXPECT_GT(few_rows_limit(6), kHeadLimitFew);
  EXPECT_EQ(before, kHeadLimitFew);
  EXPECT_EQ(few_rows_limit(kFewRows), kHeadLimitFew);
  EXPECT_EQ(few_rows_limit(0), kHeadLimitFew);
}

}  // namespace
}  // namespace samestate
