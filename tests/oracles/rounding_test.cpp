#include "oracles/rounding.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "oracles/numbers.h"

namespace samestate {
namespace {

/// Every finite non-negative value of a format with `fraction` fraction bits and `exponent` exponent bits, in
/// order, decoded from its bits by the definition of IEEE 754.
std::vector<double> values_of(int exponent, int fraction) {
  const int bias = (1 << (exponent - 1)) - 1;
  std::vector<double> values;
  for (int field = 0; field < (1 << exponent) - 1; ++field) {
    for (int bits = 0; bits < (1 << fraction); ++bits) {
      values.push_back(field == 0 ? std::ldexp(bits, 1 - bias - fraction)
                                  : std::ldexp((1 << fraction) + bits, field - bias - fraction));
    }
  }
  return values;
}

struct Layout {
  Format format;
  int exponent;
  int fraction;
};
class Exhaustive : public testing::TestWithParam<Layout> {};

// Every value stays; every midpoint goes to the even neighbour; the doubles next to it go to the nearer one.
TEST_P(Exhaustive, RoundsToNearestEven) {
  const auto [format, exponent, fraction] = GetParam();
  const std::vector<double> values = values_of(exponent, fraction);
  EXPECT_EQ(largest_finite(format), values.back());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double low = values[i];
    const double high = i + 1 < values.size() ? values[i + 1] : std::ldexp(1.0, 1 << (exponent - 1));
    const double beyond = i + 1 < values.size() ? high : kInfinity;
    const double middle = (low + high) / 2;
    ASSERT_EQ(round_to(low, format), low);
    ASSERT_EQ(round_to(-low, format), -low);
    ASSERT_EQ(round_to(static_cast<float>(low), format), static_cast<float>(low));
    ASSERT_EQ(round_to(middle, format), i % 2 == 0 ? low : beyond) << low;
    ASSERT_EQ(round_to(-middle, format), i % 2 == 0 ? -low : -beyond) << low;
    ASSERT_EQ(round_to(std::nextafter(middle, 0.0), format), low);
    ASSERT_EQ(round_to(std::nextafter(middle, kInfinity), format), beyond);
  }
  EXPECT_EQ(round_to(1e300, format), kInfinity);
  EXPECT_EQ(round_to(-1e300, format), -kInfinity);
}

// half_ulp is half the distance to the next value, at the value and anywhere up to it; the two constants
// follow.
TEST_P(Exhaustive, HalfUlpIsHalfTheSpacing) {
  const auto [format, exponent, fraction] = GetParam();
  const std::vector<double> values = values_of(exponent, fraction);
  double largest_relative = 0.0;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double half = (values[i + 1] - values[i]) / 2;
    ASSERT_EQ(half_ulp(values[i], format), half) << values[i];
    ASSERT_EQ(half_ulp(-std::nextafter(values[i + 1], 0.0), format), half) << values[i];
    if (values[i] >= std::ldexp(1.0, 2 - (1 << (exponent - 1)))) {
      largest_relative = std::max(largest_relative, half / values[i]);
    }
  }
  EXPECT_EQ(unit_roundoff(format), largest_relative);
  EXPECT_EQ(subnormal_error(format), values[1] / 2);
}

INSTANTIATE_TEST_SUITE_P(Formats, Exhaustive,
                         testing::Values(Layout{Format::bf16, 8, 7}, Layout{Format::fp16, 5, 10},
                                         Layout{Format::tf32, 8, 10}));

TEST(Rounding, TruncationDropsTheLowBits) {
  const std::vector<double> values = values_of(8, 10);
  const Format format = Format::tf32_truncated;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    const double below_next = std::nextafter(values[i + 1], 0.0);
    ASSERT_EQ(round_to(values[i], format), values[i]);
    ASSERT_EQ(round_to(below_next, format), values[i]);
    ASSERT_EQ(round_to(-below_next, format), -values[i]);
    ASSERT_EQ(half_ulp(values[i], format), values[i + 1] - values[i]);
  }
  EXPECT_EQ(round_to(std::nextafter(0x1p128, 0.0), format), largest_finite(format));
  EXPECT_EQ(round_to(0x1p128, format), kInfinity);
  EXPECT_EQ(unit_roundoff(format), 0x1p-10);
  EXPECT_EQ(subnormal_error(format), 0x1p-136);
}

// The hardware's own conversion is another implementation of the fp32 case.
TEST(Rounding, Fp32IsTheConversionFromDouble) {
  std::mt19937_64 bits(7);
  for (int i = 0; i < 200000; ++i) {
    const auto x = std::bit_cast<double>(bits());
    const double near = std::ldexp(1.0 + std::ldexp(static_cast<double>(bits() >> 12U), -52),
                                   static_cast<int>(bits() % 290) - 155);
    for (const double value : {x, near}) {
      if (std::isnan(value)) continue;
      ASSERT_EQ(round_to(value, Format::fp32), static_cast<double>(static_cast<float>(value))) << value;
    }
  }
  EXPECT_EQ(half_ulp(1.0, Format::fp32), 0x1p-24);
  EXPECT_EQ(half_ulp(0.0, Format::fp32), 0x1p-150);
  EXPECT_EQ(largest_finite(Format::fp32), static_cast<double>(std::numeric_limits<float>::max()));
}

TEST(Rounding, SpecialValues) {
  for (const Format format : {Format::fp32, Format::tf32, Format::tf32_truncated, Format::bf16, Format::fp16,
                              Format::fp64, Format::none}) {
    EXPECT_TRUE(std::isnan(round_to(std::nan(""), format)));
    EXPECT_EQ(round_to(kInfinity, format), kInfinity);
    EXPECT_EQ(round_to(-kInfinity, format), -kInfinity);
    EXPECT_TRUE(std::signbit(round_to(-0.0, format)));
    EXPECT_FALSE(std::signbit(round_to(0.0, format)));
    if (format == Format::none) continue;
    EXPECT_EQ(half_ulp(-kInfinity, format), kInfinity);
    EXPECT_TRUE(std::isnan(half_ulp(std::nan(""), format)));
  }
  EXPECT_EQ(round_to(0.1, Format::fp64), 0.1);
  EXPECT_EQ(round_to(0.1, Format::none), 0.1);
  EXPECT_EQ(half_ulp(1.0, Format::none), 0.0);
  EXPECT_EQ(half_ulp(1.0, Format::fp64), 0x1p-53);
  EXPECT_EQ(unit_roundoff(Format::none), 0.0);
  EXPECT_TRUE(std::signbit(round_to(-1e-60, Format::bf16)));
}

// Rounding a double to fp32 and then to bf16 is not rounding it once: the value just above a bf16 midpoint.
TEST(Rounding, OneRoundingNotTwo) {
  const double x = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(round_to(x, Format::bf16), 1.0 + 0x1p-7);
  EXPECT_EQ(round_to(round_to(x, Format::fp32), Format::bf16), 1.0);
}

}  // namespace
}  // namespace samestate
