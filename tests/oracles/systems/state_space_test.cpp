#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/systems/operator.h"
#include "oracles/systems/state_space_forms.h"
#include "tests/oracles/systems/signature_error.h"

namespace samestate {
namespace {

constexpr Discretisation kHold = Discretisation::zero_order_hold;

TEST(StateSpaceOperators, SizesThatDoNotFitNameTheKey) {
  EXPECT_NE(error_of("state_space_duality", {{"G", 3}}).find("G=3"), std::string::npos);
  EXPECT_NE(error_of("mamba2_mixer", {{"H", 6}, {"G", 4}}).find("G=4"), std::string::npos);
  EXPECT_NE(error_of("mamba2_mixer", {{"norm_groups", 5}}).find("norm_groups=5"), std::string::npos);
  EXPECT_EQ(error_of("state_space_duality", {{"H", 6}, {"G", 3}}), "");
  EXPECT_EQ(error_of("mamba2_mixer", {{"norm_groups", 4}}), "");
}

TEST(StateSpaceForms, ADecayStaysBetweenZeroAndOne) {
  EXPECT_EQ(decay_of(Running(0.0)).value(), 1.0);
  EXPECT_LT(decay_of(Running(0.0)).error(), 1e-6);
  // exp alone would allow e^8 - e^-2.
  const Running loose = decay_of(Running::within(-2.0, 10.0));
  EXPECT_GE(loose.error(), 1.0 - std::exp(-2.0));
  EXPECT_LT(loose.error(), 0.87);
  // Close by, both ways of the error are covered.
  const Running tight = decay_of(Running::within(-2.0, 0.1));
  EXPECT_GE(tight.error(), std::exp(-1.9) - std::exp(-2.0));
  EXPECT_LT(tight.error(), 1.01 * (std::exp(-1.9) - std::exp(-2.0)));
}

// Mamba-2's kernels take e^{G_i - G_j} of two rounded sums, added one after the other or as a tree.
TEST(StateSpaceForms, ADecayBetweenTokensMayBeADifferenceOfSums) {
  std::mt19937_64 engine(11);
  std::uniform_real_distribution<float> uniform(-2.0F, -0.01F);
  constexpr Index kTokens = 128;
  double beyond_terms = 0.0;
  for (int run = 0; run < 20; ++run) {
    Vector<Running> g(kTokens);
    std::vector<float> in_turn, tree;
    for (Index i = 0; i < kTokens; ++i) {
      const float x = uniform(engine);
      g(i) = Running(static_cast<double>(x));
      tree.push_back(x);
      in_turn.push_back(i == 0 ? x : in_turn.back() + x);
    }
    for (std::size_t by = 1; by < tree.size(); by *= 2) {
      for (std::size_t i = tree.size(); i-- > by;) tree[i] += tree[i - by];
    }
    const Matrix<Running> E = RunningFactors::between(g);
    for (Index j = 0; j < kTokens; ++j) {
      double terms = 0.0;
      for (Index i = j + 1; i < kTokens; ++i) {
        terms += std::abs(g(i).value());
        for (const std::vector<float>* sums : {&in_turn, &tree}) {
          const float difference =
              (*sums)[static_cast<std::size_t>(i)] - (*sums)[static_cast<std::size_t>(j)];
          const double error = std::abs(std::exp(static_cast<double>(difference)) - E(i, j).value());
          EXPECT_LE(error, E(i, j).error()) << i << " " << j;
          beyond_terms = std::max(
              beyond_terms, error / (E(i, j).value() * (static_cast<double>(i - j) * terms + 3.0) * 0x1p-24));
        }
      }
    }
  }
  EXPECT_GT(beyond_terms, 2.0) << "what adding the terms between two tokens makes would do";
}

TEST(StateSpaceForms, TheHoldFactorCoversEveryStepWithinTheError) {
  for (const double delta : {1e-30, 1e-6, 0.3, 4.0, 90.0}) {
    for (const double A : {-0.37, -1.0, -16.0}) {
      for (const double error : {0.0, 1e-7, 1e-2, 3.0}) {
        const Running factor = input_factor_of(Running::within(delta, error), Running(A), kHold);
        for (const double other : {std::max(delta - error, 0.0), delta, delta + error}) {
          const double exact = std::expm1(other * A) / A;
          EXPECT_LE(std::abs(exact - factor.value()), factor.error()) << delta << " " << A << " " << error;
        }
        EXPECT_LE(factor.error(), error + 1e-6 * (factor.value() + error) + 1e-35);
        EXPECT_LE(factor.value() + factor.error(), 2.0 / -A);
      }
    }
  }
  EXPECT_TRUE(std::isinf(input_factor_of(Running(1.0), Running::within(-1.0, 1.0), kHold).error()));
}

TEST(StateSpaceForms, OnlyTheOraclesFactorsKeepADecayBetweenZeroAndOne) {
  // Delta = 1 +- 2, A = -1: through its parts e^{Delta A} might be e^1, as a decay it is at most 1.
  const Running delta = Running::within(1.0, 2.0);
  EXPECT_GT(PlainFactors::decay(delta, Running(-1.0)).error(), 2.0);
  EXPECT_LT(OracleFactors<Running>::decay(delta, Running(-1.0)).error(), 1.0);
  const Vector<Running> g = Vector<Running>::Constant(2, Running::within(-1.0, 2.0));
  EXPECT_GT(decay_between(g)(1, 0).error(), 2.0) << "what a name means hangs on no include";
  EXPECT_LT(OracleFactors<Running>::between(g)(1, 0).error(), 1.0);
  EXPECT_LT(OracleFactors<Running>::from_start(g)(1).error(), 1.0);
}

TEST(StateSpaceForms, AChunkHoldsATokenAtLeast) {
  const SelectiveScan<double> scan{Matrix<double>::Zero(2, 1),
                                   Matrix<double>::Zero(2, 1),
                                   Matrix<double>::Constant(1, 1, -1.0),
                                   Matrix<double>::Zero(2, 1),
                                   Matrix<double>::Zero(2, 1),
                                   {},
                                   {},
                                   Matrix<double>::Zero(1, 1)};
  EXPECT_THROW((void)selective_scan_chunk_after_chunk(scan, kHold, 0), Error);
  EXPECT_EQ(selective_scan_chunk_after_chunk(scan.slice(0, 0, Matrix<double>::Ones(1, 1)), kHold, 4).state(0),
            1.0);
}

// After two sums of 600, a sample of the decay of one token is off by the effect of an ulp of 1200, as in a
// kernel that subtracts sums from the chunk's start.
TEST(StateSpaceForms, SamplesDrawTheRoundingsOfSums) {
  Vector<Stochastic> g(3);
  g << Stochastic(-600.1F), Stochastic(-600.3F), Stochastic(-0.29F);
  double squares = 0.0;
  constexpr int kCount = 200;
  for (int n = 0; n < kCount; ++n) {
    const SamplingScope scope(SampledModel::sample(contract_named("fp32"), 7, n));
    const double decay = OracleFactors<Stochastic>::between(g)(2, 1).value();
    squares += std::pow(std::log(decay) + static_cast<double>(0.29F), 2);
  }
  const double spread = std::sqrt(squares / kCount);
  EXPECT_GT(spread, 1200.0 * 0x1p-25);
  EXPECT_LT(spread, 1200.0 * 0x1p-23);
}

}  // namespace
}  // namespace samestate
