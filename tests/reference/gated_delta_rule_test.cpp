#include "reference/gated_delta_rule.h"

#include <gtest/gtest.h>

#include "reference/delta_rule.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::draw;
using test::relative;

// EQ-01, EQ-04: column convention, expanded form and the scan of affine maps are the same rule.
template <class Scalar>
void expect_conventions_agree(double residual) {
  const Sequence<Scalar> x = draw(19, 5, 4).cast<Scalar>();
  const Trajectory<Scalar> row = recurrent<GatedDeltaRule>(x);
  for (const Trajectory<Scalar>& other :
       {gated_delta_rule_column(x), gated_delta_rule_expanded(x), gated_delta_rule_scan(x)}) {
    EXPECT_LE(relative(other.o, row.o), residual);
    EXPECT_LE(relative(other.delta, row.delta), residual);
    EXPECT_LE(relative(other.state, row.state), residual);
  }
}

TEST(GatedDeltaRule, ConventionsAgree) {
  expect_conventions_agree<double>(5e-14);
  expect_conventions_agree<Decimal50>(1e-47);
}

// E-01: with alpha = beta = k = v = 1 twice, the state is 1; without the delta correction it would be 2.
TEST(GatedDeltaRule, WritingTheSamePairTwiceChangesNothing) {
  Sequence<double> x = draw(2, 1, 1);
  x.k.setOnes();
  x.v.setOnes();
  x.beta.setOnes();
  x.g.setZero();
  x.initial_state.setZero();
  EXPECT_EQ(recurrent<GatedDeltaRule>(x).state(0, 0), 1.0);
  EXPECT_EQ(chunked<GatedDeltaRule>(x, 2).state(0, 0), 1.0);
}

// E-02: a masked token (g = 0, beta = 0, k = 0) keeps the state bit for bit.
TEST(GatedDeltaRule, NoOpTokenKeepsTheState) {
  Sequence<double> x = draw(3, 4, 4);
  x.g.setZero();
  x.beta.setZero();
  x.k.setZero();
  EXPECT_EQ(recurrent<GatedDeltaRule>(x).state, x.initial_state);
  EXPECT_EQ(chunked<GatedDeltaRule>(x, 3).state, x.initial_state);
}

// The maps do not commute: composed in the wrong order the scan must differ (negative control of EQ-04, BUGS
// M89).
TEST(GatedDeltaRule, MapsDoNotCommute) {
  const Sequence<double> x = draw(2, 3, 2);
  const AffineMap<double> first = gated_delta_rule_map(x, 0);
  const AffineMap<double> second = gated_delta_rule_map(x, 1);
  EXPECT_GT(relative(then(first, second).B, then(second, first).B), 1e-3);
}

// The order of decay and delta matters (negative control, BUGS M17): u from the state before the decay
// differs.
TEST(GatedDeltaRule, DeltaReadsTheDecayedState) {
  const Sequence<double> x = draw(1, 3, 2);
  const Matrix<double> decayed = std::exp(x.g(0)) * x.initial_state;
  const Matrix<double> right = x.beta(0) * (x.v.row(0) - x.k.row(0) * decayed);
  const Matrix<double> wrong = x.beta(0) * (x.v.row(0) - x.k.row(0) * x.initial_state);
  const Trajectory<double> out = recurrent<GatedDeltaRule>(x);
  EXPECT_LE(relative(out.delta, right), 1e-14);
  EXPECT_GT(relative(out.delta, wrong), 1e-3);
}

// E-03 (DELTA-9): beta = 1/2, k = v = 1, S = 0 gives 1/2 and not 1.
TEST(DeltaRule, BetaScalesTheWrittenValue) {
  Sequence<double> x = draw(1, 1, 1);
  x.k.setOnes();
  x.v.setOnes();
  x.beta.setConstant(0.5);
  x.initial_state.setZero();
  EXPECT_EQ(recurrent<DeltaRule>(x).state(0, 0), 0.5);
  EXPECT_EQ(chunked<DeltaRule>(x, 1).state(0, 0), 0.5);
}

TEST(DeltaRule, IsTheGatedRuleWithoutDecay) {
  const Sequence<double> x = draw(21, 6, 5, 7, false, true);
  EXPECT_EQ(recurrent<DeltaRule>(x).o, recurrent<GatedDeltaRule>(x).o);
}

// EQ-06: the proximal step argmin 1/2 |k S - v|^2 + 1/(2 eta) |S - S0|^2 is the delta rule with beta = eta /
// (1 + eta |k|^2).
TEST(DeltaRule, IsTheProximalStep) {
  Sequence<double> x = draw(1, 4, 3);
  x.k *= 1.7;
  const double eta = 0.37;
  const Matrix<double> k = x.k.row(0);
  const Matrix<double> normal = k.transpose() * k + Matrix<double>::Identity(4, 4) / eta;
  const Matrix<double> right = k.transpose() * x.v.row(0) + x.initial_state / eta;
  const Matrix<double> argmin = normal.ldlt().solve(right);
  x.beta(0) = eta / (1 + eta * k.squaredNorm());
  EXPECT_LE(relative(recurrent<DeltaRule>(x).state, argmin), 1e-14);
}

}  // namespace
}  // namespace samestate
