#include "harness/processes/piece_sizes.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(PieceSizes, AreOneRoundUntilAUnitIsMeasured) { EXPECT_EQ(PieceSizes(1000.0, 4, 2).next(), 0.0); }

TEST(PieceSizes, ShrinkWithWhatIsLeftBetweenLimitsInSeconds) {
  PieceSizes sizes(4000.0, 10, 2);
  sizes.measure(5.0, 0.5);  // a tenth of a second a unit, so 20 units a second on two at a time
  EXPECT_DOUBLE_EQ(sizes.next(), 20.0 * PieceSizes::kMostSeconds);
  double before = sizes.next();
  double given = 0.0;
  int pieces = 0;
  while (given < 4000.0) {
    const double next = sizes.next();
    EXPECT_LE(next, before);
    EXPECT_GE(next, 20.0 * PieceSizes::kLeastSeconds);
    before = next;
    sizes.give(next);
    given += next;
    ++pieces;
  }
  EXPECT_DOUBLE_EQ(before, 20.0 * PieceSizes::kLeastSeconds);
  EXPECT_GT(pieces, 100);
  sizes.take_back(4000.0);  // of ranks that were lost
  EXPECT_DOUBLE_EQ(sizes.next(), 20.0 * PieceSizes::kMostSeconds);
}

TEST(PieceSizes, WithoutAnEndAreTheLargest) {
  PieceSizes sizes(PieceSizes::kUnknown, 1000, 1);
  sizes.measure(1.0, 0.01);
  sizes.give(1e9);
  EXPECT_DOUBLE_EQ(sizes.next(), 100.0 * PieceSizes::kMostSeconds);
}

}  // namespace
}  // namespace samestate
