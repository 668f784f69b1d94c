#include "oracles/judge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <utility>

#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/gated_delta_rule.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

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
  EXPECT_EQ(j.reason.find("not rounding"), std::string::npos) << j.reason;
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
  EXPECT_NE(planted(kStateHard * kAbove).reason.find("not rounding"), std::string::npos);
}

TEST(JudgeHead, HardGateIsSaidToBeAProof) {
  const HeadOracle oracle = hand_made();
  EXPECT_EQ(judge_planted(oracle, 0, 0, kHard * kBelow).reason.find("not rounding"), std::string::npos);
  EXPECT_NE(judge_planted(oracle, 0, 0, kHard * kAbove).reason.find("not rounding"), std::string::npos);
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
      EXPECT_EQ(of_state.gate, "range");
      EXPECT_EQ(of_state.worst.token, 1);
      EXPECT_EQ(of_state.worst.channel, 0);
    }
  }
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
  // What is left of 1 - 1 has the error of the 1; the remainder decides how much that is.
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

/// Twin, reordered twin and kernel at distance B = 1 from the oracle in every row.
struct TwinCase {
  HeadOracle oracle;
  TwinRuns runs;
  Matrix<double> o;

  TwinCase(Index tokens, Index width) {
    oracle.exact.o = Matrix<double>::Zero(tokens, width);
    oracle.exact.state = Matrix<double>::Zero(2, width);
    oracle.rms = Vector<double>::Constant(tokens, 1.0);
    runs.order = Vector<double>::Constant(tokens, 1e-4);
    runs.twin = oracle.exact.o;
    runs.twin.col(0).setOnes();
    runs.reordered = o = runs.twin;
  }
  /// Turns every row of `m` by the angle that gives it the distance `d` from the twin: its error stays as
  /// large.
  static void turn(Matrix<double>& m, double d) {
    const double angle = 2 * std::asin(d / 2);
    m.col(0).setConstant(std::cos(angle));
    m.col(1).setConstant(std::sin(angle));
  }
  [[nodiscard]] Judgement judge(const char* contract = "bf16") const {
    return judge_twin(oracle, contract_named(contract), runs, o);
  }
};

TEST(JudgeTwin, LimitsOfMedianAndRms) {
  struct Row {
    const char* contract;
    double median, rms;
  };
  for (const Row& row : {Row{"bf16", 0.15, 0.03}, {"tf32", 0.25, 0.1}, {"tf32_truncated", 0.25, 0.1}}) {
    TwinCase t(64, 16);
    EXPECT_EQ(t.judge(row.contract).verdict, Verdict::pass);
    EXPECT_EQ(t.judge(row.contract).ratio, 0.0);
    EXPECT_EQ(t.judge(row.contract).rows, 64);
    TwinCase::turn(t.o, row.median * 0.999);
    EXPECT_EQ(t.judge(row.contract).verdict, Verdict::pass) << row.contract;
    TwinCase::turn(t.o, row.median * 1.001);
    EXPECT_EQ(t.judge(row.contract).verdict, Verdict::fail) << row.contract;
    for (const double sign : {-1.0, 1.0}) {
      t.o = (1 + sign * row.rms * 0.999) * t.runs.twin;
      EXPECT_EQ(t.judge(row.contract).verdict, Verdict::pass) << row.contract << sign;
      t.o = (1 + sign * row.rms * 1.001) * t.runs.twin;
      EXPECT_EQ(t.judge(row.contract).verdict, Verdict::fail) << row.contract << sign;
    }
  }
}

TEST(JudgeTwin, RepeatedKeysWidenTheRmsAlone) {
  TwinCase t(64, 16);
  t.runs.repeated_keys = true;
  t.o = 1.0999 * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  t.o = 1.1001 * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  TwinCase::turn(t.o, 0.1501);
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
}

TEST(JudgeTwin, RmsIsInUnitsOfTheBound) {
  TwinCase t(64, 16);
  // One row of large error and large bound does not stand for the head.
  t.oracle.rms(5) = 1e3;
  t.runs.twin.row(5) *= 1e3;
  t.o = 1.031 * t.runs.twin;
  t.o.row(5) = t.runs.twin.row(5);
  t.runs.reordered = t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
}

TEST(JudgeTwin, LimitOfASingleRow) {
  const double limit = 2 * std::sqrt(3.0);  // one dominant rounding that falls the other way
  TwinCase t(256, 16);
  t.o(40, 3) = limit * 0.999;
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  t.o(40, 3) = limit * 1.001;
  const Judgement j = t.judge();
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "twin");
  EXPECT_EQ(j.worst.token, 40);
  EXPECT_EQ(j.worst.channel, 3);
  EXPECT_EQ(j.expected, 0.0);
  EXPECT_EQ(j.actual, t.o(40, 3));
}

TEST(JudgeTwin, LimitsGrowWithTheTwinsOwnDriftAndNoFurther) {
  constexpr double kDrift = 0.1;
  TwinCase t(64, 16);
  TwinCase::turn(t.runs.reordered, kDrift);
  TwinCase::turn(t.o, kTwinSpread * kDrift * 0.999);
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  TwinCase::turn(t.o, kTwinSpread * kDrift * 1.001);
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  const double rms = 0.03 + 2 * (kDrift * kDrift + kDrift / std::sqrt(64.0));
  t.o = (1 + rms * 0.999) * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  t.o = (1 + rms * 1.001) * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::fail);

  TwinCase single(4096, 16);
  const double drift = 2.0;
  ASSERT_GT(kTwinSpread * drift, 2 * std::sqrt(3.0));
  single.runs.reordered(7, 5) = drift;
  single.o(9, 2) = kTwinSpread * drift * 0.999;
  EXPECT_EQ(single.judge().verdict, Verdict::pass);
  single.o(9, 2) = kTwinSpread * drift * 1.001;
  EXPECT_EQ(single.judge().verdict, Verdict::fail);
}

TEST(JudgeTwin, RowsAtTheLevelOfTheOrderOfSumsDoNotCount) {
  TwinCase t(80, 32);
  for (Index i = 0; i < 40; ++i) {
    t.runs.order(2 * i) = 1.001 / kTwinMargin;
    t.o.row(2 * i).setConstant(100.0);
  }
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  EXPECT_EQ(t.judge().rows, 40);
  t.runs.order(10) = 0.999 / kTwinMargin;
  const Judgement j = t.judge();
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.worst.token, 10) << "a token of the head, not of the rows counted";
}

TEST(JudgeTwin, UnsupportedWithTooLittleToCount) {
  EXPECT_EQ(TwinCase(kTwinTokens, 32).judge().verdict, Verdict::pass);
  EXPECT_EQ(TwinCase(kTwinTokens - 1, 64).judge().verdict, Verdict::unsupported);
  EXPECT_EQ(TwinCase(333, 3).judge().verdict, Verdict::unsupported) << "999 elements";
  EXPECT_EQ(TwinCase(334, 3).judge().verdict, Verdict::pass);
  TwinCase t(64, 32);
  t.oracle.vacuous = true;
  EXPECT_EQ(t.judge().verdict, Verdict::unsupported);
}

TEST(JudgeTwin, OutputThatIsNotFiniteFails) {
  for (const double planted : {kNaN, kInfinity}) {
    TwinCase t(64, 16);
    t.o(3, 3) = planted;
    EXPECT_EQ(t.judge().verdict, Verdict::fail);
    EXPECT_EQ(t.judge().worst.token, 3);
  }
}

/// The chunked form of EQUATIONS 5.5 with the contract's rounding points, sums in Scalar.
template <class Scalar>
Trajectory<double> simulated(const Sequence<double>& x, const Contract& c, Index chunk) {
  const auto round = [](const Matrix<Scalar>& m, Format format) {
    return m
        .unaryExpr(
            [format](Scalar v) { return static_cast<Scalar>(round_to(static_cast<float>(v), format)); })
        .eval();
  };
  Trajectory<double> out = empty_trajectory(x);
  Matrix<Scalar> S = x.initial_state.cast<Scalar>();
  for (Index t = 0; t < x.tokens(); t += chunk) {
    const Index L = std::min(chunk, x.tokens() - t);
    const Sequence<Scalar> part = x.slice(t, t + L, x.initial_state).cast<Scalar>();
    const Matrix<Scalar> D = decay_between(part.g);
    const Vector<Scalar> e = decay_from_start(part.g);
    const Matrix<Scalar> KK = part.k * part.k.transpose();
    const Matrix<Scalar> A = lower<Scalar>(part.beta.asDiagonal() * KK.cwiseProduct(D), -1);
    const Matrix<Scalar> inverse = round(solve_unit_lower<Scalar>(A, Matrix<Scalar>::Identity(L, L)), c.T);
    const Matrix<Scalar> U = round(inverse * round(part.beta.asDiagonal() * part.v, c.beta_v), c.U);
    const Matrix<Scalar> W =
        round(inverse * round(part.beta.cwiseProduct(e).asDiagonal() * part.k, c.beta_exp_k), c.W);
    const Matrix<Scalar> operand = round(S, c.state_operand);
    const Matrix<Scalar> v_new = U - W * operand;
    const Matrix<Scalar> QK = part.q * part.k.transpose();
    const Matrix<Scalar> P = round(lower<Scalar>(QK.cwiseProduct(D), 0), c.P);
    const Matrix<Scalar> read = part.q * operand;
    const Matrix<Scalar> o = part.scale * (e.asDiagonal() * read + P * round(v_new, c.v_new));
    out.o.middleRows(t, L) = round(o, c.output).template cast<double>();
    const Matrix<Scalar> decayed = round(D.row(L - 1).transpose().asDiagonal() * v_new, c.v_decayed);
    S = round(e(L - 1) * S + part.k.transpose() * decayed, c.state);
  }
  out.state = S.template cast<double>();
  return out;
}

Sequence<double> in_bf16(Sequence<double> x) {
  for (Matrix<double>* m : {&x.q, &x.k, &x.v}) {
    *m = m->unaryExpr([](double v) { return round_to(v, Format::bf16); }).eval();
  }
  return x;
}

/// A head on which bf16 is far above the order of fp32 sums; inputs are bf16 values.
class SimulatedKernel : public ::testing::Test {
 protected:
  [[nodiscard]] HeadOracle oracle(const Contract& contract) const {
    return oracle_of(x, path, contract, family, false);
  }
  [[nodiscard]] Judgement against_twin(const Matrix<double>& o, const Matrix<double>& reordered) const {
    const HeadOracle head = oracle(bf16);
    const Bound sums = bound_of(x, path, sums_only(bf16), family, head.policy.mode, false);
    return judge_twin(head, bf16, {twin.o, reordered, sums.rms}, o);
  }

  static constexpr Index kChunk = 32;
  const Sequence<double> x = in_bf16(random_head(7, 128, 16, 32));
  const Contract& bf16 = contract_named("bf16_out_fp32");  // so that no rounding hides the order of sums
  const Family& family = family_named("gated_delta_rule");
  const Path path = whole(128, kChunk);
  const Trajectory<double> twin = simulated<float>(x, bf16, kChunk);
  const Trajectory<double> reordered = simulated<double>(x, bf16, kChunk);
};

TEST_F(SimulatedKernel, ItselfAndAnotherOrderOfSumsPass) {
  EXPECT_EQ(against_twin(twin.o, twin.o).ratio, 0.0);
  ASSERT_FALSE(reordered.o == twin.o);
  const Judgement j = against_twin(reordered.o, twin.o);
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
  EXPECT_GE(j.rows, kTwinTokens);
  RecordProperty("ratio", std::to_string(j.ratio));
}

TEST_F(SimulatedKernel, UndeclaredRoundingFailsTheTwinWhereTheBoundCannotSeeIt) {
  const HeadOracle head = oracle(bf16);
  const auto expect_caught = [&](const Trajectory<double>& kernel, const char* what) {
    EXPECT_EQ(judge_head(head, kernel.o, kernel.state).verdict, Verdict::pass) << what;
    EXPECT_EQ(against_twin(kernel.o, reordered.o).verdict, Verdict::fail) << what;
  };
  Sequence<double> rounded_beta = x;
  rounded_beta.beta = x.beta.unaryExpr([](double v) { return round_to(v, Format::bf16); });
  expect_caught(simulated<double>(rounded_beta, bf16, kChunk), "beta rounded to bf16");
  Contract changed = bf16;
  changed.U = Format::fp32;
  expect_caught(simulated<double>(x, changed, kChunk), "U, declared bf16, is not rounded");
  changed = bf16;
  changed.P = Format::fp32;
  expect_caught(simulated<double>(x, changed, kChunk), "P, declared bf16, is not rounded");
  changed = bf16;
  changed.output = Format::bf16;
  expect_caught(simulated<double>(x, changed, kChunk), "output, declared fp32, is rounded to bf16");
}

TEST_F(SimulatedKernel, NoiseOfOnePerCentFailsTheTwin) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  const Matrix<double> noisy = twin.o.unaryExpr([&](double v) { return v * (1 + 0.01 * normal(random)); });
  EXPECT_EQ(against_twin(noisy, reordered.o).verdict, Verdict::fail);
}

TEST_F(SimulatedKernel, PassesUnderItsOwnContractAndFailsUnderAStricterOne) {
  const Judgement own = judge_head(oracle(bf16), twin.o, twin.state);
  EXPECT_EQ(own.verdict, Verdict::pass) << own.reason;
  const HeadOracle strict = oracle(contract_named("fp32"));
  EXPECT_EQ(judge_head(strict, twin.o, twin.state).verdict, Verdict::fail);
  const Trajectory<float> fp32 = recurrent<GatedDeltaRule>(x.cast<float>());
  const Judgement j = judge_head(strict, fp32.o.cast<double>(), fp32.state.cast<double>());
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
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
