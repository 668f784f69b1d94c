#include "optimized/cpu/block.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace samestate::cpu {
namespace {

/// Returns x[i, j] = 10 i + j + 1/1024, which is not a bf16 number; the padding is zero.
Block counted(std::int64_t rows, std::int64_t columns) {
  Block x;
  x.resize(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) x.row(i)[j] = static_cast<float>(10 * i + j) + 0x1p-10F;
  }
  return x;
}

TEST(Block, ANewSizeIsZeroAndTheSameSizeUntouched) {
  Block x = counted(3, 17);
  EXPECT_EQ(x.stride, 2 * kPanel);
  const std::vector<float> before = x.values;
  x.resize(3, 17);
  EXPECT_EQ(x.values, before);
  for (const auto& [rows, columns] : {std::pair{17, 3}, {2, 17}, {3, 40}}) {
    std::fill(x.values.begin(), x.values.end(), 7.0F);
    x.resize(rows, columns);
    EXPECT_EQ(x.size(), static_cast<std::int64_t>(x.values.size()));
    EXPECT_TRUE(std::all_of(x.values.begin(), x.values.end(), [](float value) { return value == 0.0F; }));
  }
}

TEST(Block, RoundedIsTheSameBlockWhereNothingChanges) {
  const Block x = counted(2, 3);
  Block scratch;
  EXPECT_EQ(&rounded(x, Format::fp32, scratch), &x);
  EXPECT_EQ(&rounded(x, Format::none, scratch), &x);
  EXPECT_EQ(&rounded(x, Format::bf16, scratch), &scratch);
  EXPECT_EQ(scratch.row(1)[2], 12.0F);
  EXPECT_EQ(x.row(1)[2], 12.0F + 0x1p-10F);
}

TEST(Block, TransposesAndScales) {
  const Block x = counted(3, 18);
  Block transposed;
  transpose(x, transposed);
  Block scaled;
  const float factor[] = {2.0F, -1.0F, 0.5F};
  scale_rows(factor, x, scaled);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 18; ++j) {
      ASSERT_EQ(transposed.row(j)[i], x.row(i)[j]);
      ASSERT_EQ(scaled.row(i)[j], factor[i] * x.row(i)[j]);
    }
  }
}

}  // namespace
}  // namespace samestate::cpu
