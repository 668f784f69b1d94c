#include "reference/state_space_duality.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/retention.h"

namespace samestate {
namespace {

/// Two channels, two states, no decay: all values are integers.
StateSpaceHead<double> integer_case() {
  StateSpaceHead<double> x;
  x.x.resize(3, 2);
  x.x << 1, 2, 0, 1, 3, -1;
  x.delta.resize(3);
  x.delta << 1, 2, 1;
  x.A = 0.0;
  x.B.resize(3, 2);
  x.B << 1, 0, 1, 1, 0, 2;
  x.C.resize(3, 2);
  x.C << 1, 1, 2, 0, 0, 1;
  x.skip = 10.0;
  x.initial_state.resize(2, 2);
  x.initial_state << 0, 5, 0, 0;
  return x;
}

TEST(StateSpaceDuality, ValuesByHand) {
  // S = [0 5; 0 0] + x B^T: [1 5; 2 0], then + 2 (0, 1) (1, 1): [1 5; 4 2], then + (3, -1) (0, 2): [1 11; 4
  // 0].
  Matrix<double> y(3, 2), state(2, 2);
  y << 6 + 10, 2 + 20, 2 + 0, 8 + 10, 11 + 30, 0 - 10;
  state << 1, 11, 4, 0;
  const StateSpaceHead<double> x = integer_case();
  for (const auto& out : {state_space_recurrent(x), state_space_quadratic(x), state_space_chunked(x, 1),
                          state_space_chunked(x, 2), state_space_chunked(x, 64)}) {
    EXPECT_EQ(out.y, y);
    EXPECT_EQ(out.state, state);
  }
  const Trajectory<double> dual = chunked<Retention>(as_retention(x), 2);
  EXPECT_EQ(Matrix<double>(dual.o + x.skip * x.x), y);
  EXPECT_EQ(Matrix<double>(dual.state.transpose()), state);
}

TEST(StateSpaceDuality, TheStepDecaysBeforeItWrites) {
  StateSpaceHead<double> x = integer_case();
  x = {Matrix<double>::Ones(1, 1),         Vector<double>::Constant(1, 2.0), -1.5,
       Matrix<double>::Ones(1, 1),         Matrix<double>::Ones(1, 1),       0.0,
       Matrix<double>::Constant(1, 1, 7.0)};
  const double expected = 7.0 * std::exp(-3.0) + 2.0;
  EXPECT_NEAR(state_space_recurrent(x).y(0, 0), expected, 1e-15);
  EXPECT_NEAR(state_space_quadratic(x).y(0, 0), expected, 1e-15);
  EXPECT_NEAR(state_space_chunked(x, 3).state(0, 0), expected, 1e-15);
}

// Hazard 8.3: sums of Delta A of -800 and more; a form that takes e^{-G_j} alone overflows.
TEST(StateSpaceDuality, StrongDecayStaysFinite) {
  StateSpaceHead<double> x = integer_case();
  x.A = -400.0;
  const auto recurrent = state_space_recurrent(x);
  for (const auto& out : {state_space_quadratic(x), state_space_chunked(x, 2)}) {
    EXPECT_TRUE(out.y.allFinite());
    EXPECT_LE((out.y - recurrent.y).cwiseAbs().maxCoeff(), 1e-12);
    EXPECT_EQ(out.state(0, 1), 6.0);
  }
}

TEST(StateSpaceDuality, NoTokensReturnTheInitialState) {
  const StateSpaceHead<double> all = integer_case();
  const StateSpaceHead<double> x{Matrix<double>(0, 2), Vector<double>(0),    -1.0,
                                 Matrix<double>(0, 2), Matrix<double>(0, 2), 1.0,
                                 all.initial_state};
  for (const auto& out : {state_space_recurrent(x), state_space_quadratic(x), state_space_chunked(x, 2)}) {
    EXPECT_EQ(out.y.rows(), 0);
    EXPECT_EQ(out.y.cols(), 2);
    EXPECT_EQ(out.state, all.initial_state);
  }
}

/// Four heads of one channel in two groups of one state, one token; B = (1, 10), C = (1, 1).
StateSpaceHeads<double> four_heads() {
  StateSpaceHeads<double> x;
  x.x.resize(1, 4);
  x.x << 1, 2, 3, 4;
  x.delta = Matrix<double>::Ones(1, 4);
  x.A = Vector<double>::Zero(4);
  x.B.resize(1, 2);
  x.B << 1, 10;
  x.C = Matrix<double>::Ones(1, 2);
  x.skip = Vector<double>::Zero(4);
  x.skip(3) = 100.0;
  x.initial_state = Matrix<double>::Zero(4, 1);
  x.groups = 2;
  return x;
}

TEST(StateSpaceDuality, HeadsOfAGroupLieTogether) {
  const auto out = state_space_heads(four_heads(), state_space_recurrent<double>);
  Matrix<double> y(1, 4), state(4, 1);
  y << 1, 2, 30, 440;
  state << 1, 2, 30, 40;
  EXPECT_EQ(out.y, y);
  EXPECT_EQ(out.state, state);
}

TEST(StateSpaceDuality, RefusesShapesThatDisagree) {
  const auto refused = [](auto&& edit) {
    StateSpaceHead<double> x = integer_case();
    edit(x);
    EXPECT_THROW((void)state_space_recurrent(x), Error);
    EXPECT_THROW((void)state_space_quadratic(x), Error);
    EXPECT_THROW((void)state_space_chunked(x, 2), Error);
    EXPECT_THROW((void)as_retention(x), Error);
  };
  using Head = StateSpaceHead<double>;
  refused([](Head& x) { x.delta.resize(2); });
  refused([](Head& x) { x.B.resize(2, 2); });
  refused([](Head& x) { x.C.resize(3, 1); });
  refused([](Head& x) { x.initial_state.resize(3, 2); });
  EXPECT_THROW((void)state_space_chunked(integer_case(), 0), Error);

  const auto heads_refused = [](auto&& edit) {
    StateSpaceHeads<double> x = four_heads();
    edit(x);
    EXPECT_THROW((void)state_space_heads(x, state_space_recurrent<double>), Error);
  };
  using Heads = StateSpaceHeads<double>;
  heads_refused([](Heads& x) { x.groups = 3; });
  heads_refused([](Heads& x) { x.groups = 0; });
  heads_refused([](Heads& x) { x.A.resize(0); });
  heads_refused([](Heads& x) { x.x.resize(1, 5); });
  heads_refused([](Heads& x) { x.delta.resize(1, 3); });
  heads_refused([](Heads& x) { x.C.resize(1, 3); });
  heads_refused([](Heads& x) { x.skip.resize(3); });
  heads_refused([](Heads& x) { x.initial_state.resize(4, 2); });
}

}  // namespace
}  // namespace samestate
