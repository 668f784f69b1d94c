#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "oracles/bounds/bound.h"
#include "oracles/limits.h"
#include "oracles/numbers.h"
#include "reference/error.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

TEST(Policy, StructureAndCoherenceAreDetected) {
  Sequence<double> x = random_head(9, 40, 4, 3);
  EXPECT_FALSE(structured(x));
  EXPECT_FALSE(coherent_decay(x.g));
  for (Index t = 0; t < 40; ++t) {
    x.k.row(t) = x.k.row(t % 9).eval();
    x.v.row(t) = x.v.row(t % 9).eval();
    x.beta(t) = x.beta(t % 9);
  }
  EXPECT_TRUE(structured(x)) << "9 distinct of 40";
  Sequence<double> limit = x;
  limit.beta(39) += 0.25;
  EXPECT_FALSE(structured(limit)) << "10 distinct of 40 is not below a quarter";
  EXPECT_FALSE(structured(x.slice(0, 1, x.initial_state)));
  EXPECT_FALSE(structured(x.slice(0, 0, x.initial_state)));

  EXPECT_FALSE(coherent_decay(Vector<double>::Zero(8)));
  EXPECT_TRUE(coherent_decay(Vector<double>::Constant(8, -0.1)));
  EXPECT_FALSE(coherent_decay(Vector<double>::Constant(1, -0.1)));
  EXPECT_FALSE(coherent_decay(Vector<double>{{-0.1, -0.2, -0.1, -0.2}}))
      << "2 distinct of 4 is not below half";
}

TEST(Policy, IsTheTable) {
  const Sequence<double> x = random_head(10, 100, 4, 10);
  const auto expect = [&](const Policy& p, Mode mode, double lambda, double factor, bool gate, double limit) {
    EXPECT_EQ(p.mode, mode);
    EXPECT_EQ(p.lambda, lambda);
    EXPECT_EQ(p.state_factor, factor);
    EXPECT_EQ(p.head_gate, gate);
    EXPECT_EQ(p.head_limit, limit);
  };
  Contract c;
  expect(policy_for(c, x, "chunked"), Mode::prob, 5, 4, true, 1.5);
  expect(policy_for(c, x.slice(0, 99, x.initial_state), "chunked"), Mode::prob, 5, 4, true, 2.5);
  c.state = Format::fp16;
  expect(policy_for(c, x, "recurrent"), Mode::semi, 4, 4, true, 1.5);
  c.state = Format::fp32;
  c.W = Format::tf32;
  expect(policy_for(c, x, "chunked"), Mode::prob, 5, 4, true, 2.0);
  expect(policy_for(c, x, "recurrent"), Mode::prob, 5, 4, true, 1.5);
  c.qk = Format::tf32_truncated;
  expect(policy_for(c, x, "recurrent"), Mode::prob, 16, 4, true, 2.0);
  c.inverse = Inverse::neumann;
  expect(policy_for(c, x, "chunked"), Mode::prob, 16, 4, true, 2.0);
  c.inverse_operand = Format::bf16;
  expect(policy_for(c, x, "chunked"), Mode::det, 1, 1, false, 2.0);
  Sequence<double> same = x;
  same.k.rowwise() = x.k.row(0).eval();
  same.v.rowwise() = x.v.row(0).eval();
  same.beta.setConstant(0.5);
  expect(policy_for(Contract{}, same, "recurrent"), Mode::det, 1, 1, false, 2.5);  // repeated keys
  same.v = x.v;
  expect(policy_for(Contract{}, same, "recurrent"), Mode::prob, 5, 4, true, 2.5);
  expect(policy_for(Contract{}, same, "chunked"), Mode::prob, kRowLambdaRepeated, 4, true, 2.5);
  expect(policy_for(Contract{}, same, "recurrent", true), Mode::det, 1, 1, false,
         2.5);  // normalised in the kernel
  Contract again;
  again.qk = Format::bf16;
  expect(policy_for(again, same, "recurrent"), Mode::det, 1, 1, false, 2.5);  // or stored again
  expect(policy_for(again, x, "recurrent"), Mode::prob, 5, 4, true, 1.5);
  const Sequence<double> wide = random_head(10, 64, 4, 32);
  expect(policy_for(Contract{}, wide, "chunked"), Mode::prob, 5, 4, true, 1.5);
  expect(policy_for(Contract{}, wide.slice(0, 63, wide.initial_state), "chunked"), Mode::prob, 5, 4, true,
         2.5);
  EXPECT_THROW((void)policy_for(c, x, "parallel"), Error);
}

// 2 x 2 walks of 3/2 degrees of freedom each are chi squared of 6, whose tail at y has the closed form e^{-y/2} (1 + y/2 + y^2/8).
TEST(Policy, AStateThatForgetsNothingHasFewErrors) {
  Sequence<double> x = random_head(10, 512, 2, 2);
  x.g.setZero();
  const double limit = policy_for(Contract{}, x, "recurrent").head_limit;
  const double y = 6.0 * limit * limit;
  EXPECT_NEAR(std::exp(-y / 2) * (1 + y / 2 + y * y / 8) / std::erfc(kRowLambda / std::sqrt(2.0)), 1.0, 1e-6);
  Contract rounded;
  rounded.output = Format::bf16;
  EXPECT_EQ(policy_for(rounded, x, "recurrent").head_limit, kHeadLimit) << "rows have errors of their own";
  rounded.state = Format::bf16;
  EXPECT_EQ(policy_for(rounded, x, "recurrent").head_limit, limit) << "and those of a coarser state";
  x.g.setConstant(-0.1);
  EXPECT_EQ(policy_for(Contract{}, x, "recurrent").head_limit, kHeadLimit) << "gates of 51 e-folds";
  x = random_head(10, 512, 8, 8);
  x.g.setZero();
  EXPECT_EQ(policy_for(Contract{}, x, "recurrent").head_limit, kHeadLimit) << "64 elements";
}

// The limit assumes a mean of 1/2 and a variance of 1/3, in units of the walk's length.
TEST(Policy, TheMeanSquareOfAWalkHasThreeHalvesDegreesOfFreedom) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> step;
  constexpr int kWalks = 4000, kSteps = 256;
  double sum = 0.0, squares = 0.0;
  for (int walk = 0; walk < kWalks; ++walk) {
    double at = 0.0, mean_square = 0.0;
    for (int t = 0; t < kSteps; ++t) {
      at += step(random);
      mean_square += at * at / kSteps;
    }
    sum += mean_square / kWalks;
    squares += mean_square * mean_square / kWalks;
  }
  EXPECT_NEAR(2.0 * sum * sum / (squares - sum * sum), 1.5, 0.15);
}

/// Keys, values and gates as of memorised pairs: two of each, and a strength of its own a token.
Sequence<double> memorised(Sequence<double> x) {
  for (Index t = 2; t < x.tokens(); ++t) {
    x.k.row(t) = x.k.row(t % 2).eval();
    x.v.row(t) = x.v.row(t % 2).eval();
  }
  return x;
}

TEST(Policy, RepeatedPairsOfRoundedKeysAddUpInTheStateAlone) {
  const Sequence<double> x = random_head(10, 100, 4, 10);
  const Sequence<double> pairs = memorised(x);
  ASSERT_FALSE(structured(pairs));
  ASSERT_TRUE(repeated_pairs(pairs) && !repeated_pairs(x));
  Sequence<double> keys = pairs;
  keys.v = x.v;
  EXPECT_FALSE(repeated_pairs(keys));
  Contract decayed;
  decayed.k_decayed = Format::tf32;
  EXPECT_EQ(policy_for(decayed, pairs, "chunked").mode, Mode::semi)
      << "and what o reads, of keys rounded as written";
  EXPECT_EQ(policy_for(decayed, x, "chunked").mode, Mode::prob);
  EXPECT_EQ(policy_for(decayed, pairs, "recurrent").mode, Mode::prob) << "which has no such operand";
  Contract rounded;
  rounded.qk = Format::tf32;
  for (const char* form : {"recurrent", "chunked"}) {
    EXPECT_EQ(policy_for(rounded, pairs, form).state_mode, Mode::semi) << form;
    EXPECT_EQ(policy_for(rounded, pairs, form).mode, Mode::prob) << form;
    EXPECT_EQ(policy_for(rounded, keys, form).state_mode, Mode::prob) << form;
    EXPECT_EQ(policy_for(Contract{}, pairs, form).state_mode, Mode::prob) << form;
  }
}

// A case may have thousands of heads of one or two rows: 2.54 of 2.5 in 65,600 right ones of two.
TEST(Policy, AHeadOfFewRowsIsAsImprobableAsARowAtItsLimit) {
  const double limits[] = {5.00, 3.79, 3.26, 2.94, 2.72, 2.57, 2.50, 2.50};
  for (Index rows = 1; rows <= std::ssize(limits); ++rows) {
    const Sequence<double> x = random_head(3, rows, 4, 4);
    EXPECT_NEAR(policy_for(Contract{}, x, "chunked", false).head_limit, limits[rows - 1], 0.006) << rows;
  }
}

}  // namespace
}  // namespace samestate
