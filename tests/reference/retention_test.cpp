#include "reference/retention.h"

#include <gtest/gtest.h>

#include "reference/linear_attention.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::draw;
using test::relative;

template <class Scalar>
void expect_parallel_agrees(double residual) {
  Sequence<double> input = draw(23, 4, 5, 1, true, false);
  input.initial_state.setZero();
  const Sequence<Scalar> x = input.cast<Scalar>();
  EXPECT_LE(relative(retention_parallel(x), recurrent<Retention>(x).o), residual);

  Sequence<Scalar> constant = x;
  constant.g.setConstant(retention_log_decay<Scalar>(2));
  const Scalar gamma = Scalar(1) - Scalar(std::ldexp(1.0, -7));
  EXPECT_LE(relative(retention_parallel_constant(constant, gamma), recurrent<Retention>(constant).o),
            residual);

  Sequence<Scalar> none = x;
  none.g.setZero();
  EXPECT_LE(relative(linear_attention_parallel(none), recurrent<LinearAttention>(none).o), residual);
  EXPECT_LE(relative(linear_attention_parallel(none), recurrent<Retention>(none).o), residual);
}

// EQ-07, EQ-09.
TEST(Retention, ParallelIsRecurrent) {
  expect_parallel_agrees<double>(5e-14);
  expect_parallel_agrees<Decimal50>(1e-47);
}

// A transposed Gamma is wrong (RET-3, negative control).
TEST(Retention, GammaIsNotSymmetric) {
  Sequence<double> x = draw(9, 3, 3, 1, true, false);
  x.initial_state.setZero();
  const Matrix<double> QK = x.q * x.k.transpose();
  const Matrix<double> gamma = decay_between(x.g);
  const Matrix<double> transposed = x.scale * (QK.cwiseProduct(gamma.transpose()) * x.v);
  EXPECT_GT(relative(transposed, recurrent<Retention>(x).o), 1e-2);
}

// EQ-10: the two orders agree without a mask, and must differ from the causal form.
TEST(LinearAttention, AssociationOrders) {
  Sequence<double> x = draw(12, 4, 3, 2, false, false);
  x.initial_state.setZero();
  const Matrix<double> scores = linear_attention_bidirectional_scores_first(x);
  EXPECT_LE(relative(linear_attention_bidirectional_state_first(x), scores), 1e-14);
  EXPECT_GT(relative(scores, linear_attention_parallel(x)), 1e-1);
}

// E-12: n = 2, q = k = 1, v = (1, 10): causal (1, 11), reassociated (11, 11).
TEST(LinearAttention, DocumentCounterexample) {
  Sequence<double> x = draw(2, 1, 1, 1, false, false);
  x.q.setOnes();
  x.k.setOnes();
  x.v << 1, 10;
  x.scale = 1;
  x.initial_state.setZero();
  EXPECT_EQ(recurrent<LinearAttention>(x).o, (Matrix<double>(2, 1) << 1, 11).finished());
  EXPECT_EQ(linear_attention_bidirectional_state_first(x), (Matrix<double>(2, 1) << 11, 11).finished());
}

NormalisedState<double> zero_state(const Sequence<double>& x) {
  return {Matrix<double>::Zero(x.key_width(), x.value_width()), Vector<double>::Zero(x.key_width())};
}

TEST(LinearAttention, NormalisedChunksAndSplits) {
  Sequence<double> x = draw(20, 4, 3, 3, false, false);
  x.q = x.q.cwiseAbs();
  x.k = x.k.cwiseAbs();
  const auto whole = linear_attention_normalised(x, zero_state(x));
  for (Index chunk : {1, 6, 20, 64}) {
    const auto chunks = linear_attention_normalised_chunked(x, chunk, zero_state(x));
    EXPECT_LE(relative(chunks.o, whole.o), 1e-14) << chunk;
    EXPECT_LE(relative(chunks.state.z, whole.state.z), 1e-14) << chunk;
  }
  for (Index cut = 0; cut <= 20; ++cut) {
    const auto head = linear_attention_normalised(x.slice(0, cut, x.initial_state), zero_state(x));
    const auto tail = linear_attention_normalised_chunked(x.slice(cut, 20, x.initial_state), 5, head.state);
    EXPECT_LE(relative(tail.o, whole.o.bottomRows(20 - cut).eval()), 1e-14) << cut;
    // M61: a denominator that starts again at the cut is wrong.
    if (cut > 0 && cut < 20) {
      const auto lost =
          linear_attention_normalised(x.slice(cut, 20, x.initial_state), {head.state.S, zero_state(x).z});
      EXPECT_GT(relative(lost.o, whole.o.bottomRows(20 - cut).eval()), 1e-3) << cut;
    }
  }
  // Constant values come back unchanged: weights sum to one.
  Sequence<double> constant = x;
  constant.v.setConstant(3.0);
  const Matrix<double> threes = Matrix<double>::Constant(20, 3, 3.0);
  EXPECT_LE(relative(linear_attention_normalised(constant, zero_state(x)).o, threes), 1e-14);
}

}  // namespace
}  // namespace samestate
