#include "oracles/bounds/running_error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "oracles/contracts.h"
#include "reference/activations.h"

namespace samestate {
namespace {

/// Sums `terms` in fp32 as a random tree: two random partial sums are added until one is left.
float random_tree(std::vector<float> terms, std::mt19937_64& engine) {
  while (terms.size() > 1) {
    std::swap(terms[engine() % terms.size()], terms.back());
    const float last = terms.back();
    terms.pop_back();
    terms[engine() % terms.size()] += last;
  }
  return terms.front();
}

constexpr PointRow kRows[] = {{"made", "A product of this test, and its result.", PointUse::both}};
constexpr PointTable kTable{"running_error_test", PointTier::equation, kRows};
constexpr Point kMade = kTable["made"];

TEST(Running, SumIsBoundedInAnyOrder) {
  std::mt19937_64 engine(3);
  std::normal_distribution<float> normal;
  double largest = 0.0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t n = 2 + engine() % 200;
    std::vector<float> terms(n);
    Running sum(0.0);
    double exact = 0.0;
    for (float& x : terms) {
      x = normal(engine) * static_cast<float>(1 << engine() % 12);
      sum += Running(x);
      exact += static_cast<double>(x);
    }
    const double error = std::abs(static_cast<double>(random_tree(terms, engine)) - exact);
    EXPECT_NEAR(sum.value(), exact, 1e-9);
    EXPECT_LE(error, sum.error());
    largest = std::max(largest, error / sum.error());
  }
  EXPECT_GT(largest, 0.01);  // a bound that no tree comes near would say little
}

// Eigen cuts long sums into blocks and multiplies each by one: the bound of any order must not see the blocks.
TEST(Running, ProductsOfEigenAreBoundedInAnyOrder) {
  using RowMajor = Eigen::Matrix<Running, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  for (const Index n : {1, 2, 15, 16, 17, 129, 256, 511, 1500}) {
    const auto terms = static_cast<double>(n);
    const double any_order = (terms - 1.0) * 0x1p-24 * terms;
    for (const Index rows : {1, 2, 33}) {
      for (const Index columns : {1, 3, 40}) {
        const Matrix<Running> a = Matrix<Running>::Constant(rows, n, Running(1.0));
        const Matrix<Running> b = Matrix<Running>::Constant(n, columns, Running(1.0));
        const Matrix<Running> at = a.transpose();
        const RowMajor by_rows = b;
        const Matrix<Running> products[] = {a * b, at.transpose() * b, a * by_rows, at.transpose() * by_rows,
                                            a.lazyProduct(b)};
        for (const Matrix<Running>& product : products) {
          EXPECT_EQ(product(0, 0).value(), terms);
          EXPECT_GE(product(rows - 1, columns - 1).error(), any_order)
              << n << " terms, " << rows << " x " << columns;
        }
      }
    }
  }
}

TEST(Running, OneLeavesASumPending) {
  Running sum(0.0);
  for (int i = 0; i < 5; ++i) sum += Running(1.0) * Running(1.0);
  EXPECT_DOUBLE_EQ((sum * Running(1.0) + Running(1.0) * Running(3.0)).error(),
                   5 * 0x1p-24 * 8.0 / (1.0 - 5 * 0x1p-24));
  // One that is not known to be one rounds like any other factor.
  EXPECT_GT((Running(3.0) * Running::within(1.0, 1e-9)).error(), 3e-9);
}

TEST(Running, ZerosAddNoRounding) {
  Running sum(0.0);
  for (int i = 0; i < 100; ++i) sum += Running(0.0);
  sum += Running(1.5);
  EXPECT_EQ(sum.error(), 0.0);
  sum += Running(2.5);
  EXPECT_NEAR(sum.error(), 0x1p-24 * 4.0, 1e-12);
}

TEST(Running, ASumUsedAsFactorIsChargedOnce) {
  Running sum(0.0);
  for (int i = 0; i < 5; ++i) sum += Running(1.0);
  const Running product = sum * Running(2.0);
  // 4 u 5 of the sum, twice that by the factor, and one rounding of the product.
  EXPECT_NEAR(product.error(), 2.0 * 4.0 * 5.0 * 0x1p-24 + 10.0 * 0x1p-24, 1e-11);
  EXPECT_EQ(product.value(), 10.0);
}

TEST(Running, FactorOfExactlyZeroStaysZero) {
  const Running infinite = Running::within(1.0, std::numeric_limits<double>::infinity());
  EXPECT_EQ((Running(0.0) * infinite).error(), 0.0);
  EXPECT_EQ((Running(0.0) * infinite).value(), 0.0);
  EXPECT_TRUE(std::isinf((Running(1.0) * infinite).error()));
}

// Infinity times zero is not a number; an open choice is finite, whatever it is.
TEST(Running, ZeroTimesWhatOverflowsHasNoBound) {
  for (const double value : {60000.0, 70000.0}) {
    bool overflows = false;
    RunningModel model = RunningModel::of(contract_named("fp16"));
    model.overflows = &overflows;
    const RunningScope scope(model);
    const Running open = Running::within(1.0, std::numeric_limits<double>::infinity());
    EXPECT_EQ((Running(0.0) * open).error(), 0.0);
    const Running kept = RoundingPoint<Running>::stored(Running(value));
    EXPECT_EQ(overflows, value > 65504.0);
    EXPECT_EQ(std::isinf((Running(0.0) * kept).error()), overflows) << value;
    EXPECT_EQ(std::isinf((kept * Running(0.0)).error()), overflows) << value;
  }
}

// A kernel has an infinity there, and what it makes of that, a quotient's zero for one, is not a rounding's.
TEST(Running, WhatFp32HasNoNumberForHasNoBound) {
  bool overflows = false;
  RunningModel model;
  model.overflows = &overflows;
  const RunningScope scope(model);
  const Running large = Running(0x1p100) * Running(0x1p27);
  EXPECT_TRUE(std::isfinite(large.error()));
  EXPECT_TRUE(std::isfinite((large + Running(0x1p126)).error()));
  EXPECT_FALSE(overflows);
  // For a sum, a partial sum that overflows is enough.
  EXPECT_TRUE(std::isinf((large + Running(0x1p127) - Running(0x1p127)).error()));
  EXPECT_TRUE(overflows);
  overflows = false;
  const Running beyond = Running(0x1p100) * Running(0x1p28);
  EXPECT_TRUE(std::isinf(beyond.error()));
  EXPECT_TRUE(std::isinf((Running(1.0) / sqrt(beyond)).error()));
  EXPECT_TRUE(overflows);
}

// A kernel whose operands were rounded up has no number for what in exact numbers just had one.
TEST(Running, WhatFp32MayHaveNoNumberForHasNoBound) {
  bool overflows = false;
  RunningModel model;
  model.overflows = &overflows;
  const RunningScope scope(model);
  const Running near = Running::within(0x1p127, 0x1p120);
  EXPECT_TRUE(std::isfinite((near * Running(1.9)).error()));
  EXPECT_TRUE(std::isfinite((near + Running(0x1.9p126)).error()));
  EXPECT_FALSE(overflows);
  const Running beyond = near * Running(1.999);
  EXPECT_TRUE(std::isinf(beyond.error()) && beyond.overflows());
  EXPECT_TRUE(overflows);
  const Running sum = near + Running(0x1.ffp126);
  EXPECT_TRUE(std::isinf(sum.error()) && sum.overflows()) << "pending";
  // Nothing is known about a quotient by a number that may be anything.
  EXPECT_FALSE((Running(1.0) / Running::within(0.5, 0.5)).overflows());
}

// It goes where the value goes, and no infinite error of another origin has it.
TEST(Running, OverflowIsKnownOfWhatIsMadeOfIt) {
  const Running beyond = Running(0x1p100) * Running(0x1p28);
  const Running open = Running(1.0) / Running::within(0.5, 0.5);
  const Running one(1.0);
  Running two = one;
  two += one;
  ASSERT_TRUE(std::isinf(beyond.error()) && std::isinf(open.error()));
  EXPECT_TRUE(beyond.overflows());
  EXPECT_FALSE(open.overflows() || one.overflows() || (open + one).overflows() || (open * two).overflows());
  const Running pending = Running(0x1p127) + Running(0x1p127) - Running(0x1p127);
  EXPECT_TRUE(pending.overflows()) << "a partial sum";
  EXPECT_TRUE((pending * two).overflows());
  for (const Running& x :
       {-beyond,       beyond + one,          one - beyond,     beyond * two,
        two * beyond,  Running(0.0) * beyond, beyond / two,     one / beyond,
        open + beyond, beyond * open,         abs(beyond),      sqrt(beyond),
        exp(beyond),   expm1(beyond),         log(beyond),      log1p(beyond),
        sin(beyond),   cos(beyond),           softplus(beyond), Running::undecided(beyond, kUnlimited)}) {
    EXPECT_TRUE(std::isinf(x.error()) && x.overflows()) << x.value();
  }
  for (const Running& x : {open - one, open / two, two / open, abs(open), log(open), sin(open),
                           Running::undecided(open, kUnlimited)})
    EXPECT_FALSE(x.overflows()) << x.value();
  EXPECT_TRUE(Running::unknown(one, 1e39).overflows()) << "another choice's may be beyond";
  EXPECT_FALSE(Running::unknown(one, 1e38).overflows());
  bool any = true;
  RunningModel model;
  model.overflows = &any;
  const RunningScope scope(model);
  EXPECT_TRUE(Running::unknown(one, 1.0).overflows()) << "another choice's values are nobody's to know";
}

TEST(Running, DivisionByWhatMayBeZeroHasNoBound) {
  EXPECT_TRUE(std::isinf((Running(1.0) / Running::within(0.5, 0.5)).error()));
  EXPECT_TRUE(std::isfinite((Running(1.0) / Running::within(0.5, 0.49)).error()));
}

/// Each function: fp32 evaluations at perturbed arguments stay within the bound, and some come near.
struct Unary {
  const char* name;
  Running (*bound)(const Running&);
  float (*value)(float);
  double least, most;
};

class RunningFunction : public ::testing::TestWithParam<Unary> {};

TEST_P(RunningFunction, BoundsTheFp32FunctionAtPerturbedArguments) {
  const Unary& f = GetParam();
  std::mt19937_64 engine(5);
  std::uniform_real_distribution<double> uniform(f.least, f.most);
  std::uniform_real_distribution<double> side(-1.0, 1.0);
  double largest = 0.0;
  for (int i = 0; i < 4000; ++i) {
    const double x = static_cast<double>(static_cast<float>(uniform(engine)));
    const double error = i % 2 == 0 ? 0.0 : 1e-4 * std::abs(x);
    const Running y = f.bound(Running::within(x, error));
    const float given = static_cast<float>(x + 0.999 * error * side(engine));
    const double actual = static_cast<double>(f.value(given));
    const double off = std::abs(actual - y.value());
    EXPECT_LE(off, y.error()) << f.name << " at " << x;
    if (y.error() > 0.0) largest = std::max(largest, off / y.error());
  }
  EXPECT_GT(largest, 0.1) << f.name;
}

INSTANTIATE_TEST_SUITE_P(
    All, RunningFunction,
    ::testing::Values(Unary{"exp", [](const Running& x) { return exp(x); },
                            [](float x) { return std::exp(x); }, -80.0, 20.0},
                      Unary{"expm1", [](const Running& x) { return expm1(x); },
                            [](float x) { return std::expm1(x); }, -10.0, 10.0},
                      Unary{"log", [](const Running& x) { return log(x); },
                            [](float x) { return std::log(x); }, 0.01, 100.0},
                      Unary{"log1p", [](const Running& x) { return log1p(x); },
                            [](float x) { return std::log1p(x); }, -0.9, 50.0},
                      Unary{"sqrt", [](const Running& x) { return sqrt(x); },
                            [](float x) { return std::sqrt(x); }, 0.0, 100.0},
                      Unary{"sin", [](const Running& x) { return sin(x); },
                            [](float x) { return std::sin(x); }, -50.0, 50.0},
                      Unary{"cos", [](const Running& x) { return cos(x); },
                            [](float x) { return std::cos(x); }, -50.0, 50.0},
                      Unary{"silu", [](const Running& x) { return silu(x); },
                            [](float x) { return x / (1.0F + std::exp(-x)); }, -80.0, 80.0},
                      Unary{"softplus", [](const Running& x) { return softplus(x); },
                            [](float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }, -40.0, 40.0},
                      Unary{"softplus_by_log", [](const Running& x) { return softplus(x); },
                            [](float x) { return x > 20.0F ? x : std::log(1.0F + std::exp(x)); }, -40.0,
                            40.0}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Running, RoundingPointAddsTheContractsUnit) {
  const Matrix<Running> x = Matrix<Running>::Constant(1, 1, Running(3.0));
  EXPECT_EQ(stored(x, kMade)(0, 0).error(), 0.0);
  const RunningScope scope(RunningModel::of(contract_named("bf16")));
  EXPECT_NEAR(stored(x, kMade)(0, 0).error(), 3.0 * 0x1p-8, 1e-6);
}

TEST(Running, ZeroHasNothingToRound) {
  const RunningScope scope(RunningModel::of(contract_named("bf16")));
  EXPECT_EQ(stored<Running>(Matrix<Running>::Constant(1, 1, Running(0.0)), kMade)(0, 0).error(), 0.0);
  EXPECT_GT(stored<Running>(Matrix<Running>::Constant(1, 1, Running::within(0.0, 1e-9)), kMade)(0, 0).error(),
            1e-9);
}

// Both operands or, elsewhere, neither; what is a number of tf32 is not rounded.
TEST(Running, AMatrixUnitRoundsItsOperands) {
  const Matrix<Running> a = Matrix<Running>::Constant(1, 1, Running(1.0 + 0x1p-13));
  const Matrix<Running> b = Matrix<Running>::Constant(1, 1, Running(3.0));
  EXPECT_LT(matrix_product(a, b, kMade)(0, 0).error(), 1e-6) << "fp32";
  bool rounds = false;
  for (const auto& [contract, unit] : {std::pair{"tf32", 0x1p-11}, {"tf32_truncated", 0x1p-10}}) {
    RunningModel model = RunningModel::of(contract_named(contract));
    model.rounds = &rounds;
    const RunningScope scope(model);
    EXPECT_NEAR(matrix_product(a, b, kMade)(0, 0).error(), 3.0 * unit, 3e-3 * unit) << "one of them";
    EXPECT_NEAR(matrix_product(a, a, kMade)(0, 0).error(), 2.0 * unit, 3e-3 * unit) << "both";
    EXPECT_LT(matrix_product(b, b, kMade)(0, 0).error(), 1e-6) << "integers are exact";
    EXPECT_EQ(stored(a, kMade)(0, 0).error(), 0.0) << "storage is fp32";
    EXPECT_TRUE(std::exchange(rounds, false));
  }
  const RunningScope scope(RunningModel::of(contract_named("bf16")));
  EXPECT_LT(matrix_product(a, b, kMade)(0, 0).error(), 1e-6) << "operands of 16 bit are stored so";
}

TEST(Running, TheTwinsOperandIsOneNumberWhereItIsKnown) {
  const RunningScope scope(RunningModel::twin(contract_named("tf32")));
  const auto operand = [](const Running& x) { return RoundingPoint<Running>::operand(x); };
  EXPECT_EQ(operand(Running(1.0 + 0x1p-12)).value(), 1.0);
  EXPECT_EQ(operand(Running(1.0 + 0x1p-12)).error(), 0.0);
  EXPECT_EQ(operand(Running(1.0 + 0x1p-11)).error(), 0x1p-10) << "a tie, to even or away from zero";
  EXPECT_EQ(operand(Running::within(1.0 + 0x1p-12, 1e-7)).error(), 0.0) << "all of it is rounded to 1";
  EXPECT_EQ(operand(Running::within(1.0 + 0x1p-11, 1e-7)).error(), 0x1p-10) << "either";
}

/// Scores off by `error` each, the maximum among them.
TEST(Running, SoftmaxOfScoresWithErrors) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  for (const double error : {1e-3, 0.1, 0.6}) {
    double largest = 0.0;
    for (int round = 0; round < 200; ++round) {
      Matrix<double> moved(1, 6);
      Matrix<Running> scores(1, 6);
      for (Index i = 0; i < 6; ++i) {
        const double x = normal(engine);
        scores(0, i) = Running::within(x, error);
        moved(0, i) = x + (engine() % 2 == 0 ? error : -error);
      }
      const Matrix<Running> p = softmax(scores);
      const Matrix<double> actual = softmax(moved);
      for (Index i = 0; i < 6; ++i) {
        const double off = std::abs(actual(0, i) - p(0, i).value());
        EXPECT_LE(off, p(0, i).error());
        largest = std::max(largest, off / p(0, i).error());
      }
    }
    EXPECT_GT(largest, 0.2) << error;
  }
}

TEST(Running, AShiftFarOffKeepsItsError) {
  EXPECT_EQ(softmax_shift(Running::within(3.0, 0.5)).error(), 0.0);
  EXPECT_EQ(softmax_shift(Running::within(3.0, 0.7)).error(), 0.7);
}

TEST(Running, TheTwinsMaximumIsEitherOfTwoThatMayBeTheLargerOne) {
  // 1.467 for certain, and 1.463 +- 0.0087, which a kernel had as 1.472 and subtracted.
  const Running certain = Running::within(1.467, 1e-6);
  const Running rival = Running::within(1.463, 0.0087);
  Running maximum = certain;
  EXPECT_FALSE(take_larger(maximum, rival)) << "but of the twin it cancels";
  const RunningScope scope(RunningModel::twin(contract_named("bf16")));
  ASSERT_TRUE(take_larger(maximum, rival));
  EXPECT_EQ(maximum.value(), 1.467);
  EXPECT_NEAR(maximum.error(), 1.463 + 0.0087 - 1.467, 1e-12);
  EXPECT_FALSE(take_larger(maximum, rival)) << "nothing new";
  EXPECT_FALSE(take_larger(maximum, Running::within(1.0, 0.1)));
  // The other way round: the larger value is the one that may be the smaller.
  maximum = certain;
  ASSERT_TRUE(take_larger(maximum, Running::within(1.468, 0.01)));
  EXPECT_EQ(maximum.value(), 1.468);
  EXPECT_NEAR(maximum.error(), 0.01, 1e-12);
  EXPECT_EQ(softmax_shift(maximum).error(), maximum.error());
}

TEST(Running, ExponentialOfTheContractIsCharged) {
  const double exact = exp(Running(-20.0)).error();
  Contract contract = contract_named("fp32");
  contract.exponential = Exponential::ex2;
  const RunningScope scope(RunningModel::of(contract));
  const float product = -20.0F * 1.4426950408889634F;
  EXPECT_GT(exp(Running(-20.0)).error(), 5.0 * exact);
  EXPECT_LE(std::abs(static_cast<double>(std::exp2(product)) - std::exp(-20.0)), exp(Running(-20.0)).error());
}

TEST(Running, ScopeRestoresTheModel) {
  {
    RunningModel model;
    model.unit = 0.25;
    const RunningScope scope(model);
    EXPECT_EQ((Running(2.0) * Running(2.0)).error(), 1.0);
  }
  EXPECT_EQ((Running(2.0) * Running(2.0)).error(), 0x1p-22);
}

}  // namespace
}  // namespace samestate
