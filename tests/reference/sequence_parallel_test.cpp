#include "reference/sequence_parallel.h"

#include <gtest/gtest.h>

#include "reference/delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::draw;
using test::relative;

const std::vector<std::vector<Index>> kCuts = {
    {0, 19},                                          // one rank
    {0, 7, 19},                                       // uneven
    {0, 0, 19, 19},                                   // the first and the last empty
    {0, 5, 5, 5, 6, 19},                              // empty ones between, and one token
    {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  //
     12, 13, 14, 15, 16, 17, 18, 19, 19, 19, 19},     // more ranks than tokens
};

// EQ-04: any ranks and any cuts are the recurrence, whose steps are made otherwise.
template <class System, class Scalar>
void expect_equals_recurrence(double residual) {
  const Sequence<Scalar> x = draw(19, 5, 4, 3, System::gated, System::delta).template cast<Scalar>();
  const Trajectory<Scalar> one = recurrent<System>(x);
  for (const std::vector<Index>& cuts : kCuts) {
    const Trajectory<Scalar> many = sequence_parallel<System>(x, cuts);
    EXPECT_LE(relative(many.o, one.o), residual) << cuts.size() - 1 << " ranks";
    EXPECT_LE(relative(many.delta, one.delta), residual) << cuts.size() - 1 << " ranks";
    EXPECT_LE(relative(many.state, one.state), residual) << cuts.size() - 1 << " ranks";
  }
}

TEST(SequenceParallel, AnyCutsAreTheRecurrenceInDouble) {
  expect_equals_recurrence<GatedDeltaRule, double>(5e-14);
  expect_equals_recurrence<DeltaRule, double>(5e-14);
  expect_equals_recurrence<Retention, double>(5e-14);
  expect_equals_recurrence<LinearAttention, double>(5e-14);
}

TEST(SequenceParallel, AnyCutsAreTheRecurrenceToFiftyDigits) {
  expect_equals_recurrence<GatedDeltaRule, Decimal50>(1e-47);
  expect_equals_recurrence<DeltaRule, Decimal50>(1e-47);
  expect_equals_recurrence<Retention, Decimal50>(1e-47);
  expect_equals_recurrence<LinearAttention, Decimal50>(1e-47);
}

// Two tokens of width 1, alpha = 1/2 and beta = 1/2 at k = 1: each step is S <- S / 4 + v / 2.
TEST(SequenceParallel, MapOfTwoTokensByHand) {
  Sequence<double> x = draw(2, 1, 1);
  x.k.setOnes();
  x.beta.setConstant(0.5);
  x.g.setConstant(std::log(0.5));
  x.v << 4.0, 6.0;
  const AffineMap<double> map = part_map<GatedDeltaRule>(x);
  EXPECT_NEAR(map.A(0, 0), 1.0 / 16.0, 1e-16);
  EXPECT_NEAR(map.B(0, 0), 4.0 / 2.0 / 4.0 + 6.0 / 2.0, 1e-15);
}

// Negative controls: maps in the wrong order, and a part's decay twice, are another state.
TEST(SequenceParallel, WrongCompositionsDiffer) {
  const Sequence<double> x = draw(12, 4, 3);
  const AffineMap<double> first = part_map<GatedDeltaRule>(x.slice(0, 5, x.initial_state));
  const AffineMap<double> second = part_map<GatedDeltaRule>(x.slice(5, 12, x.initial_state));
  const Matrix<double> right = recurrent<GatedDeltaRule>(x).state;
  EXPECT_LE(relative(scanned_states<double>({first, second}, x.initial_state).back(), right), 1e-14);
  EXPECT_GT(relative(scanned_states<double>({second, first}, x.initial_state).back(), right), 1e-3);
  AffineMap<double> twice = second;
  twice.A *= std::exp(x.g.tail(7).sum());
  EXPECT_GT(relative(scanned_states<double>({first, twice}, x.initial_state).back(), right), 1e-3);
}

TEST(SequenceParallel, ImpossibleCutsAreRefused) {
  const Sequence<double> x = draw(6, 3, 2);
  for (const std::vector<Index>& cuts :
       std::vector<std::vector<Index>>{{}, {0}, {1, 6}, {0, 5}, {0, 4, 3, 6}, {0, 7, 6}}) {
    EXPECT_THROW((void)sequence_parallel<GatedDeltaRule>(x, cuts), Error);
  }
}

}  // namespace
}  // namespace samestate
