#include "reference/short_convolution.h"

#include <gtest/gtest.h>

#include "tests/reference/column.h"

namespace samestate {
namespace {

using test::column;

/// Width 4, oldest input first: the newest is multiplied by 4.
Matrix<double> kernel() { return column({1, 2, 3, 4}).transpose(); }

Convolved<double> sum_only(const Matrix<double>& x, const Matrix<double>& state) {
  return short_convolution(x, kernel(), Vector<double>(), state, false);
}

// CONV-3: a cross-correlation; the last weight meets the newest input.
TEST(ShortConvolution, SumsTheNewestInputWithTheLastWeight) {
  const Convolved<double> out =
      sum_only(column({1, 10, 100, 1000, 0}), empty_convolution_state<double>(4, 1));
  EXPECT_EQ(out.y, column({4, 43, 432, 4321, 3210}));
  EXPECT_EQ(out.state, column({100, 1000, 0}));
}

TEST(ShortConvolution, ReadsTheStateAndDropsItsOldest) {
  const Convolved<double> out = sum_only(column({1}), column({5, 6, 7}));
  EXPECT_EQ(out.y, column({1 * 5 + 2 * 6 + 3 * 7 + 4 * 1}));
  EXPECT_EQ(out.state, column({6, 7, 1}));
}

// 5.3: shorter than W - 1, where a kept state of "the last 3 inputs" would have to come from before.
TEST(ShortConvolution, TakesSegmentsShorterThanTheState) {
  const Convolved<double> two = sum_only(column({1, 10}), empty_convolution_state<double>(4, 1));
  EXPECT_EQ(two.state, column({0, 1, 10}));
  const Convolved<double> none = sum_only(Matrix<double>(0, 1), two.state);
  EXPECT_EQ(none.y.rows(), 0);
  EXPECT_EQ(none.state, two.state);
}

TEST(ShortConvolution, OfWidthOneHasNoState) {
  const Matrix<double> state = empty_convolution_state<double>(1, 1);
  const Convolved<double> out =
      short_convolution(column({3, -3}), column({2}), Vector<double>(), state, false);
  EXPECT_EQ(out.y, column({6, -6}));
  EXPECT_EQ(out.state.rows(), 0);
  EXPECT_EQ(short_convolution(Matrix<double>(0, 1), column({2}), Vector<double>(), state).y.rows(), 0);
}

TEST(ShortConvolution, AddsTheBiasBeforeTheActivation) {
  const Vector<double> bias = Vector<double>::Constant(1, -4.0);
  const Matrix<double> state = empty_convolution_state<double>(4, 1);
  EXPECT_EQ(short_convolution(column({1, 10}), kernel(), bias, state).y, column({silu(0.0), silu(39.0)}));
}

// The state holds inputs, whatever the activation makes of them (CONV-5).
TEST(ShortConvolution, KeepsChannelsApartAndInputsInTheState) {
  Matrix<double> x(2, 2);
  x << 1, -1, 2, -2;
  Matrix<double> weights(2, 2);
  weights << 1, 0, 0, 1;
  const Convolved<double> out =
      short_convolution(x, weights, Vector<double>(), empty_convolution_state<double>(2, 2));
  EXPECT_EQ(out.y(0, 0), 0.0);
  EXPECT_EQ(out.y(1, 0), silu(1.0));
  EXPECT_EQ(out.y(0, 1), silu(-1.0));
  EXPECT_EQ(out.y(1, 1), silu(-2.0));
  EXPECT_EQ(out.state, x.bottomRows(1));
}

TEST(ShortConvolution, RefusesSizesThatDisagree) {
  const Matrix<double> x = column({1, 2});
  const Matrix<double> state = empty_convolution_state<double>(4, 1);
  const Vector<double> none;
  EXPECT_THROW((void)short_convolution(x, Matrix<double>(1, 0), none, state), Error);
  EXPECT_THROW((void)short_convolution(x, Matrix<double>(2, 4), none, state), Error);
  // Upstream stores W inputs; the W - 1 newest are the state (CONV-4).
  EXPECT_THROW((void)short_convolution(x, kernel(), none, column({0, 0, 0, 0})), Error);
  EXPECT_THROW((void)short_convolution(x, kernel(), none, column({0})), Error);
  EXPECT_THROW((void)short_convolution(x, kernel(), none, Matrix<double>(3, 2)), Error);
  EXPECT_THROW((void)short_convolution(x, kernel(), Vector<double>::Zero(2).eval(), state), Error);
  EXPECT_THROW((void)empty_convolution_state<double>(0, 1), Error);
}

}  // namespace
}  // namespace samestate
