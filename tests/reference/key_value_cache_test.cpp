#include "reference/key_value_cache.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

Matrix<double> column(std::initializer_list<double> values) {
  Matrix<double> x(static_cast<Index>(values.size()), 1);
  Index i = 0;
  for (double value : values) x(i++, 0) = value;
  return x;
}

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
