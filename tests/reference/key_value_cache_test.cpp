#include "reference/key_value_cache.h"

#include <gtest/gtest.h>

#include "tests/reference/column.h"

namespace samestate {
namespace {

using test::column;

TEST(KeyValueCache, GrowsAndRefusesOtherWidths) {
  const KeyValueCache<double> one = KeyValueCache<double>{}.appended(column({1}), column({2}));
  const KeyValueCache<double> two = one.appended(column({3, 5}), column({4, 6}));
  EXPECT_EQ(two.tokens(), 3);
  EXPECT_EQ(two.k, column({1, 3, 5}));
  EXPECT_EQ(two.v, column({2, 4, 6}));
  EXPECT_EQ(two.appended(Matrix<double>(0, 1), Matrix<double>(0, 1)).tokens(), 3);
  EXPECT_THROW((void)one.appended(Matrix<double>::Ones(1, 2), column({1})), Error);
  EXPECT_THROW((void)one.appended(column({1}), Matrix<double>::Ones(1, 2)), Error);
  EXPECT_THROW((void)one.appended(column({1, 2}), column({1})), Error);
}

}  // namespace
}  // namespace samestate
