#include "harness/records/attained.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

RatioRange of(std::initializer_list<double> ratios) {
  RatioRange out;
  for (const double ratio : ratios) out.add(ratio);
  return out;
}

TEST(Attained, WhereMostRatiosOfTheElementGateAreOne) {
  EXPECT_TRUE(of({1.0, 0.999, 0.0, 0.96}).attained("element"));
  EXPECT_TRUE(of({1.0, 1.0, 0.5}).attained("element")) << "a case of few elements may miss the tie";
  EXPECT_FALSE(of({1.0, 0.5, 0.4}).attained("element"));
  EXPECT_FALSE(of({1.0, 1.0, 1.01}).attained("element")) << "above 1 is no rounding";
  EXPECT_FALSE(of({1.0, 1.0}).attained("row")) << "a statistic near its limit is news";
  EXPECT_FALSE(of({0.0}).attained("element"));
  EXPECT_FALSE(of({}).attained("element"));
}

}  // namespace
}  // namespace samestate
