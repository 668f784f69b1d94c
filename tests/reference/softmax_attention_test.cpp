#include "reference/softmax_attention.h"

#include <gtest/gtest.h>

#include <functional>

#include "reference/online_softmax.h"
#include "tests/reference/column.h"

namespace samestate {
namespace {

using test::column;

using Form = std::function<Matrix<double>(const AttentionInputs<double>&)>;

std::vector<Form> forms() {
  return {[](const AttentionInputs<double>& x) { return softmax_attention(x); },
          [](const AttentionInputs<double>& x) { return softmax_attention_grouped(x); },
          [](const AttentionInputs<double>& x) { return softmax_attention(with_repeated_heads(x)); },
          [](const AttentionInputs<double>& x) { return softmax_attention_online(x, 1); },
          [](const AttentionInputs<double>& x) { return softmax_attention_online(x, 2); },
          [](const AttentionInputs<double>& x) { return softmax_attention_online(x, 64); },
          [](const AttentionInputs<double>& x) { return softmax_attention_merged(x, 1); },
          [](const AttentionInputs<double>& x) { return softmax_attention_merged(x, 2); }};
}

/// One head of width 1.
AttentionInputs<double> head(const Matrix<double>& q, const Matrix<double>& k, const Matrix<double>& v,
                             bool causal = true) {
  AttentionInputs<double> x;
  x.q = q;
  x.k = k;
  x.v = v;
  x.causal = causal;
  return x;
}

// Scores 0 and log 3: probabilities 1/4 and 3/4.
TEST(SoftmaxAttention, WeighsValuesByHand) {
  for (const Form& form : forms()) {
    const AttentionInputs<double> x = head(column({1}), column({0, std::log(3.0)}), column({4, 8}), false);
    EXPECT_NEAR(form(x)(0, 0), 7, 1e-15);
  }
}

TEST(SoftmaxAttention, ScalesTheScores) {
  AttentionInputs<double> x = head(column({1}), column({0, 2 * std::log(3.0)}), column({4, 8}));
  x.scale = 0.5;
  for (const Form& form : forms()) EXPECT_NEAR(form(x)(0, 0), 7, 1e-15);
}

// The mask that DEND-55 does not print: the first token sees itself alone.
TEST(SoftmaxAttention, IsCausal) {
  const AttentionInputs<double> x = head(column({1, 1, 1}), column({0, 0, 0}), column({3, 5, 10}));
  for (const Form& form : forms()) {
    const Matrix<double> o = form(x);
    EXPECT_EQ(o(0, 0), 3);
    EXPECT_NEAR(o(1, 0), 4, 1e-15);
    EXPECT_NEAR(o(2, 0), 6, 1e-14);
  }
  EXPECT_EQ(softmax_attention_decode(x)(0, 0), 3);
}

TEST(SoftmaxAttention, TakesQueriesAsTheLastOfTheKeys) {
  for (const Form& form : forms()) {
    const Matrix<double> o = form(head(column({1, 1}), column({0, 0, 0}), column({3, 5, 10})));
    EXPECT_NEAR(o(0, 0), 4, 1e-15);
    EXPECT_NEAR(o(1, 0), 6, 1e-14);
  }
}

TEST(SoftmaxAttention, DoesNotOverflow) {
  for (const Form& form : forms()) {
    const Matrix<double> o = form(head(column({1, 1}), column({-1e5, 1e5}), column({3, 5})));
    EXPECT_EQ(o, column({3, 5}));
  }
}

TEST(SoftmaxAttention, LeavesMaskedKeysOut) {
  AttentionInputs<double> x = head(column({1, 1}), column({1e5, 7, 0, 0}), column({99, 98, 3, 5}));
  x.key_mask = {false, false, true, true};
  for (const Form& form : forms()) EXPECT_EQ(form(x), column({3, 4}));
  EXPECT_EQ(softmax_attention_decode(x), column({3, 4}));
  const Matrix<double> p = attention_probabilities(x, 0);
  EXPECT_EQ(p(1, 0), 0.0);
  EXPECT_EQ(p(1, 2) + p(1, 3), 1.0);
}

// 5.7: a fully masked row is undefined; no form may invent a value.
TEST(SoftmaxAttention, RefusesATokenThatSeesNothing) {
  AttentionInputs<double> x = head(column({1, 1}), column({0, 0}), column({3, 5}));
  x.key_mask = {false, true};
  for (const Form& form : forms()) EXPECT_THROW((void)form(x), Error);
  EXPECT_THROW((void)softmax_attention_decode(x), Error);
  const AttentionInputs<double> no_keys =
      head(column({1}), Matrix<double>(0, 1), Matrix<double>(0, 1), false);
  for (const Form& form : forms()) EXPECT_THROW((void)form(no_keys), Error);
}

TEST(SoftmaxAttention, TakesNoTokens) {
  AttentionInputs<double> x = head(Matrix<double>(0, 1), column({0, 0}), column({3, 5}));
  for (const Form& form : forms()) EXPECT_EQ(form(x).rows(), 0);
  EXPECT_EQ(softmax_attention_decode(x).rows(), 0);
  x = head(Matrix<double>(0, 1), Matrix<double>(0, 1), Matrix<double>(0, 1));
  for (const Form& form : forms()) EXPECT_EQ(form(x).cols(), 1);
}

// EQ-15: four query heads on two key heads read 0 0 1 1; tiled they would read 0 1 0 1.
TEST(SoftmaxAttention, SharesKeyHeadsInterleaved) {
  AttentionInputs<double> x;
  x.heads = 4;
  x.key_heads = 2;
  x.q = Matrix<double>::Ones(1, 4);
  x.k = Matrix<double>(2, 2);  // head 0 takes the second value, head 1 the first
  x.k << -1e3, 1e3, 1e3, -1e3;
  x.v = Matrix<double>(2, 4);
  x.v << 1, 2, 20, 21, 10, 11, 3, 4;
  Matrix<double> o(1, 8);
  o << 10, 11, 10, 11, 20, 21, 20, 21;
  for (const Form& form : forms()) EXPECT_EQ(form(x), o);
}

TEST(SoftmaxAttention, RefusesSizesThatDisagree) {
  const AttentionInputs<double> good = head(column({1, 1}), column({0, 0}), column({3, 5}));
  const std::vector<std::function<void(AttentionInputs<double>&)>> faults{
      [](auto& x) { x.heads = 0; },
      [](auto& x) { x.key_heads = 0; },
      [](auto& x) { x.key_heads = 2; },
      [](auto& x) { x.heads = 2; },
      [](auto& x) { x.k = Matrix<double>::Ones(2, 2); },
      [](auto& x) { x.v = Matrix<double>::Ones(3, 1); },
      [](auto& x) { x.q = Matrix<double>::Ones(3, 1); },
      [](auto& x) { x.key_mask = {true}; }};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    AttentionInputs<double> x = good;
    faults[i](x);
    for (const Form& form : forms()) EXPECT_THROW((void)form(x), Error) << "fault " << i;
  }
  EXPECT_THROW((void)attention_probabilities(good, 1), Error);
  EXPECT_THROW((void)attention_probabilities(good, -1), Error);
}

TEST(SoftmaxAttentionResumed, RefusesCutsOutOfOrderAndNoMask) {
  AttentionInputs<double> x = head(column({1, 1}), column({0, 0}), column({3, 5}));
  const auto plain = [](const AttentionInputs<double>& part) { return softmax_attention(part); };
  EXPECT_EQ(softmax_attention_resumed(x, {0, 1, 1, 2}, plain), column({3, 4}));
  EXPECT_THROW((void)softmax_attention_resumed(x, {2, 1}, plain), Error);
  EXPECT_THROW((void)softmax_attention_resumed(x, {3}, plain), Error);
  EXPECT_THROW((void)softmax_attention_resumed(x, {-1}, plain), Error);
  x.causal = false;
  EXPECT_THROW((void)softmax_attention_resumed(x, {1}, plain), Error);
}

}  // namespace
}  // namespace samestate
