#include "optimized/cpu/products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "optimized/cpu/emulated_sums.h"
#include "optimized/cpu/fused_sums.h"

namespace samestate::cpu {
namespace {

Block random_block(std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
  std::mt19937 random(seed);
  Block x;
  x.resize(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) x.row(i)[j] = static_cast<float>(random()) * 0x1p-31F - 1.0F;
  }
  return x;
}

TEST(FusedSums, ProductIsTheChainOfFusedMultiplyAdds) {
  for (std::int64_t rows = 1; rows <= 14; ++rows) {
    for (const std::int64_t columns : {1, 15, 16, 17, 40}) {
      for (const std::int64_t inner : {1, 2, 31}) {
        const Block a = random_block(rows, inner, 1);
        const Block b = random_block(inner, columns, 2);
        Block c;
        product(FusedSums{}, a, b, c);
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < columns; ++j) {
            float sum = 0.0F;
            for (std::int64_t l = 0; l < inner; ++l) sum = std::fma(a.row(i)[l], b.row(l)[j], sum);
            ASSERT_EQ(c.row(i)[j], sum) << rows << " x " << columns << " x " << inner;
          }
          for (std::int64_t j = columns; j < c.stride; ++j) ASSERT_EQ(c.row(i)[j], 0.0F);
        }
      }
    }
  }
}

template <class Sums>
void check_triangles(const Sums& sums) {
  for (const std::int64_t size : {1, 11, 12, 13, 37, 64}) {
    Block a = random_block(size, size, 3);
    const Block b = random_block(size, 20, 4);
    Block full;
    Block part;
    product(sums, a, a, full);
    product_lower(sums, a, a, part);
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) ASSERT_EQ(part.row(i)[j], full.row(i)[j]);
      for (std::int64_t j = i + 1; j < size; ++j) a.row(i)[j] = 0.0F;
    }
    product(sums, a, b, full);
    lower_product(sums, a, b, part);
    EXPECT_EQ(part.values, full.values);
  }
}

TEST(FusedSums, TrianglesAreTheFullProduct) { check_triangles(FusedSums{}); }

TEST(EmulatedSums, TrianglesAreTheFullProduct) {
  check_triangles(EmulatedSums{Accumulator::tensor_core});
  check_triangles(EmulatedSums{Accumulator::fp32});
}

TEST(EmulatedSums, TruncatesTowardZero) {
  const double just_below = 1.0 + 0x1.8p-24;  // nearer to 1 + 2^-23
  EXPECT_EQ(EmulatedSums::truncate(just_below), 1.0F);
  EXPECT_EQ(EmulatedSums::truncate(-just_below), -1.0F);
  EXPECT_EQ(static_cast<float>(just_below), 1.0F + 0x1p-23F);
  EXPECT_EQ(EmulatedSums::truncate(0.75), 0.75F);
  EXPECT_EQ(EmulatedSums::truncate(1e300), std::numeric_limits<float>::max());
  EXPECT_EQ(EmulatedSums::truncate(-HUGE_VAL), -HUGE_VALF);
  EXPECT_TRUE(std::isnan(EmulatedSums::truncate(NAN)));
  EXPECT_EQ(EmulatedSums::truncate(0x1p-150), 0.0F);
}

/// x . y with one row and one column.
template <class Sums>
float dot(const Sums& sums, const std::vector<float>& x, const std::vector<float>& y) {
  Block a;
  Block b;
  Block c;
  a.resize(1, static_cast<std::int64_t>(x.size()));
  b.resize(a.columns, 1);
  for (std::int64_t l = 0; l < a.columns; ++l) {
    a.row(0)[l] = x[l];
    b.row(l)[0] = y[l];
  }
  product(sums, a, b, c);
  return c.row(0)[0];
}

TEST(EmulatedSums, SixteenTermsAreExactAndTheOrderOfFp32IsReversed) {
  // 2^24 + 1 is not an fp32 number: fused sums from the left lose each 1, a block of 16 keeps them, and from
  // the right the ones add up first.
  std::vector<float> x(17, 1.0F);
  x[0] = 0x1p24F;
  const std::vector<float> ones(17, 1.0F);
  EXPECT_EQ(dot(FusedSums{}, x, ones), 0x1p24F);
  EXPECT_EQ(dot(EmulatedSums{Accumulator::fp32}, x, ones), 0x1p24F + 16.0F);
  // Block 1 = 2^24 + 15, truncated to 2^24 + 14; block 2 adds 1 and is truncated again.
  EXPECT_EQ(dot(EmulatedSums{Accumulator::tensor_core}, x, ones), 0x1p24F + 14.0F);
}

template <class Sums>
void check_read_and_write(const Sums& sums, double allowance) {
  constexpr std::int64_t dk = 19;
  for (const std::int64_t width : {8, 16, 32, 64}) {
    std::mt19937 random(5);
    const auto fill = [&](std::int64_t count) {
      std::vector<float> x(static_cast<std::size_t>(count));
      for (float& value : x) value = static_cast<float>(random()) * 0x1p-31F - 1.0F;
      return x;
    };
    const std::vector<float> k = fill(dk);
    const std::vector<float> q = fill(dk);
    const std::vector<float> u = fill(width);
    const std::vector<float> before = fill(dk * width);
    std::vector<float> state = before;
    std::vector<float> p(static_cast<std::size_t>(width));
    std::vector<float> o(static_cast<std::size_t>(width));
    sums.read(k.data(), 0.75F, state.data(), dk, width, p.data());
    EXPECT_EQ(state, before);
    sums.write(k.data(), u.data(), q.data(), 0.75F, state.data(), dk, width, o.data());
    for (std::int64_t c = 0; c < width; ++c) {
      double read = 0;
      double out = 0;
      for (std::int64_t l = 0; l < dk; ++l) {
        const float decayed = 0.75F * before[l * width + c];
        read += static_cast<double>(k[l]) * decayed;
        ASSERT_EQ(state[l * width + c], std::fma(k[l], u[c], decayed));
        out += static_cast<double>(q[l]) * state[l * width + c];
      }
      ASSERT_NEAR(p[c], read, allowance);
      ASSERT_NEAR(o[c], out, allowance);
    }
  }
}

TEST(Sums, ReadDecaysWithoutStoringAndWriteRoundsOnce) {
  // dk terms of at most 2 in magnitude: dk roundings of partial sums of at most 2 dk, to nearest or
  // truncated.
  constexpr double allowance = 19 * 2 * 19 * 0x1p-23;
  check_read_and_write(FusedSums{}, allowance);
  check_read_and_write(EmulatedSums{Accumulator::fp32}, allowance);
  check_read_and_write(EmulatedSums{Accumulator::tensor_core}, allowance);
}

}  // namespace
}  // namespace samestate::cpu
