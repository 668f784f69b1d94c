#include "oracles/bounds/truncation_bias.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/systems/family.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

constexpr double kMean = 0x1p-11;

/// Everything of one sign, where nothing averages out.
Sequence<double> positive(Index T, Index dk, Index dv) {
  Sequence<double> x = random_head(3, T, dk, dv);
  x.q = x.q.cwiseAbs(), x.k = x.k.cwiseAbs(), x.v = x.v.cwiseAbs();
  x.initial_state.setZero();
  x.g.setZero();
  x.beta.setOnes();
  return x;
}

TEST(TruncationBias, OfLinearAttentionIsFourOperandsOfTheOutput) {
  const Sequence<double> x = positive(48, 16, 8);
  const Family& family = family_named("linear_attention");
  const Trajectory<double> exact = family.recurrent(x);
  // q, k, P and v' in a chunk; q, S and in it k and v' across.
  const TruncationBias bias = truncation_bias(x, whole(48, 16), contract_named("tf32_truncated"), false);
  // Norms of parts of one sign are added, which is a little more than the norm of their sum.
  for (Index i = 0; i < 48; ++i)
    EXPECT_NEAR(bias.rows(i) / (4 * kMean * exact.o.row(i).norm()), 1.0, 0.02) << i;
  EXPECT_NEAR(bias.state / (2 * kMean * exact.state.norm()), 1.0, 0.02)
      << "k, and v' as operand of the update";
}

TEST(TruncationBias, IsNothingWhereNothingIsCutOff) {
  const Sequence<double> x = positive(20, 8, 4);
  for (const char* contract : {"fp32", "tf32", "bf16"}) {
    const TruncationBias bias = truncation_bias(x, whole(20, 8), contract_named(contract), true);
    EXPECT_EQ(bias.rows.size(), 20) << contract;
    EXPECT_EQ(bias.rows.maxCoeff(), 0.0) << contract;
    EXPECT_EQ(bias.state, 0.0) << contract;
  }
  EXPECT_EQ(truncation_bias(x, whole(20, 0), contract_named("tf32_truncated"), true).state, 0.0)
      << "a recurrent kernel feeds no matrix unit";
}

// Two tokens of one key: T = (1, 0; -beta k.k, 1), and only its third number is shorter, so that V'_2 gains what it takes off V'_1.
TEST(TruncationBias, OfTLeavesTheOnesOfItsDiagonal) {
  Sequence<double> x = positive(2, 8, 4);
  x.k.row(1) = x.k.row(0).eval();
  x.beta.setConstant(0.5);
  const double key = x.k.row(0).squaredNorm();
  const double gained = kMean * 0.5 * key * 0.5 * x.v.row(0).norm();
  const TruncationBias bias = truncation_bias(x, whole(2, 2), contract_named("fp32+T:tf32_truncated"), true);
  EXPECT_EQ(bias.rows(0), 0.0);
  EXPECT_NEAR(bias.rows(1) / (x.scale * x.q.row(1).dot(x.k.row(1)) * gained), 1.0, 1e-6);
  EXPECT_NEAR(bias.state / (std::sqrt(key) * gained), 1.0, 1e-6);
}

TEST(TruncationBias, AResetLeavesNothingOfWhatWasBefore) {
  Sequence<double> x = positive(12, 8, 4);
  x.g(6) = -std::numeric_limits<double>::infinity();
  const TruncationBias bias = truncation_bias(x, whole(12, 12), contract_named("tf32_truncated"), true);
  EXPECT_TRUE(bias.rows.allFinite());
  EXPECT_TRUE(std::isfinite(bias.state));
}

/// The gate of a head: a kernel that cuts off passes, and one that cuts off four times as much does not.
TEST(TruncationBias, TheHeadGateHoldsWhatIsCutOffTwice) {
  const Sequence<double> x = positive(64, 16, 16);
  const Family& family = family_named("linear_attention");
  const HeadOracle oracle = oracle_of(x, whole(64, 64), contract_named("tf32_truncated"), family, false);
  const auto judged = [&](double operands) {
    const Trajectory<double> exact = family.recurrent(x);
    return judge_head(oracle, (1 - operands * kMean) * exact.o, (1 - 2 * kMean) * exact.state);
  };
  EXPECT_EQ(judged(0).verdict, Verdict::pass);
  EXPECT_EQ(judged(4).verdict, Verdict::pass);
  EXPECT_EQ(judged(16).verdict, Verdict::fail);
}

}  // namespace
}  // namespace samestate
