#include "fuzz/plan/boundaries.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace samestate {
namespace {

TEST(Boundaries, PowersAndTilesWithTheirNeighboursWithinTheRange) {
  const std::vector<Index> all = boundaries(3, 2049);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(all.front(), 3);
  EXPECT_EQ(all.back(), 2049);
  for (Index at = 8; at <= 256; at += 8) EXPECT_TRUE(std::binary_search(all.begin(), all.end(), at)) << at;
  for (const Index at : {8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048}) {
    for (const Index beside : {-1, 0, 1})
      EXPECT_TRUE(std::binary_search(all.begin(), all.end(), at + beside)) << at + beside;
  }
}

TEST(Boundaries, OfASizeThatIsUnrolledEachValue) {
  const std::vector<Index> all = boundaries(1, 16);
  EXPECT_EQ(std::ssize(all), 16);
  const std::vector<Index> wider = boundaries(1, 64);
  EXPECT_LT(std::count_if(wider.begin(), wider.end(), [](Index v) { return v < 17; }), 16);
}

TEST(Boundaries, BandsHoldEverySizeOnce) {
  for (const auto& [least, most] :
       {std::pair<Index, Index>{0, 4160}, {1, 2560}, {2, 70}, {0, 1}, {3, 9}, {1, 16}}) {
    const std::vector<Band> all = bands(least, most);
    for (Index value = least; value <= most; ++value) {
      EXPECT_EQ(std::count_if(all.begin(), all.end(), [&](const Band& band) { return band.holds(value); }), 1)
          << value << " of " << least << ".." << most;
    }
    for (const Band& band : all) {
      ASSERT_FALSE(band.values.empty()) << band.name;
      for (const Index value : band.values) EXPECT_TRUE(band.holds(value)) << band.name << " " << value;
    }
  }
}

}  // namespace
}  // namespace samestate
