#include "oracles/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <random>
#include <string>
#include <utility>

#include "oracles/contracts.h"
#include "oracles/numbers.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"
#include "reference/gated_delta_rule.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

/// Relative distance from a limit at which a gate is shown to be open and shut.
constexpr double kBelow = 1 - 1e-9;
constexpr double kAbove = 1 + 1e-9;

constexpr double kRow = 0.125, kHard = 0.5, kRms = 0.0625, kState = 0.25, kStateHard = 1.0;

/// Eight tokens of three channels and a state [2, 3], with tolerances that are powers of two.
HeadOracle hand_made() {
  HeadOracle oracle;
  oracle.exact.o = Matrix<double>::Constant(8, 3, 4.0);
  oracle.exact.delta = Matrix<double>::Zero(8, 3);
  oracle.exact.state = Matrix<double>::Constant(2, 3, 2.0);
  oracle.row = Vector<double>::Constant(8, kRow);
  oracle.row_hard = Vector<double>::Constant(8, kHard);
  oracle.rms = Vector<double>::Constant(8, kRms);
  oracle.state = kState;
  oracle.state_hard = kStateHard;
  return oracle;
}

/// A head whose exact output is S_0^T (1, 1) = o for every token: nothing is written.
Sequence<double> reads(Index tokens, double first, double second) {
  Sequence<double> x;
  x.q = Matrix<double>::Ones(tokens, 2);
  x.k = Matrix<double>::Zero(tokens, 2);
  x.v = Matrix<double>::Zero(tokens, 1);
  x.g = Vector<double>::Zero(tokens);
  x.beta = Vector<double>::Ones(tokens);
  x.initial_state.resize(2, 1);
  x.initial_state << first, second;
  return x;
}

HeadOracle read_oracle(const Sequence<double>& x, const Contract& contract) {
  return oracle_of(x, whole(x.tokens(), 0), contract, family_named("linear_attention"), false);
}

Judgement judge_planted(const HeadOracle& oracle, Index token, Index channel, double error) {
  Matrix<double> o = oracle.exact.o;
  o(token, channel) += error;
  return judge_head(oracle, o, oracle.exact.state);
}

TEST(JudgeHead, ExactOutputPasses) {
  const HeadOracle oracle = hand_made();
  const Judgement j = judge_head(oracle, oracle.exact.o, oracle.exact.state);
  EXPECT_EQ(j.verdict, Verdict::pass);
  EXPECT_EQ(j.ratio, 0.0);
  EXPECT_EQ(j.rows, 8);
}

TEST(JudgeHead, RowGate) {
  const HeadOracle oracle = hand_made();
  EXPECT_EQ(judge_planted(oracle, 5, 2, kRow * kBelow).verdict, Verdict::pass);
  const Judgement j = judge_planted(oracle, 5, 2, -kRow * kAbove);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "row");
  EXPECT_EQ(j.worst.token, 5);
  EXPECT_EQ(j.worst.channel, 2);
  EXPECT_EQ(j.expected, 4.0);
  EXPECT_EQ(j.actual, 4.0 - kRow * kAbove);
  EXPECT_NEAR(j.error, kRow, 1e-8);
  EXPECT_EQ(j.bound, kRow);
  EXPECT_NEAR(j.hard_ratio, kRow / kHard, 1e-8);
  EXPECT_EQ(j.reason.find("no rounding"), std::string::npos) << j.reason;
}

TEST(JudgeHead, RowGateTakesTheNormOverChannels) {
  const HeadOracle oracle = hand_made();
  Matrix<double> o = oracle.exact.o;
  o.row(3).array() += kRow / std::sqrt(3.0) * kBelow;
  EXPECT_EQ(judge_head(oracle, o, oracle.exact.state).verdict, Verdict::pass);
  o.row(3) = oracle.exact.o.row(3).array() + kRow / std::sqrt(3.0) * kAbove;
  EXPECT_EQ(judge_head(oracle, o, oracle.exact.state).gate, "row");
}

TEST(JudgeHead, WorstRowIsTheWorstRatioNotTheLargestError) {
  HeadOracle oracle = hand_made();
  oracle.row(6) = kRow / 64;
  Matrix<double> o = oracle.exact.o;
  o(1, 0) += kRow * kBelow;
  o(6, 1) += kRow / 32;
  const Judgement j = judge_head(oracle, o, oracle.exact.state);
  EXPECT_EQ(j.worst.token, 6);
  EXPECT_EQ(j.worst.channel, 1);
  EXPECT_EQ(j.ratio, 2.0);
}

TEST(JudgeHead, HeadGate) {
  HeadOracle oracle = hand_made();
  const double limit = oracle.policy.head_limit * kRms;
  ASSERT_LT(limit, kRow) << "the row gate must not decide";
  const auto shifted = [&](double error) {
    Matrix<double> o = oracle.exact.o;
    o.col(1).array() += error;
    return judge_head(oracle, o, oracle.exact.state);
  };
  EXPECT_EQ(shifted(limit * kBelow).verdict, Verdict::pass);
  const Judgement j = shifted(limit * kAbove);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "head");
  EXPECT_EQ(j.worst.channel, 1);
  EXPECT_NEAR(j.bound, limit, 1e-12);
  oracle.policy.head_gate = false;
  EXPECT_EQ(shifted(limit * kAbove).verdict, Verdict::pass);
}

// Nine rows of which one is the most of the prediction are one row (a correct kernel after a spike: 2.65 standard
// deviations of a head); nine alike are nine.
TEST(JudgeHead, AHeadOfOneLargeRowHasTheLimitOfOne) {
  const auto head_ratio = [](double others) {
    HeadOracle oracle = hand_made();
    oracle.policy.head_limit = kHeadLimitFew;
    oracle.row.setConstant(1e3);
    oracle.row_hard.setConstant(1e3);
    oracle.rms.setConstant(others);
    oracle.rms(5) = 1.0;
    Matrix<double> o = oracle.exact.o;
    for (Index t = 0; t < o.rows(); ++t) o(t, 0) += 4.0 * oracle.rms(t);
    return judge_head(oracle, o, oracle.exact.state).head_ratio;
  };
  EXPECT_NEAR(head_ratio(1e-6), 4.0 / kRowLambda, 1e-6);
  EXPECT_NEAR(head_ratio(1.0), 4.0 / kHeadLimitFew, 1e-12);
  EXPECT_GT(head_ratio(0.5), 1.0) << "errors of 4 standard deviations in four rows' worth";
}

TEST(JudgeHead, StateGate) {
  const HeadOracle oracle = hand_made();
  const auto planted = [&](double error) {
    Matrix<double> state = oracle.exact.state;
    state(1, 2) += error;
    return judge_head(oracle, oracle.exact.o, state);
  };
  EXPECT_EQ(planted(kState * kBelow).verdict, Verdict::pass);
  const Judgement j = planted(kState * kAbove);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "state");
  EXPECT_EQ(j.worst.token, 1);
  EXPECT_EQ(j.worst.channel, 2);
  EXPECT_EQ(j.expected, 2.0);
  EXPECT_EQ(j.actual, 2.0 + kState * kAbove);
  EXPECT_NE(planted(kStateHard * kAbove).reason.find("no rounding"), std::string::npos);
}

TEST(JudgeHead, HardGateIsSaidToBeAProof) {
  const HeadOracle oracle = hand_made();
  EXPECT_EQ(judge_planted(oracle, 0, 0, kHard * kBelow).reason.find("no rounding"), std::string::npos);
  EXPECT_NE(judge_planted(oracle, 0, 0, kHard * kAbove).reason.find("no rounding"), std::string::npos);
}

TEST(JudgeHead, VacuousBoundNeverPassesButTheWorstCaseStillFails) {
  HeadOracle oracle = hand_made();
  oracle.vacuous = true;
  oracle.why_vacuous = "planted";
  EXPECT_EQ(judge_planted(oracle, 2, 1, 0.0).verdict, Verdict::vacuous);
  const Judgement below = judge_planted(oracle, 2, 1, kHard * kBelow);
  EXPECT_EQ(below.verdict, Verdict::vacuous);
  EXPECT_EQ(below.reason, "planted");
  const Judgement above = judge_planted(oracle, 2, 1, kHard * kAbove);
  EXPECT_EQ(above.verdict, Verdict::fail);
  EXPECT_EQ(above.gate, "hard");
  EXPECT_EQ(above.worst.token, 2);
  EXPECT_EQ(above.worst.channel, 1);
  for (const auto& [factor, verdict] : {std::pair{kBelow, Verdict::vacuous}, {kAbove, Verdict::fail}}) {
    Matrix<double> state = oracle.exact.state;
    state(0, 1) += kStateHard * factor;
    EXPECT_EQ(judge_head(oracle, oracle.exact.o, state).verdict, verdict);
  }
}

// The head's figure is of all its rows: the place is the element that is furthest off, in whatever row it lies.
TEST(JudgeHead, TheHeadGatePointsAtItsLargestElement) {
  HeadOracle oracle = hand_made();
  oracle.row.setConstant(1e6), oracle.row_hard.setConstant(1e6);
  oracle.rms.setConstant(1e-6);
  Matrix<double> o = oracle.exact.o;
  o(2, 1) += 0.25;
  // A row with the larger share of its own tolerance, and a smaller error.
  oracle.row(5) = 0.5;
  o(5, 0) += 0.125;
  const Judgement j = judge_head(oracle, o, oracle.exact.state);
  EXPECT_EQ(j.gate, "head");
  EXPECT_EQ(j.worst.token, 2);
  EXPECT_EQ(j.worst.channel, 1);
  EXPECT_EQ(j.actual - j.expected, 0.25);
}

TEST(JudgeHead, OutputThatIsNotFiniteFailsTheRangeGate) {
  for (const bool vacuous : {false, true}) {
    HeadOracle oracle = hand_made();
    oracle.vacuous = vacuous;
    // A worst case without a value, as where first order fails: no error exceeds it.
    if (vacuous) oracle.row_hard.setConstant(kInfinity), oracle.state_hard = kInfinity;
    for (const double planted : {kNaN, kInfinity, -kInfinity}) {
      const Judgement j = judge_planted(oracle, 6, 1, planted);
      EXPECT_EQ(j.verdict, Verdict::fail) << planted << " vacuous " << vacuous;
      EXPECT_EQ(j.gate, "range");
      EXPECT_EQ(j.ratio, kInfinity);
      EXPECT_EQ(j.worst.token, 6);
      EXPECT_EQ(j.worst.channel, 1);
      EXPECT_FALSE(std::isfinite(j.actual));

      Matrix<double> state = oracle.exact.state;
      state(1, 0) = planted;
      const Judgement of_state = judge_head(oracle, oracle.exact.o, state);
      EXPECT_EQ(of_state.verdict, Verdict::fail) << planted << " vacuous " << vacuous;
      EXPECT_EQ(of_state.gate, "range state");
      EXPECT_EQ(of_state.worst.token, 1);
      EXPECT_EQ(of_state.worst.channel, 0);
    }
  }
}

// In an inverse by doubling of repeated keys, errors are known, but their products are not.
TEST(JudgeHead, BehindErrorsWhoseProductsOverflowNothingIsSaid) {
  HeadOracle oracle = hand_made();
  oracle.vacuous = true;
  oracle.row_hard(4) = 1e20;
  oracle.row_hard.tail(oracle.row_hard.size() - 5).setConstant(kInfinity);
  oracle.state_hard = kInfinity;
  EXPECT_EQ(judge_planted(oracle, 6, 1, kNaN).verdict, Verdict::vacuous);
  EXPECT_EQ(judge_planted(oracle, 6, 1, kNaN).gate, "range");
  EXPECT_EQ(judge_planted(oracle, 3, 1, kNaN).verdict, Verdict::fail) << "before them";
  oracle.largest = 1e25;
  EXPECT_EQ(judge_planted(oracle, 6, 1, kNaN).verdict, Verdict::fail) << "an error of large data";
  oracle.largest = 1.0;
  oracle.row_hard(4) = 1e18;
  EXPECT_EQ(judge_planted(oracle, 6, 1, kNaN).verdict, Verdict::fail);
}

TEST(JudgeHead, OverflowIsExpectedBeyondFp16Alone) {
  const double limit = 65504.0 / 1.02;
  struct Row {
    const char* contract;
    double value;
    Verdict of_infinity;
  };
  for (const Row& row : {Row{"fp16", limit * 0.999, Verdict::fail},
                         {"fp16", limit * 1.001, Verdict::vacuous},
                         {"fp16_state", limit * 1.001, Verdict::vacuous},
                         {"bf16", limit * 1.001, Verdict::fail},
                         {"fp32", limit * 1.001, Verdict::fail}}) {
    const HeadOracle oracle =
        read_oracle(reads(1, row.value / 2, row.value / 2), contract_named(row.contract));
    EXPECT_EQ(oracle.overflow_expected, row.of_infinity == Verdict::vacuous) << row.contract << row.value;
    const Judgement j = judge_head(oracle, Matrix<double>::Constant(1, 1, kInfinity), oracle.exact.state);
    EXPECT_EQ(j.verdict, row.of_infinity) << row.contract << " " << row.value;
    EXPECT_EQ(j.gate, "range");
  }
}

TEST(JudgeHead, ToleranceAboveThreeTenthsOfTheOutputIsVacuous) {
  const double tolerance = read_oracle(reads(1, 1.0, -1.0), contract_named("fp32")).row(0);
  ASSERT_GT(tolerance, 0.0);
  // The remainder of 1 - 1 has the error of the 1, and its size decides how much that is.
  for (const auto& [share, verdict] : {std::pair{0.299, Verdict::pass}, {0.301, Verdict::vacuous}}) {
    const HeadOracle oracle = read_oracle(reads(1, 1.0, -1.0 + tolerance / share), contract_named("fp32"));
    EXPECT_NEAR(oracle.row(0), tolerance, 1e-5 * tolerance);
    EXPECT_EQ(judge_head(oracle, oracle.exact.o, oracle.exact.state).verdict, verdict) << share;
  }
}

TEST(JudgeHead, AllZeroExpectationIsVacuousAndAnythingElseFails) {
  const HeadOracle oracle = read_oracle(reads(3, 0.0, 0.0), contract_named("fp32"));
  const Judgement j = judge_head(oracle, Matrix<double>::Zero(3, 1), Matrix<double>::Zero(2, 1));
  EXPECT_EQ(j.verdict, Verdict::vacuous);
  EXPECT_EQ(judge_head(oracle, Matrix<double>::Constant(3, 1, 1e-3), oracle.exact.state).verdict,
            Verdict::fail);

  HeadOracle zero = hand_made();
  zero.exact.o.setZero();
  EXPECT_EQ(judge_head(zero, zero.exact.o, zero.exact.state).verdict, Verdict::pass)
      << "a state is something";
  zero.exact.state.setZero();
  const Judgement nothing = judge_head(zero, zero.exact.o, zero.exact.state);
  EXPECT_EQ(nothing.verdict, Verdict::vacuous);
  EXPECT_NE(nothing.reason.find("all zero"), std::string::npos) << nothing.reason;
  EXPECT_EQ(nothing.gate, kZeroGate);
}

TEST(JudgeHead, StatisticalToleranceNeverExceedsTheWorstCase) {
  for (const char* name : {"fp32", "bf16", "bf16_state", "tf32_truncated"}) {
    for (const Index chunk : {Index{0}, Index{4}}) {
      const HeadOracle oracle = oracle_of(random_head(4, 12, 4, 3), whole(12, chunk), contract_named(name),
                                          family_named("gated_delta_rule"), false);
      EXPECT_TRUE((oracle.row.array() <= oracle.row_hard.array()).all()) << name << chunk;
      EXPECT_LE(oracle.state, oracle.state_hard) << name << chunk;
    }
  }
}

TEST(JudgeExact, OneUlpFails) {
  HeadOracle oracle = hand_made();
  oracle.largest = 4.0;
  const Contract fp32;
  EXPECT_EQ(judge_exact(oracle, fp32, oracle.exact.o, oracle.exact.state).verdict, Verdict::pass);
  Matrix<double> o = oracle.exact.o;
  o(7, 2) = static_cast<double>(std::nextafter(4.0F, 5.0F));
  const Judgement j = judge_exact(oracle, fp32, o, oracle.exact.state);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "exact");
  EXPECT_EQ(j.worst.token, 7);
  EXPECT_EQ(j.worst.channel, 2);
  EXPECT_EQ(j.expected, 4.0);
  EXPECT_EQ(j.actual, o(7, 2));
  Matrix<double> state = oracle.exact.state;
  state(1, 1) = static_cast<double>(std::nextafter(2.0F, 0.0F));
  const Judgement of_state = judge_exact(oracle, fp32, oracle.exact.o, state);
  EXPECT_EQ(of_state.verdict, Verdict::fail);
  EXPECT_EQ(of_state.gate, "exact state");
  EXPECT_EQ(of_state.worst.token, 1);
  o(7, 2) = kNaN;
  EXPECT_EQ(judge_exact(oracle, fp32, o, oracle.exact.state).verdict, Verdict::fail);
}

TEST(JudgeExact, SignOfZeroIsFree) {
  HeadOracle oracle = hand_made();
  oracle.exact.o(0, 0) = 0.0;
  oracle.exact.o(1, 0) = 1e-60;  // what an exact reset leaves in float64
  Matrix<double> o = oracle.exact.o;
  o(0, 0) = o(1, 0) = -0.0;
  EXPECT_EQ(judge_exact(oracle, {}, o, oracle.exact.state).verdict, Verdict::pass);
  o(0, 0) = 0x1p-149;
  EXPECT_EQ(judge_exact(oracle, {}, o, oracle.exact.state).verdict, Verdict::fail);
}

TEST(JudgeExact, VacuousWhereTheRegimeLeavesTheIntegers) {
  const HeadOracle good = hand_made();
  const auto verdict = [](const HeadOracle& oracle, const char* contract) {
    return judge_exact(oracle, contract_named(contract), oracle.exact.o, oracle.exact.state).verdict;
  };
  HeadOracle output = good, state = good, large = good;
  output.exact.o(2, 2) = 257.0;  // nine bits, bf16 has eight
  EXPECT_EQ(verdict(output, "fp32"), Verdict::pass);
  EXPECT_EQ(verdict(output, "bf16"), Verdict::vacuous);
  state.exact.state(0, 0) = 257.0;
  EXPECT_EQ(verdict(state, "bf16"), Verdict::pass);
  EXPECT_EQ(verdict(state, "bf16_state"), Verdict::vacuous);
  large.largest = 0x1p24;
  EXPECT_EQ(verdict(large, "fp32"), Verdict::pass);
  large.largest = 0x1p24 + 1;
  EXPECT_EQ(verdict(large, "fp32"), Verdict::vacuous);
  large.largest = 257.0;
  EXPECT_EQ(verdict(large, "bf16"), Verdict::vacuous);
}

TEST(JudgeExact, AllZeroIsVacuous) {
  HeadOracle oracle = hand_made();
  oracle.exact.o.setZero();
  EXPECT_EQ(judge_exact(oracle, {}, oracle.exact.o, oracle.exact.state).verdict, Verdict::pass);
  oracle.exact.state.setZero();
  EXPECT_EQ(judge_exact(oracle, {}, oracle.exact.o, oracle.exact.state).verdict, Verdict::vacuous);
}

TEST(JudgePair, SumOfTheTwoTolerances) {
  const Matrix<double> one = Matrix<double>::Constant(4, 3, 1.0);
  const Vector<double> a = Vector<double>::Constant(4, 0.25), b = Vector<double>::Constant(4, 0.5);
  for (const auto& [factor, verdict] : {std::pair{kBelow, Verdict::pass}, {kAbove, Verdict::fail}}) {
    Matrix<double> two = one;
    two(2, 1) += 0.75 * factor;
    const Judgement j = judge_pair(one, a, two, b);
    EXPECT_EQ(j.verdict, verdict);
    EXPECT_EQ(j.worst.token, 2);
    EXPECT_EQ(j.worst.channel, 1);
    EXPECT_EQ(j.bound, 0.75);
    EXPECT_EQ(j.expected, 1.0);
    EXPECT_EQ(j.actual, two(2, 1));
  }
  Matrix<double> wrong = one;
  wrong(0, 0) = kNaN;
  EXPECT_EQ(judge_pair(one, a, wrong, b).verdict, Verdict::fail);
  wrong(0, 0) = kInfinity;
  EXPECT_EQ(judge_pair(one, a, wrong, b).verdict, Verdict::fail);
}

// Elements that are finite in neither run say nothing about a law, unless the runs differ elsewhere.
TEST(JudgePair, WhatIsFiniteInNeitherIsNotExplainedAsADifference) {
  Matrix<double> one = Matrix<double>::Constant(4, 3, 1.0);
  const Vector<double> a = Vector<double>::Constant(4, 0.25);
  one(2, 1) = kNaN;
  Matrix<double> two = one;
  two(2, 1) = -kInfinity;
  Judgement j = judge_pair(one, a, two, a);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.reason, kBothNotFinite);
  EXPECT_EQ(j.worst.token, 2);
  EXPECT_EQ(j.worst.channel, 1);
  two(3, 0) = 2.0;
  j = judge_pair(one, a, two, a);
  EXPECT_EQ(j.reason.find("the two runs differ by 1,"), 0U) << j.reason;
  EXPECT_EQ(j.worst.token, 3);
}

TEST(JudgePair, WithoutToleranceOnlyTheSameWillDo) {
  const Matrix<double> one = Matrix<double>::Ones(2, 3);
  const Vector<double> zero = Vector<double>::Zero(2);
  EXPECT_EQ(judge_pair(one, zero, one, zero).verdict, Verdict::pass);
  Matrix<double> two = one;
  two(1, 2) = std::nextafter(1.0, 2.0);
  EXPECT_EQ(judge_pair(one, zero, two, zero).verdict, Verdict::fail);
  EXPECT_EQ(judge_pair(one, zero, two, zero).ratio, kInfinity);
}

TEST(JudgePair, VacuousWithoutRowsOrWithoutABound) {
  const Matrix<double> one = Matrix<double>::Ones(2, 3);
  Vector<double> a = Vector<double>::Ones(2);
  const Vector<double> b = a;
  EXPECT_EQ(judge_pair(one.topRows(0), a.head(0), one.topRows(0), b.head(0)).verdict, Verdict::vacuous);
  a(1) = kInfinity;
  EXPECT_EQ(judge_pair(one, a, one, b).verdict, Verdict::vacuous);
  EXPECT_EQ(judge_pair(one, b, one, a).verdict, Verdict::vacuous);
}

TEST(Merge, FailBeforeVacuousBeforePassThenTheLargerRatio) {
  const auto made = [](Verdict verdict, double ratio) {
    Judgement j;
    j.verdict = verdict;
    j.ratio = ratio;
    return j;
  };
  const Judgement ordered[] = {made(Verdict::unsupported, 9), made(Verdict::pass, 0.1),
                               made(Verdict::pass, 0.9),      made(Verdict::vacuous, 0),
                               made(Verdict::fail, 1.1),      made(Verdict::fail, 2)};
  for (std::size_t i = 0; i < std::size(ordered); ++i) {
    for (std::size_t k = 0; k < std::size(ordered); ++k) {
      Judgement merged = ordered[i];
      merge(merged, ordered[k]);
      const Judgement& expected = ordered[std::max(i, k)];
      EXPECT_EQ(merged.verdict, expected.verdict) << i << " " << k;
      EXPECT_EQ(merged.ratio, expected.ratio) << i << " " << k;
    }
  }
}

TEST(Merge, KeepsTheLargestOfEachGateAndSumsRows) {
  Judgement a, b;
  a.verdict = Verdict::fail;
  a.row_ratio = 2, a.state_ratio = 0.1, a.rows = 3, a.worst.token = 7;
  b.verdict = Verdict::pass;
  b.row_ratio = 0.5, b.head_ratio = 0.4, b.state_ratio = 0.3, b.hard_ratio = 0.2, b.twin_ratio = 0.6,
  b.median_ratio = 0.7, b.relative_rms = 0.8, b.rows = 4, b.worst.token = 9;
  merge(a, b);
  EXPECT_EQ(a.verdict, Verdict::fail);
  EXPECT_EQ(a.worst.token, 7);
  EXPECT_EQ(a.row_ratio, 2);
  EXPECT_EQ(a.head_ratio, 0.4);
  EXPECT_EQ(a.state_ratio, 0.3);
  EXPECT_EQ(a.hard_ratio, 0.2);
  EXPECT_EQ(a.twin_ratio, 0.6);
  EXPECT_EQ(a.median_ratio, 0.7);
  EXPECT_EQ(a.relative_rms, 0.8);
  EXPECT_EQ(a.rows, 7);
}

}  // namespace
}  // namespace samestate
