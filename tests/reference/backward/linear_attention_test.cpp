#include "reference/backward/linear_attention.h"

#include <gtest/gtest.h>

#include "tests/reference/backward/gradient_check.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::normal;
using test::ScalarOf;

/// q, k, v, S, z.
template <class Scalar>
Sequence<Scalar> plain_head(const test::Tensors<Scalar>& x) {
  const Index T = x[0].rows();
  return {x[0], x[1], x[2], Vector<Scalar>::Zero(T), Vector<Scalar>::Ones(T), Scalar(1), x[3]};
}

TEST(NormalisedLinearAttentionBackward, IsTheDerivative) {
  const auto positive = [](Matrix<double> x) { return Matrix<double>(x.array().exp().matrix()); };
  const test::GradientCheck check(
      {positive(normal(9, 4, 1)), positive(normal(9, 4, 2)), normal(9, 3, 3), normal(4, 3, 4),
       positive(normal(4, 1, 5))},
      [](const auto& x) {
        auto y = linear_attention_normalised<ScalarOf<decltype(x)>>(plain_head(x), {x[3], x[4].col(0)});
        return std::decay_t<decltype(x)>{y.o, y.state.S, y.state.z};
      });
  const auto backward = [](const auto& x, const auto& d) {
    const auto g = linear_attention_normalised_backward<ScalarOf<decltype(x)>>(
        plain_head(x), {x[3], x[4].col(0)}, d[0], {d[1], d[2].col(0)});
    return std::decay_t<decltype(x)>{g.q, g.k, g.v, g.initial_state.S, g.initial_state.z};
  };
  test::expect_gradients(check, backward);
  test::expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto out = backward(x, d);
        out[4] = d[2];
        return out;
      },
      "the denominator's gradient");
  test::expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto cut = d;
        cut[1].setZero();
        return backward(x, cut);
      },
      "the cotangent of S");
}

TEST(NormalisedLinearAttentionBackward, AbsentCotangentOfTheStateIsZero) {
  const test::Tensors<double> x{test::draw(5, 3, 2).k.cwiseAbs(), test::draw(5, 3, 2, 4).k.cwiseAbs(),
                                normal(5, 2, 3), normal(3, 2, 4), Matrix<double>::Ones(3, 1)};
  const NormalisedState<double> state{x[3], x[4].col(0)};
  const Matrix<double> d_o = normal(5, 2, 6);
  const auto absent = linear_attention_normalised_backward(plain_head(x), state, d_o);
  const auto zero = linear_attention_normalised_backward(
      plain_head(x), state, d_o, {Matrix<double>::Zero(3, 2), Vector<double>::Zero(3)});
  EXPECT_EQ(absent.k, zero.k);
  EXPECT_EQ(absent.initial_state.z, zero.initial_state.z);
  EXPECT_THROW((void)linear_attention_normalised_backward(plain_head(x), state, normal(4, 2, 6)), Error);
}

}  // namespace
}  // namespace samestate
