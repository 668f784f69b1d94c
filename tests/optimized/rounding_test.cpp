#include "optimized/cpu/rounding.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace samestate::cpu {
namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

/// Bits equal, or both NaN.
::testing::AssertionResult same(float actual, float expected) {
  if (bits_of(actual) == bits_of(expected) || (std::isnan(actual) && std::isnan(expected))) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << std::hexfloat << actual << " is not " << expected;
}

/// Every value of a format with the low `dropped` bits clear, the midpoint to its neighbour away from zero,
/// and the fp32 numbers on both sides of the midpoint.
template <class Round>
void check_all(int dropped, const Round& round) {
  const std::uint32_t step = 1U << dropped;
  for (std::uint64_t wide = 0; wide < (1ULL << 32U); wide += step) {
    const auto bits = static_cast<std::uint32_t>(wide);
    const float value = from_bits(bits);
    ASSERT_TRUE(same(round(value), value));
    if (!std::isfinite(value)) continue;
    const float away = from_bits(bits + step);  // Inf past the largest number
    const bool even = ((bits >> dropped) & 1U) == 0;
    ASSERT_TRUE(same(round(from_bits(bits + step / 2)), even ? value : away));
    ASSERT_TRUE(same(round(from_bits(bits + step / 2 - 1)), value));
    ASSERT_TRUE(same(round(from_bits(bits + step / 2 + 1)), away));
  }
}

TEST(Rounding, Bf16EveryValueAndMidpoint) { check_all(16, to_bf16); }

TEST(Rounding, Tf32EveryValueAndMidpoint) { check_all(13, to_tf32); }

TEST(Rounding, Tf32AwayDiffersFromNearestEvenOnTiesAlone) {
  for (std::uint64_t bits = 0; bits < (1ULL << 32U); bits += 1021) {
    const float x = from_bits(static_cast<std::uint32_t>(bits));
    const bool tie = std::isfinite(x) && (bits & 0x1fffU) == 0x1000U;
    const float away = from_bits(static_cast<std::uint32_t>(bits + 0x1000U) & 0xffffe000U);
    ASSERT_TRUE(same(to_tf32_away(x), tie ? away : to_tf32(x)));
  }
  EXPECT_EQ(to_tf32_away(0x1.002p0F), 0x1.004p0F);
  EXPECT_EQ(to_tf32(0x1.002p0F), 1.0F);
}

TEST(Rounding, Tf32TruncatedDropsTheTail) {
  for (std::uint64_t bits = 0; bits < (1ULL << 32U); bits += 4099) {
    const float x = from_bits(static_cast<std::uint32_t>(bits));
    const float expected = std::isfinite(x) ? from_bits(bits_of(x) & ~0x1fffU) : x;
    ASSERT_TRUE(same(to_tf32_truncated(x), expected));
  }
}

TEST(Rounding, Fp16AgreesWithTheCompiler) {
  const auto check = [](std::uint32_t bits) {
    const float x = from_bits(bits);
    ASSERT_TRUE(same(to_fp16(x), static_cast<float>(static_cast<_Float16>(x)))) << std::hexfloat << x;
  };
  // All fp16 values, their midpoints and both neighbours: between two of them fp32 has at least 2^13 numbers.
  for (std::uint32_t half = 0; half < 0x7c00U; ++half) {
    const auto value = static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(half)));
    const float next =
        half == 0x7bffU ? 65536.0F
                        : static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(half + 1)));
    const std::uint32_t middle = bits_of(0.5F * (value + next));
    for (const std::uint32_t bits : {bits_of(value), middle - 1, middle, middle + 1}) {
      check(bits);
      check(bits | 0x80000000U);
    }
  }
  for (std::uint64_t bits = 0; bits < (1ULL << 32U); bits += 4099) check(static_cast<std::uint32_t>(bits));
}

TEST(Rounding, KeepsNanAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const auto round : {to_bf16, to_tf32, to_tf32_truncated, to_fp16}) {
    EXPECT_EQ(round(inf), inf);
    EXPECT_EQ(round(-inf), -inf);
    EXPECT_TRUE(std::isnan(round(nan)));
    EXPECT_TRUE(std::isnan(round(from_bits(0x7f800001U))));
    EXPECT_TRUE(std::signbit(round(-0.0F)));
  }
  EXPECT_EQ(to_fp16(65519.996F), 65504.0F);
  EXPECT_EQ(to_fp16(65520.0F), inf);
}

TEST(Rounding, ValuesGoThroughTheNamedFormat) {
  std::vector<float> x(1001);
  std::mt19937 random(7);
  for (float& value : x) value = static_cast<float>(random()) * 0x1p-30F - 2.0F;
  const std::vector<std::pair<Format, float (*)(float)>> formats = {
      {Format::bf16, to_bf16},
      {Format::fp16, to_fp16},
      {Format::tf32, to_tf32},
      {Format::tf32_truncated, to_tf32_truncated},
      {Format::fp32, [](float value) { return value; }},
      {Format::none, [](float value) { return value; }}};
  const auto count = static_cast<std::int64_t>(x.size());
  for (const auto& [format, round] : formats) {
    std::vector<float> apart(x.size());
    std::vector<float> in_place = x;
    round_values(x.data(), apart.data(), count, format);
    round_values(in_place.data(), in_place.data(), count, format);
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_TRUE(same(apart[i], round(x[i])));
    EXPECT_EQ(apart, in_place);
    EXPECT_EQ(apart == x, keeps_fp32(format));
  }
}

TEST(Rounding, ExponentialOfZeroIsOneAndKindsDiffer) {
  int different = 0;
  for (const Exponential kind : {Exponential::exact, Exponential::ex2}) {
    EXPECT_EQ(exponential(0.0F, kind), 1.0F);
    EXPECT_EQ(exponential(-1e38F, kind), 0.0F);
    EXPECT_EQ(exponential(-std::numeric_limits<float>::infinity(), kind), 0.0F);
  }
  for (int i = 1; i < 1000; ++i) {
    const float x = -0.05F * static_cast<float>(i);
    const double exact = std::exp(static_cast<double>(x));
    // expf within an ulp; the product x log2 e adds half an ulp of itself times ln 2 (BOUNDS 4, eps_a).
    EXPECT_NEAR(exponential(x, Exponential::exact), exact, 0x1p-23 * exact);
    EXPECT_NEAR(exponential(x, Exponential::ex2), exact, (3 + 1.5 * std::fabs(x)) * 0x1p-24 * exact);
    different += exponential(x, Exponential::exact) != exponential(x, Exponential::ex2);
  }
  EXPECT_GT(different, 100);
}

}  // namespace
}  // namespace samestate::cpu
