#include "reference/retnet.h"

#include <gtest/gtest.h>

#include "reference/retention.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::relative;

Matrix<double> column(double a, double b) { return (Matrix<double>(2, 1) << a, b).finished(); }

// q = k = 1, v = (1, 10), gamma = 1/2. Core: (1, 10.5). Parallel: row 2 of the mask is (1/2, 1) / sqrt(3/2),
// its sum sqrt(3/2) > 1 divides it once more: (1/3, 2/3), so 7. Recurrent: 10.5 / sqrt(3/2). Chunks of 1:
// nothing to divide.
TEST(RetNet, ByHand) {
  const Matrix<double> q = column(1, 1);
  const Matrix<double> v = column(1, 10);
  EXPECT_LE(relative(normalised_retention_parallel(q, q, v, 0.5), column(1, 7)), 1e-15);
  NormalisedRetentionState<double> state{Matrix<double>::Zero(1, 1)};
  EXPECT_LE(relative(normalised_retention_recurrent(q, q, v, 0.5, state), column(1, 10.5 / std::sqrt(1.5))),
            1e-15);
  EXPECT_EQ(state.s, 1.5);
  EXPECT_NEAR(state.S(0, 0), 10.5 / std::sqrt(1.5), 1e-14);
  EXPECT_EQ(normalised_retention_chunked(q, q, v, 0.5, 1), column(1, 10.5));
  EXPECT_LE(relative(normalised_retention_chunked(q, q, v, 0.5, 2), column(1, 7)), 1e-15);
  // Every head of width 1 is +-1 after the norm: the rows' scales are gone.
  EXPECT_EQ(retention_norm(column(1, 7), 0.0), column(1, 1));
}

// The parallel form divides by |sum|, the chunked one by sum | |: opposite scores tell them apart.
// q = 1, k = (2, -2), gamma = 1: row 2 is (2, -2) / sqrt 2; |sum| = 0 -> 1, sum | | = 2 sqrt 2.
TEST(RetNet, TheFormsScaleDifferently) {
  const Matrix<double> q = column(1, 1);
  const Matrix<double> k = column(2, -2);
  const Matrix<double> v = column(3, 1);
  EXPECT_LE(relative(normalised_retention_parallel(q, k, v, 1.0), column(3, 2 * std::sqrt(2.0))), 1e-15);
  EXPECT_LE(relative(normalised_retention_chunked(q, k, v, 1.0, 2), column(3, 1)), 1e-15);
}

// The carried state is divided by its largest absolute column sum, so nothing grows; the row's direction
// stays.
TEST(RetNet, LargeStatesAreScaledDown) {
  Sequence<double> x = test::draw(40, 4, 3, 3, false, false);
  x.k *= 1e3;
  x.initial_state.setZero();
  x.scale = 1.0;
  const Matrix<double> core = retention_parallel_constant(x, 1.0);
  for (const Index chunk : {1, 7, 40, 64}) {
    const Matrix<double> o = normalised_retention_chunked(x.q, x.k, x.v, 1.0, chunk);
    EXPECT_LE(o.cwiseAbs().maxCoeff(), 1e2) << chunk;
    EXPECT_LE(relative(retention_norm(o, 0.0), retention_norm(core, 0.0)), 1e-12) << chunk;
  }
  EXPECT_GT(core.cwiseAbs().maxCoeff(), 1e3);
}

// Decode resumes anywhere.
TEST(RetNet, SplitsOfTheNormalisedRecurrence) {
  const Sequence<double> x = test::draw(9, 4, 3, 2, false, false);
  NormalisedRetentionState<double> whole{Matrix<double>::Zero(4, 3)};
  const Matrix<double> o = normalised_retention_recurrent(x.q, x.k, x.v, 0.9, whole);
  for (Index cut = 0; cut <= 9; ++cut) {
    NormalisedRetentionState<double> state{Matrix<double>::Zero(4, 3)};
    Matrix<double> parts(9, 3);
    parts.topRows(cut) = normalised_retention_recurrent<double>(x.q.topRows(cut), x.k.topRows(cut),
                                                                x.v.topRows(cut), 0.9, state);
    parts.bottomRows(9 - cut) = normalised_retention_recurrent<double>(
        x.q.bottomRows(9 - cut), x.k.bottomRows(9 - cut), x.v.bottomRows(9 - cut), 0.9, state);
    EXPECT_EQ(parts, o) << cut;
    EXPECT_EQ(state.S, whole.S) << cut;
    EXPECT_EQ(state.s, whole.s) << cut;
  }
}

TEST(RetNet, NoTokens) {
  const Matrix<double> none(0, 2);
  NormalisedRetentionState<double> state{Matrix<double>::Zero(2, 2)};
  EXPECT_EQ(normalised_retention_parallel(none, none, none, 0.9).rows(), 0);
  EXPECT_EQ(normalised_retention_recurrent(none, none, none, 0.9, state).rows(), 0);
  EXPECT_EQ(normalised_retention_chunked(none, none, none, 0.9, 4).rows(), 0);
  EXPECT_EQ(state.s, 0.0);
}

// A zero row stays zero for epsilon > 0.
TEST(RetNet, NormOfZero) {
  EXPECT_EQ(retention_norm(column(0, 0), 1e-6), column(0, 0));
  EXPECT_NEAR(retention_norm(column(1e-3, 0), 1e-6)(0, 0), std::sqrt(0.5), 1e-15);
}

// Angles of a head of width 6 at position 2: 2, 2 / 100, 2 / 10000.
TEST(RetNet, Rotation) {
  const RotaryTables<double> tables = retention_rotation<double>(1, 2, 6);
  EXPECT_NEAR(tables.cos(1, 0), std::cos(2.0), 1e-15);
  EXPECT_NEAR(tables.sin(1, 1), std::sin(0.02), 1e-16);
  EXPECT_NEAR(tables.sin(1, 2), std::sin(2e-4), 1e-18);
  EXPECT_NEAR(retention_rotation<double>(3, 1, 2).sin(0, 0), std::sin(3.0), 1e-15);
  EXPECT_THROW(static_cast<void>(retention_rotation<double>(0, 1, 3)), Error);
}

TEST(RetNet, BadInput) {
  const Matrix<double> two = column(1, 2);
  const Matrix<double> three = Matrix<double>::Ones(3, 1);
  NormalisedRetentionState<double> state{Matrix<double>::Zero(2, 1)};
  EXPECT_THROW(static_cast<void>(normalised_retention_parallel(two, three, two, 0.5)), Error);
  EXPECT_THROW(static_cast<void>(normalised_retention_parallel(two, two, three, 0.5)), Error);
  EXPECT_THROW(static_cast<void>(normalised_retention_recurrent(two, two, two, 0.5, state)), Error);
  EXPECT_THROW(static_cast<void>(normalised_retention_chunked(two, two, two, 0.5, 0)), Error);
}

}  // namespace
}  // namespace samestate
