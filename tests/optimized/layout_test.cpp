#include "optimized/cpu/layout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "optimized/cpu/rounding.h"

namespace samestate::cpu {
namespace {

TEST(Layout, LargeNegativeDecaysAreClamped) {
  EXPECT_EQ(clamped_decay(-1e38F), kHardReset);
  EXPECT_EQ(clamped_decay(-127.0F), -127.0F);
  EXPECT_EQ(std::exp(clamped_decay(-HUGE_VALF)), 0.0F);
  EXPECT_TRUE(std::isnan(clamped_decay(NAN)));
}

TEST(Layout, KeysAreNormalisedBeforeTheyAreRounded) {
  const float key[] = {3.0F, 0.0F, 4.0F, 0.0F};  // every other element is another tensor's
  const Rows<const float> rows{key, 4, 2};
  std::vector<float> k(2);
  load_key(rows, 0, 2, false, Format::bf16, k.data());
  EXPECT_EQ(k, (std::vector<float>{3.0F, 4.0F}));
  load_key(rows, 0, 2, true, Format::fp32, k.data());
  EXPECT_NEAR(k[0], 0.6, 1e-6);
  EXPECT_NE(k[0], to_bf16(k[0])) << "a format that shows";
  const float unrounded = k[0];
  load_key(rows, 0, 2, true, Format::bf16, k.data());
  EXPECT_EQ(k[0], to_bf16(unrounded));
}

}  // namespace
}  // namespace samestate::cpu
