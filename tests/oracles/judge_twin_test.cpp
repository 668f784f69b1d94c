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
#include "oracles/rounding.h"
#include "reference/gated_delta_rule.h"
#include "tests/oracles/bounds/heads.h"

namespace samestate {
namespace {

/// Relative distance from a limit at which a gate is shown to be open and shut.
constexpr double kBelowTwin = 1 - 1e-9;
constexpr double kAboveTwin = 1 + 1e-9;

/// Twin, reordered twin and kernel at distance B = 1 from the oracle in every row.
struct TwinCase {
  HeadOracle oracle;
  TwinRuns runs;
  Matrix<double> o;

  TwinCase(Index tokens, Index width) {
    oracle.exact.o = Matrix<double>::Zero(tokens, width);
    oracle.exact.state = Matrix<double>::Zero(2, width);
    oracle.rms = Vector<double>::Constant(tokens, 1.0);
    runs.order = Vector<double>::Constant(tokens, 1e-7);
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

// The ratio is of the statistic that decides, and so are error and bound.
TEST(JudgeTwin, ErrorOverBoundIsTheRatio) {
  const auto check = [](const TwinCase& t, const char* gate) {
    const Judgement j = t.judge();
    EXPECT_EQ(j.gate, gate);
    EXPECT_GT(j.ratio, 0.0);
    EXPECT_DOUBLE_EQ(j.ratio, j.error / j.bound);
  };
  for (const double d : {0.05, 0.14, 0.16, 1.0}) {
    TwinCase t(64, 16);
    TwinCase::turn(t.o, d);
    check(t, "twin median");
  }
  for (const double factor : {0.9, 1.02, 1.07}) {
    TwinCase t(64, 16);
    t.o *= factor;
    check(t, "twin RMS");
  }
  TwinCase t(64, 16);
  t.o(7, 0) += 3.5;
  t.runs.repeated_keys = true;  // the RMS does not count
  check(t, "twin");
}

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

TEST(JudgeTwin, RepeatedKeysLeaveTheRmsOut) {
  TwinCase t(64, 16);
  t.o = 1.1 * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  t.runs.repeated_keys = true;
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  // The other two gates stay.
  TwinCase::turn(t.o, 0.1501);
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  t.o = t.runs.twin;
  t.o.row(7) = (1 + 2 * std::sqrt(3.0) * 1.01) * t.runs.twin.row(7);
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

/// Declared roundings that fall on numbers that are there already leave errors of fp32 sums alone: an order and a unit of
/// its own moves them by as much as they are (CUDA retention with chunks of one token: 7 % of 0.01 B).
TEST(JudgeTwin, ErrorsOfFp32SumsAloneMayDiffer) {
  TwinCase t(64, 16);
  t.runs.order.setConstant(0.01);
  t.runs.twin *= 0.01;
  t.runs.reordered = t.runs.twin;
  for (const double factor : {0.5, 1.075, 2.0}) {
    t.o = factor * t.runs.twin;
    EXPECT_EQ(t.judge().verdict, Verdict::pass) << factor;
  }
  t.o = 5 * t.runs.twin;  // 0.05 B
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  EXPECT_EQ(t.judge().gate, "twin RMS");
  t.runs.order.setConstant(1e-4);  // the same where sums make less
  t.o = 1.075 * t.runs.twin;
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
  // A twin without any error leaves room for what sums make, and for no more.
  t.runs.order.setConstant(0.01);
  t.runs.twin.setZero();
  t.runs.reordered.setZero();
  t.o.setZero();
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  t.o.col(0).setConstant(0.02);
  EXPECT_EQ(t.judge().verdict, Verdict::pass);
  t.o.col(0).setConstant(0.03);
  EXPECT_EQ(t.judge().verdict, Verdict::fail);
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

TEST(JudgeTwin, TwinThatOverflows) {
  for (const double planted : {kNaN, kInfinity}) {
    TwinCase drifting(64, 16);
    drifting.runs.reordered(5, 2) = planted;
    drifting.o(3, 3) = 1e30;  // would pass under infinite limits
    EXPECT_EQ(drifting.judge().verdict, Verdict::unsupported);

    TwinCase missing(64, 16);
    missing.runs.twin(5, 2) = planted;
    EXPECT_EQ(missing.judge().verdict, Verdict::fail);
    missing.oracle.overflow_expected = true;
    EXPECT_EQ(missing.judge().verdict, Verdict::unsupported);
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

// One rounding that fell the other way, of keys of one line: every later row differs by a multiple of it.
TEST(JudgeTwin, OneTurnedRoundingInAllLaterRowsIsNoMedian) {
  std::mt19937_64 engine(3);
  std::normal_distribution<double> normal;
  const auto judged = [&](Index first, bool own_directions) {
    TwinCase t(40, 32);
    t.runs.repeated_keys = true;
    Vector<double> direction(32);
    for (Index i = first; i < 40; ++i) {
      if (i == first || own_directions) {
        for (double& x : direction) x = normal(engine);
      }
      t.o.row(i) += 0.2 / direction.norm() * direction.transpose();
    }
    return t.judge();
  };
  EXPECT_EQ(judged(8, false).verdict, Verdict::pass);
  EXPECT_EQ(judged(4, false).verdict, Verdict::pass);
  // One that no contract has is in the first rows too, and in each row by itself.
  EXPECT_EQ(judged(0, false).gate, "twin median");
  EXPECT_EQ(judged(3, false).verdict, Verdict::fail);
  EXPECT_EQ(judged(8, true).verdict, Verdict::fail);
}

// All rows of a final state come after one changed rounding, or after a few: they differ in few of the
// directions among which the errors of the twin are divided. A rounding of every token is in as many of them.
TEST(JudgeTwin, TurnedRoundingsInAllRowsOfAStateAreNoMedian) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  const auto random = [&](Index rows, Index columns) -> Matrix<double> {
    return Matrix<double>(rows, columns).unaryExpr([&](double) { return normal(engine); });
  };
  const auto judged = [&](Index tokens, bool of_states) {
    TwinCase t(40, 64);
    t.runs.of_states = of_states;
    const Matrix<double> twin = random(40, 64);
    t.runs.twin = t.runs.reordered = twin / 8.0;
    Matrix<double> turned = random(40, tokens) * random(tokens, 64);
    for (Index i = 0; i < turned.rows(); ++i) turned.row(i) *= 0.2 / turned.row(i).norm();
    t.o = t.runs.twin + turned;
    t.runs.repeated_keys = true;  // the RMS does not count
    return t.judge();
  };
  for (const Index few : {1, 2, 6}) {
    EXPECT_EQ(judged(few, true).verdict, Verdict::pass) << few;
    EXPECT_EQ(judged(few, false).gate, "twin median") << few;
  }
  EXPECT_EQ(judged(32, true).gate, "twin median");
  EXPECT_EQ(judged(32, true).verdict, Verdict::fail);
}

}  // namespace
}  // namespace samestate
