#include "oracles/bounds/sampled_model.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "oracles/bounds/stochastic.h"
#include "oracles/bounds/stored.h"
#include "oracles/contracts.h"
#include "oracles/judge_policy.h"
#include "oracles/limits.h"
#include "reference/sequence.h"

namespace samestate {
namespace {

SampledModel drawn(std::uint64_t salt, Format kept = Format::bf16) {
  SampledModel model;
  model.kept = kept;
  model.salt = salt;
  return model;
}

TEST(SampledModel, ADrawIsAFunctionOfTheValue) {
  const double x = 1.2345678;
  EXPECT_EQ(random_function(x, 7), random_function(x, 7));
  EXPECT_NE(random_function(x, 7), random_function(x, 8));
  EXPECT_EQ(random_function(-x, 7), -random_function(x, 7));
  EXPECT_EQ(random_function(4.0 * x, 7), random_function(x, 7));
}

// A draw that kept the sign of its value would push every sample outwards alike and hide that in no spread.
TEST(SampledModel, RoundingsHaveTheMeanZeroAndTheVarianceOfASpacing) {
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> uniform(1.0, 1.99);
  double sum = 0.0;
  double squares = 0.0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; ++i) {
    const double x = uniform(engine);
    const SamplingScope scope(drawn(engine()));
    const double error = (kept_in(x, Format::bf16) - x) * 0x1p8;  // half spacings
    EXPECT_LE(std::abs(error), 1.0);
    sum += error;
    squares += error * error;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 4.0 * std::sqrt(1.0 / 3.0 / kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3.0, 0.005);
}

// A factor of 0.998 takes each bf16 number back to itself, so that all errors are that factor.
TEST(SampledModel, OneSampleOfThoseOfALookRoundsToNearest) {
  int nearest = 0;
  for (int n = 0; n < kGatePolicy.samples; ++n) {
    const SamplingScope scope(SampledModel::sample(contract_named("bf16"), 1, n));
    bool all = true;
    for (int i = 0; i < 100; ++i) {
      const double v = 1.0 + i * 0x1p-7;
      all = all && kept_in(v * 0.9985, Format::bf16) == v;
    }
    nearest += all;
  }
  EXPECT_EQ(nearest, 1);
}

TEST(SampledModel, EverySecondPairOfSamplesRoundsWhatHardlyDiffersAlike) {
  const double x = 1.0 + 0x1.3p-8;
  const auto rises = [&](int n, double y) {
    const SamplingScope scope(SampledModel::sample(contract_named("bf16"), 1, n));
    return kept_in(y, Format::bf16) > y;
  };
  std::array<int, 4> agree{};  // of samples n mod 4, of values 2^-20 apart
  for (int n = 0; n < 400; ++n) {
    agree.at(static_cast<std::size_t>(n % 4)) += rises(n, x) == rises(n, x + 0x1p-20);
    EXPECT_NE(rises(n, x), rises(n, -x));
    EXPECT_EQ(rises(n, x), rises(n, x * 0x1p-20));
  }
  EXPECT_EQ(agree[2] + agree[3], 200);
  EXPECT_LT(agree[0] + agree[1], 150);
}

TEST(SampledModel, HalfOfTheSamplesHaveErrorsOfTheSizeOfRoundingToNearest) {
  for (const double x : {1.0 + 0x1p-8, 1.0 + 0x1.3p-9, 1.7}) {
    int up = 0;
    for (std::uint64_t salt = 1; salt <= 1000; ++salt) {
      SampledModel model = drawn(salt * 0x9E3779B97F4A7C15U);
      model.size_of_nearest = true;
      const SamplingScope scope(model);
      const double kept = kept_in(x, Format::bf16);
      EXPECT_DOUBLE_EQ(std::abs(kept - x), std::abs(round_to(x, Format::bf16) - x));
      up += kept > x;
    }
    EXPECT_NEAR(up, 500, 65) << x;
  }
  int such = 0;
  for (int n = 0; n < kGatePolicy.samples; ++n)
    such += SampledModel::sample(contract_named("bf16"), 1, n).size_of_nearest;
  EXPECT_EQ(2 * such, kGatePolicy.samples);
}

TEST(SampledModel, WhatIsANumberOfTheFormatStays) {
  const SamplingScope scope(drawn(3));
  for (const double x : {0.0, 1.0, -0.5, 1.0 + 0x1p-7, 0x1p-130}) EXPECT_EQ(kept_in(x, Format::bf16), x);
  EXPECT_NE(kept_in(1.0 + 0x1p-9, Format::bf16), 1.0 + 0x1p-9);
  EXPECT_TRUE(std::isinf(kept_in(1e6, Format::fp16)));
}

TEST(SampledModel, TheTwinRoundsToNearest) {
  const SamplingScope scope(SampledModel::twin(contract_named("bf16")));
  EXPECT_EQ(RoundingPoint<Stored>::stored(Stored(1.0 + 0x1.8p-8)).value(), 1.0 + 0x1p-7);
  EXPECT_EQ(RoundingPoint<Stochastic>::stored(Stochastic(1.0 + 0x1.8p-8)).value(), 1.0 + 0x1p-7);
}

TEST(SampledModel, ATf32UnitRoundsOperandsAndStoresFp32) {
  const double x = 1.0 + 0x1.8p-11;
  {
    const SamplingScope scope(SampledModel::twin(contract_named("tf32")));
    EXPECT_EQ(RoundingPoint<Stored>::operand(Stored(x)).value(), 1.0 + 0x1p-10);
    EXPECT_EQ(RoundingPoint<Stochastic>::operand(Stochastic(x)).value(), 1.0 + 0x1p-10);
    EXPECT_EQ(RoundingPoint<Stored>::stored(Stored(x)).value(), x);
  }
  {
    const SamplingScope scope(SampledModel::twin(contract_named("tf32_truncated")));
    EXPECT_EQ(RoundingPoint<Stored>::operand(Stored(x)).value(), 1.0);
    EXPECT_EQ(RoundingPoint<Stored>::operand(Stored(-x)).value(), -1.0);
  }
  const SamplingScope scope(SampledModel::twin(contract_named("bf16")));
  const Matrix<Stored> a = Matrix<Stored>::Constant(1, 1, Stored(x));
  static constexpr PointRow kRows[] = {{"made", "A product of this test.", PointUse::product}};
  static constexpr PointTable kTable{"sampled_model_test", PointTier::equation, kRows};
  EXPECT_EQ(matrix_product(a, a, kTable["made"])(0, 0).value(), x * x)
      << "16 bit: what is stored is marked apart";
}

// Cut off: never larger, by half a spacing in the mean, whichever sample.
TEST(SampledModel, WhatIsCutOffIsSmaller) {
  std::mt19937_64 engine(9);
  std::uniform_real_distribution<double> uniform(1.0, 1.99);
  double sum = 0.0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = (i % 2 == 0 ? 1.0 : -1.0) * uniform(engine);
    SampledModel model = SampledModel::sample(contract_named("tf32_truncated"), engine(), i % 31);
    const SamplingScope scope(model);
    const double kept = RoundingPoint<Stored>::operand(Stored(x)).value();
    const double spacing = half_ulp(x, Format::tf32_truncated);
    const double off = (std::abs(x) - std::abs(kept)) / spacing;
    EXPECT_GE(off, 0.0);
    EXPECT_LE(off, 1.0);
    sum += off;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.01);
}

TEST(SampledModel, ScopesNest) {
  const SamplingScope outer(drawn(3, Format::none));
  { const SamplingScope inner(drawn(4)); }
  EXPECT_EQ(kept_in(1.1, detail::sampling().model.kept), 1.1);
}

// The population must hold the real thing: fp32 sums in random order, within what the draws spread to.
TEST(Stochastic, SumsSpreadAsFloatsInAnyOrderDo) {
  std::mt19937_64 engine(11);
  std::normal_distribution<float> normal;
  double real = 0.0;
  double modelled = 0.0;
  for (int round = 0; round < 400; ++round) {
    std::vector<float> terms(64);
    for (float& x : terms) x = normal(engine);
    double exact = 0.0;
    float sum = 0.0F;
    Stochastic pending(0.0);
    for (const float x : terms) {
      exact += static_cast<double>(x);
      sum += x;
      pending += Stochastic(static_cast<double>(x));
    }
    SampledModel model = drawn(engine());
    model.working = true;
    const SamplingScope scope(model);
    // The terms are exact: their sum alone is drawn. One that is settled draws as a product by another factor does.
    const double once = (pending * Stochastic(3.0)).value() / 3.0;
    real += std::pow(static_cast<double>(sum) - exact, 2);
    modelled += std::pow(once - exact, 2);
  }
  EXPECT_GT(modelled, 0.5 * real);
  EXPECT_LT(modelled, 8.0 * real);
}

// Each sixteenth square is 10,000 times the others: what a sum in order loses of them is within what samples lose, which of terms
// that are alike is little.
TEST(Stochastic, SumsLoseSmallTermsBehindLargeOnes) {
  constexpr int kTerms = 16384;
  std::mt19937_64 engine(13);
  std::normal_distribution<double> normal;
  for (const double large : {100.0, 1.0}) {
    double in_order = 0.0, modelled = 0.0;
    for (int round = 0; round < 40; ++round) {
      double exact = 0.0;
      float sum = 0.0F;
      Stochastic pending(0.0);
      for (int i = 0; i < kTerms; ++i) {
        const double x = (i % 16 == round % 16 ? large : 1.0) * normal(engine);
        const auto square = static_cast<double>(static_cast<float>(x * x));
        exact += square, sum += static_cast<float>(square), pending += Stochastic(square);
      }
      SampledModel model = SampledModel::sample(contract_named("fp32"), 1, round);
      const SamplingScope scope(model);
      const double units = exact * kTerms * 0x1p-24;
      in_order += (static_cast<double>(sum) - exact) / units / 40;
      modelled += ((pending * Stochastic(3.0)).value() / 3.0 - exact) / units / 40;
    }
    const bool spiky = large > 1.0;
    EXPECT_LT(in_order, spiky ? -0.02 : 0.0);
    EXPECT_NEAR(modelled, spiky ? -0.5 * kStagnation : 0.0, spiky ? 0.2 * kStagnation : 0.1 * kStagnation);
    EXPECT_LT(std::abs(in_order), spiky ? 4 * std::abs(modelled) : 0.003);
  }
}

// mlx's exponential on a CPU, Triton's on a device: what grows with x is its rounded product.
TEST(Stochastic, ExponentialsByBaseTwoSpreadAsTheirRoundedProductsDo) {
  constexpr int kRounds = 4000;
  std::mt19937_64 engine(12);
  for (const float far : {-2.0F, -12.0F, -70.0F}) {
    std::uniform_real_distribution<float> near(1.1F * far, 0.9F * far);
    const auto drawn_square = [&](Exponential exponential, float x, int n) {
      Contract contract;
      contract.exponential = exponential;
      const SamplingScope scope(SampledModel::sample(contract, engine(), n));
      const auto at = static_cast<double>(x);
      return std::pow(exp(Stochastic(at)).value() / std::exp(at) - 1.0, 2);
    };
    double real = 0.0;
    double by_base_two = 0.0;
    double library = 0.0;
    for (int round = 0; round < kRounds; ++round) {
      const float x = near(engine);
      const auto found = static_cast<double>(std::exp2(x * 1.4426950408889634F));
      real += std::pow(found / std::exp(static_cast<double>(x)) - 1.0, 2);
      by_base_two += drawn_square(Exponential::ex2, x, round);
      library += drawn_square(Exponential::exact, x, round);
    }
    EXPECT_GT(by_base_two, 0.5 * real) << far;
    EXPECT_LT(by_base_two, 8.0 * real) << far;
    if (far < -10.0F) {
      EXPECT_LT(library, 0.5 * real) << far;
    }
  }
}

// flash-linear-attention's gates: right by the worst case, which allows every way.
TEST(Stochastic, SoftplusMayAddTheOne) {
  const float x = -8.3F;
  const auto at = static_cast<double>(x);
  const double exact = std::log1p(std::exp(at));
  const double real = static_cast<double>(std::log(1.0F + std::exp(x))) / exact - 1.0;
  ASSERT_GT(std::abs(real), 1e-5);
  int as_far = 0;
  constexpr int kSamples = 400;
  for (int n = 0; n < kSamples; ++n) {
    const SamplingScope scope(SampledModel::sample({}, 5, n));
    as_far += std::abs(softplus(Stochastic(at)).value() / exact - 1.0) > 0.5 * std::abs(real) ? 1 : 0;
  }
  EXPECT_GT(as_far, kSamples / 8);
  EXPECT_LT(as_far, kSamples / 2 + 60);
}

TEST(Stochastic, ASampleByPlaceRoundsEqualSumsApart) {
  const auto settled_twice = [](bool by_place) {
    SampledModel model = drawn(9, Format::none);
    model.working = true;
    model.by_place = by_place;
    const SamplingScope scope(model);
    const Stochastic sum = Stochastic(1.0) + Stochastic(0x1.23456789p-30);
    return std::pair(sum.settled().value(), sum.settled().value());
  };
  const auto by_value = settled_twice(false);
  EXPECT_EQ(by_value.first, by_value.second);
  const auto by_place = settled_twice(true);
  EXPECT_NE(by_place.first, by_place.second);
}

TEST(Stochastic, ExactSumsDrawNothing) {
  SampledModel model = drawn(9);
  model.working = true;
  const SamplingScope scope(model);
  EXPECT_EQ((Stochastic(1.0) + Stochastic(2.0) + Stochastic(0.25)).value(), 3.25);
  EXPECT_NE((Stochastic(1.0) / Stochastic(3.0)).value(), 1.0 / 3.0);
}

// 6 a - 2 a = 4 a is a number of the format at 8 a where a is odd, and 5 a is none.
TEST(Stochastic, ASumOnTheGridOfTermsBesideItIsDrawn) {
  const auto with = [](double a) {
    int moved = 0;
    for (std::uint64_t salt = 0; salt < 16; ++salt) {
      SampledModel model = drawn(salt, Format::none);
      model.working = true;
      const SamplingScope scope(model);
      Stochastic sum = Stochastic(2047.0) * Stochastic(0.0);
      for (const double sign : {1.0, 1.0, 1.0, -1.0, 1.0, 1.0, -1.0, 1.0}) sum += Stochastic(sign * a);
      moved += sum.value() != 4.0 * a;
    }
    return moved;
  };
  EXPECT_GT(with(2047.0 * 2047.0), 8);
  EXPECT_EQ(with(2048.0 * 2047.0), 0);
}

// Exponentials a little below 1, added one to the other, are rounded up again and again in the sum of each
// token; their own roundings are no reason to take them for terms of any size
// (docs/understand/validation.md).
TEST(Stochastic, SumsOfManyAlikeExponentialsErrByOneShareInEverySecondSample) {
  for (int n = 0; n < 8; ++n) {
    const SamplingScope scope(SampledModel::sample(Contract{}, 17, n));
    int above = 0;
    double squares = 0.0;
    constexpr int kSums = 200;
    for (int i = 0; i < kSums; ++i) {
      const int terms = 400 + i;
      double exact = 0.0;
      Stochastic sum;
      for (int j = 0; j < terms; ++j) {
        const double x = -1e-5 * (1.0 + 0.1 * std::sin(j * (i + 1)));
        exact += std::exp(x);
        sum += exp(Stochastic(x));
      }
      const double e = (sum.value() - exact) / (0x1p-24 * exact * terms / 2.0);
      above += e > 0.0 ? 1 : 0;
      squares += e * e / kSums;
    }
    if (n % 2 == 0) {
      EXPECT_TRUE(above < kSums / 10 || above > 9 * kSums / 10) << n << ": " << above;
    } else {
      EXPECT_NEAR(std::sqrt(squares), std::sqrt(1.0 / 3.0), 0.1) << n;
      EXPECT_NEAR(above, kSums / 2, kSums / 5) << n;
    }
  }
}

}  // namespace
}  // namespace samestate
