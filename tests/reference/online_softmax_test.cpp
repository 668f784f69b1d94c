#include "reference/online_softmax.h"

#include <gtest/gtest.h>

#include "tests/reference/column.h"

namespace samestate {
namespace {

using test::column;

// 8.3: from nothing, without exp(-inf + inf).
TEST(OnlineSoftmax, BeginsWithoutAMaximum) {
  OnlineSoftmax<double> row(1);
  EXPECT_TRUE(row.empty);
  row.merge(OnlineSoftmax<double>(1));
  EXPECT_TRUE(row.empty);
  row.raise(-1e300);
  row.add(-1e300, column({3}));
  EXPECT_EQ(row.sum, 1.0);
  EXPECT_EQ(row.values(0), 3.0);
  OnlineSoftmax<double> from_nothing(1);
  from_nothing.merge(row);
  EXPECT_EQ(from_nothing.maximum, -1e300);
  EXPECT_EQ(from_nothing.values(0), 3.0);
}

TEST(OnlineSoftmax, RescalesWhatItHasWhenTheMaximumRises) {
  OnlineSoftmax<double> row(1);
  row.raise(0);
  row.add(0, column({4}));
  row.raise(std::log(2.0));
  EXPECT_NEAR(row.sum, 0.5, 1e-16);
  EXPECT_NEAR(row.values(0), 2, 1e-15);
  row.raise(-5);
  EXPECT_NEAR(row.sum, 0.5, 1e-16);
}

TEST(OnlineSoftmax, TakesTilesOfAtLeastOneKey) {
  AttentionInputs<double> x;
  x.q = column({1});
  x.k = column({0});
  x.v = column({3});
  EXPECT_EQ(softmax_attention_online(x, 1), column({3}));
  EXPECT_THROW((void)softmax_attention_online(x, 0), Error);
  EXPECT_THROW((void)softmax_attention_merged(x, -1), Error);
}

}  // namespace
}  // namespace samestate
