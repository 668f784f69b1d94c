#include <gtest/gtest.h>

#include "reference/backward/softmax_attention.h"
#include "tests/reference/backward/gradient_check.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::expect_gradients;
using test::expect_seen;
using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kQueries = 5;
constexpr Index kKeys = 7;
constexpr Index kQueryHeads = 4;
constexpr Index kOfKeys = 2;
constexpr Index kWidth = 3;
constexpr Index kValues = 2;

struct AttentionSetting {
  bool causal = true;
  bool masked = false;
  bool sinks = false;
  bool lse = false;
};

Tensors<double> attention_tensors(const AttentionSetting& s) {
  Tensors<double> out{normal(kQueries, kQueryHeads * kWidth, 1), normal(kKeys, kOfKeys * kWidth, 2),
                      normal(kKeys, kOfKeys * kValues, 3)};
  if (s.sinks) out.push_back(normal(kQueryHeads, 1, 4));
  return out;
}

template <class Scalar>
AttentionInputs<Scalar> attention_inputs(const Tensors<Scalar>& x, const AttentionSetting& s) {
  AttentionInputs<Scalar> out;
  out.q = x[0];
  out.k = x[1];
  out.v = x[2];
  out.heads = kQueryHeads;
  out.key_heads = kOfKeys;
  out.scale = Scalar(0.625);
  out.causal = s.causal;
  if (s.masked) out.key_mask = {true, false, true, true, true, false, true};
  return out;
}

template <class Scalar>
Vector<Scalar> sinks_of(const Tensors<Scalar>& x) {
  return x.size() > 3 ? Vector<Scalar>(x[3].col(0)) : Vector<Scalar>();
}

auto attention_forward(AttentionSetting s) {
  return [s](const auto& x) {
    auto y = softmax_attention_with_lse(attention_inputs(x, s), sinks_of(x));
    std::decay_t<decltype(x)> out{std::move(y.o)};
    if (s.lse) out.push_back(std::move(y.lse));
    return out;
  };
}

enum class LostPart { nothing, cotangent_of_lse, delta, group, sink };

auto attention_reverse(AttentionSetting s, LostPart lost = LostPart::nothing) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const AttentionInputs<Scalar> inputs = attention_inputs(x, s);
    const Vector<Scalar> sinks = sinks_of(x);
    AttentionOutput<Scalar> y = softmax_attention_with_lse(inputs, sinks);
    if (lost == LostPart::sink) y = softmax_attention_with_lse(inputs);
    if (lost == LostPart::delta) y.o.setZero();
    const Matrix<Scalar> d_lse = s.lse && lost != LostPart::cotangent_of_lse ? d[1] : Matrix<Scalar>();
    AttentionGradients<Scalar> g = softmax_attention_backward(inputs, y, d[0], d_lse, sinks);
    if (lost == LostPart::group) {
      // The last head of each group takes the place of the sum over it.
      Matrix<Scalar> d_o = d[0];
      for (Index h = 0; h < kQueryHeads; h += kQueryHeads / kOfKeys)
        d_o.middleCols(h * kValues, kValues).setZero();
      const auto one = softmax_attention_backward(inputs, y, d_o, Matrix<Scalar>(), sinks);
      g.k = one.k;
      g.v = one.v;
    }
    std::decay_t<decltype(x)> out{g.q, g.k, g.v};
    if (s.sinks) out.emplace_back(g.sinks);
    return out;
  };
}

TEST(AttentionBackward, WithLseIsTheForwardForm) {
  for (const bool causal : {true, false}) {
    const auto x = attention_inputs(attention_tensors({}), {.causal = causal, .masked = true});
    EXPECT_LE(test::relative(softmax_attention_with_lse(x).o, softmax_attention(x)), 1e-15);
  }
}

// A sink is one more key whose value is 0 and whose score is the sink.
TEST(AttentionBackward, ASinkIsAKeyWithoutAValue) {
  AttentionInputs<double> x;
  x.q = Matrix<double>::Constant(1, 1, 1.0);
  x.k = test::Tensors<double>{normal(3, 1, 1)}[0];
  x.v = normal(3, 2, 2);
  x.causal = false;
  const Vector<double> sink = Vector<double>::Constant(1, 0.7);
  AttentionInputs<double> more = x;
  more.k.conservativeResize(4, 1);
  more.v.conservativeResize(4, 2);
  more.k(3, 0) = 0.7;
  more.v.row(3).setZero();
  EXPECT_LE(test::relative(softmax_attention_with_lse(x, sink).o, softmax_attention(more)), 1e-15);
  EXPECT_NEAR(softmax_attention_with_lse(x, sink).lse(0, 0), softmax_attention_with_lse(more).lse(0, 0),
              1e-15);
}

TEST(AttentionBackward, IsTheDerivative) {
  for (const AttentionSetting s :
       {AttentionSetting{}, AttentionSetting{.causal = false, .masked = true}, AttentionSetting{.lse = true},
        AttentionSetting{.masked = true, .sinks = true, .lse = true}}) {
    const GradientCheck check(attention_tensors(s), attention_forward(s));
    expect_gradients(check, attention_reverse(s));
    expect_seen(check, attention_reverse(s, LostPart::delta), "delta");
    expect_seen(check, attention_reverse(s, LostPart::group), "the sum over a group");
    if (s.lse) expect_seen(check, attention_reverse(s, LostPart::cotangent_of_lse), "the LSE's cotangent");
    if (s.sinks) expect_seen(check, attention_reverse(s, LostPart::sink), "the sink in the LSE");
  }
}

// More queries than a block has: the sums over queries go through all blocks, and each block ends at its own keys.
TEST(AttentionBackward, BlocksOfQueriesAreOneSum) {
  constexpr Index kTokens = 300, kPast = 3;
  AttentionInputs<double> x;
  x.q = normal(kTokens, kWidth, 1);
  x.k = normal(kTokens + kPast, kWidth, 2);
  x.v = normal(kTokens + kPast, kValues, 3);
  x.scale = 0.625;
  const Matrix<double> d_o = normal(kTokens, kValues, 4);
  const AttentionOutput<double> y = softmax_attention_with_lse(x);
  EXPECT_LE(test::relative(softmax_attention_lse(x), y.lse), 1e-15);
  const AttentionGradients<double> g = softmax_attention_backward(x, y, d_o);
  Matrix<double> P = attention_probabilities(x, 0);
  const Matrix<double> dP = d_o * x.v.transpose();
  const Vector<double> delta = P.cwiseProduct(dP).rowwise().sum();
  const Matrix<double> dS = P.cwiseProduct(dP - delta.replicate(1, P.cols()));
  EXPECT_LE(test::relative(g.q, Matrix<double>(0.625 * dS * x.k)), 1e-13);
  EXPECT_LE(test::relative(g.k, Matrix<double>(0.625 * dS.transpose() * x.q)), 1e-13);
  EXPECT_LE(test::relative(g.v, Matrix<double>(P.transpose() * d_o)), 1e-13);
}

// Large scores: nothing overflows, since P is e^{score - LSE}.
TEST(AttentionBackward, LargeScoresStayFinite) {
  auto x = attention_inputs(attention_tensors({}), {});
  x.q *= 1e4;
  const auto y = softmax_attention_with_lse(x);
  const auto g = softmax_attention_backward(x, y, normal(kQueries, kQueryHeads * kValues, 5));
  EXPECT_TRUE(g.q.allFinite() && g.k.allFinite() && g.v.allFinite());
}

TEST(AttentionBackward, RefusesWhatDisagrees) {
  const auto x = attention_inputs(attention_tensors({}), {});
  const auto y = softmax_attention_with_lse(x);
  EXPECT_THROW((void)softmax_attention_backward(x, y, normal(kQueries, 3, 1)), Error);
  EXPECT_THROW((void)softmax_attention_backward(x, y, y.o, normal(kQueries, kQueryHeads + 1, 1)), Error);
  EXPECT_THROW((void)softmax_attention_with_lse<double>(x, Vector<double>::Ones(kQueryHeads + 1)), Error);
}

}  // namespace
}  // namespace samestate
