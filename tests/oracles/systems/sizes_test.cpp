#include "oracles/systems/sizes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace samestate {
namespace {

// Whatever the order in which sizes come, they stand in that of their names, as in the map that they were before.
TEST(Sizes, TheyAreAsInAMap) {
  std::map<std::string, std::int64_t, std::less<>> map;
  Sizes sizes;
  for (const auto& [name, value] : {std::pair{"dv", 4}, {"H", 2}, {"q_lora", 0}, {"dk", 8}, {"D", 1}, {"dk", 9}}) {
    EXPECT_EQ(sizes.emplace(name, value).second, map.emplace(name, value).second) << name;
  }
  ASSERT_EQ(sizes.size(), map.size());
  auto at = map.begin();
  for (const auto& [name, value] : sizes) {
    EXPECT_EQ(name, at->first);
    EXPECT_EQ(value, at->second);
    ++at;
  }
  EXPECT_EQ(sizes.at("dk"), 8);
  EXPECT_TRUE(sizes.contains("q_lora"));
  EXPECT_EQ(sizes.find("W"), sizes.end());
  sizes["W"] = 3;
  sizes["dk"] += 1;
  EXPECT_EQ(sizes.at("W"), 3);
  EXPECT_EQ(sizes.at("dk"), 9);
  EXPECT_THROW((void)sizes.at("d"), Error);
}

TEST(Sizes, TheyAreEqualWhereNamesAndValuesAre) {
  const Sizes sizes{{"H", 2}, {"dk", 8}};
  EXPECT_EQ(sizes, (Sizes{{"dk", 8}, {"H", 2}}));
  EXPECT_FALSE(sizes == (Sizes{{"H", 2}, {"dk", 9}}));
  EXPECT_FALSE(sizes == (Sizes{{"H", 2}, {"dv", 8}}));
  EXPECT_FALSE(sizes == (Sizes{{"H", 2}}));
}

// One more than there is room for is an error that names it, and nothing is written behind the end.
TEST(Sizes, TheyHaveAMost) {
  static constexpr std::string_view kNames = "abcdefghijklmnopqrstuvwxyz";
  Sizes sizes;
  for (std::size_t i = 0; i < Sizes::kMost; ++i) sizes[kNames.substr(i, 1)] = static_cast<std::int64_t>(i);
  EXPECT_THROW(sizes["z"] = 1, Error);
  EXPECT_EQ(sizes.size(), Sizes::kMost);
  EXPECT_THROW((Extents{1, 2, 3, 4, 5, 6, 7}), Error);
}

TEST(Extents, TheyAreThoseThatWereGiven) {
  Extents extents{3, 4, 5};
  EXPECT_EQ(extents.size(), 3U);
  EXPECT_EQ(extents.front(), 3);
  EXPECT_EQ(extents.back(), 5);
  extents[1] = 7;
  EXPECT_EQ(extents, Extents(std::vector<std::int64_t>{3, 7, 5}));
  EXPECT_FALSE(extents == (Extents{3, 7}));
  EXPECT_TRUE(Extents().empty());
}

}  // namespace
}  // namespace samestate
