#include "reference/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::relative;

Matrix<double> one(double value) { return Matrix<double>::Constant(1, 1, value); }

constexpr LatentForm kForms[] = {LatentForm::naive, LatentForm::absorbed, LatentForm::fully_absorbed};

/// One head, every width 1 and no rotary key, no norm: the document's literal form (MLA-3..6).
LatentAttentionWeights<double> literal(double q, double down, double up_k, double up_v, double out) {
  LatentAttentionWeights<double> weights;
  weights.q_up = one(q);
  weights.kv_down = one(down);
  weights.kv_up = (Matrix<double>(2, 1) << up_k, up_v).finished();
  weights.output = one(out);
  return weights;
}

/// H heads with n, r, dv, c all different, queries from x.
LatentAttentionWeights<double> drawn(Index H, Index n, Index r, Index dv, Index c, Index D) {
  LatentAttentionWeights<double> weights;
  weights.heads = H;
  weights.q_up = Matrix<double>::Random(H * (n + r), D);
  weights.kv_down = Matrix<double>::Random(c + r, D);
  weights.kv_norm = Vector<double>::Ones(c);
  weights.kv_up = Matrix<double>::Random(H * (n + dv), c);
  weights.output = Matrix<double>::Random(D, H * dv);
  return weights;
}

// x = (0, 1): C = 2 x = (0, 2), K = 3 C = (0, 6), V = 5 C = (0, 10), q = x log(2) / 6. Token 1 scores 0 and
// log 2: p = (1/3, 2/3), o = 20/3, y = 7 o.
TEST(LatentAttention, DocumentLiteralByHand) {
  const LatentAttentionWeights<double> weights = literal(std::log(2.0) / 6, 2, 3, 5, 7);
  const Matrix<double> x = (Matrix<double>(2, 1) << 0, 1).finished();
  for (LatentForm form : kForms) {
    const LatentAttention<double> out = latent_attention(x, weights, {}, form);
    EXPECT_EQ(out.y(0, 0), 0.0);
    EXPECT_NEAR(out.y(1, 0), 140.0 / 3.0, 1e-13);
    EXPECT_EQ(out.cache.latent, 2 * x);
    EXPECT_EQ(out.cache.numbers_per_token(), 1);
  }
}

// With the norm the latent of the last example is (0, 1) up to epsilon (5.1): V = (0, 5).
TEST(LatentAttention, CachesTheNormalisedLatent) {
  LatentAttentionWeights<double> weights = literal(0, 2, 3, 5, 7);
  weights.kv_norm = Vector<double>::Ones(1);
  const Matrix<double> x = (Matrix<double>(2, 1) << 0, 1).finished();
  for (LatentForm form : kForms) {
    const LatentAttention<double> out = latent_attention(x, weights, {}, form);
    const double c = 2 / std::sqrt(4 + 1e-6);
    EXPECT_EQ(out.cache.latent(0, 0), 0.0);
    EXPECT_NEAR(out.cache.latent(1, 0), c, 1e-15);
    EXPECT_NEAR(out.y(1, 0), 7 * 5 * c / 2, 1e-13);  // q = 0: the mean of both values
  }
}

// The rotary key alone, two columns, turned by a quarter from one token to the next. q = k = (1, 0)
// everywhere: token 1 scores cos(pi/2) = 0 against token 0 and 2^-1/2 against itself.
TEST(LatentAttention, TheRotaryKeySeesDistance) {
  LatentAttentionWeights<double> weights;
  weights.q_up = (Matrix<double>(2, 1) << 1, 0).finished();
  weights.kv_down = (Matrix<double>(3, 1) << 1, 1, 0).finished();  // c = 1, r = 2
  weights.kv_up = one(1);                                          // n = 0, dv = 1
  weights.output = one(1);
  const Matrix<double> x = (Matrix<double>(2, 1) << 1, 1).finished();
  RotaryTables<double> tables{(Matrix<double>(2, 1) << 1, 0).finished(),
                              (Matrix<double>(2, 1) << 0, 1).finished()};
  // The values are 1 throughout; the latent of token 1 made 3 shows the weight of token 0: 3 - 2 p.
  for (LatentForm form : kForms) {
    LatentAttention<double> first =
        latent_attention<double>(x.topRows(1), weights, {tables.cos.topRows(1), tables.sin.topRows(1)}, form);
    first.cache.latent(0, 0) = 3;
    const LatentAttention<double> second = latent_attention<double>(
        x.bottomRows(1), weights, {tables.cos.bottomRows(1), tables.sin.bottomRows(1)}, form, first.cache);
    const double p = 1 / (1 + std::exp(std::sqrt(0.5)));  // of token 0
    EXPECT_NEAR(second.y(0, 0), 3 * p + (1 - p), 1e-15);
    EXPECT_EQ(second.cache.rotary_key, (Matrix<double>(2, 2) << 1, 0, 0, 1).finished());
  }
}

// 512 + 64 numbers a token (MLA-4), and not the 512 of the document, nor 2 x 16384.
TEST(LatentAttention, CacheOf576Numbers) {
  const LatentAttentionWeights<double> weights = drawn(2, 4, 64, 3, 512, 5);
  const LatentAttention<double> out = latent_attention<double>(
      Matrix<double>::Random(3, 5), weights, rotary_tables<double>(0, 3, 64, 1e4), LatentForm::absorbed);
  EXPECT_EQ(out.cache.numbers_per_token(), 576);
  EXPECT_EQ(out.cache.tokens(), 3);
}

TEST(LatentAttention, ScoreFactorMultipliesTheScale) {
  LatentAttentionWeights<double> weights = literal(std::log(2.0) / 6, 2, 3, 5, 7);
  weights.score_factor = 2.0;  // token 1 scores log 4 against itself: p = 4/5
  const Matrix<double> x = (Matrix<double>(2, 1) << 0, 1).finished();
  for (LatentForm form : kForms) {
    EXPECT_NEAR(latent_attention(x, weights, {}, form).y(1, 0), 7 * 8.0, 1e-13);
  }
}

TEST(LatentAttention, NoTokensAndNoTokensAfterSome) {
  const LatentAttentionWeights<double> weights = drawn(2, 3, 2, 5, 4, 6);
  const Matrix<double> none(0, 6);
  const RotaryTables<double> no_tables = rotary_tables<double>(0, 0, 2, 1e4);
  for (LatentForm form : kForms) {
    const LatentAttention<double> empty = latent_attention(none, weights, no_tables, form);
    EXPECT_EQ(empty.y.rows(), 0);
    EXPECT_EQ(empty.y.cols(), 6);
    const LatentAttention<double> some = latent_attention<double>(
        Matrix<double>::Random(2, 6), weights, rotary_tables<double>(0, 2, 2, 1e4), form, empty.cache);
    EXPECT_EQ(some.cache.tokens(), 2);
    const LatentAttention<double> same = latent_attention(none, weights, no_tables, form, some.cache);
    EXPECT_EQ(same.cache.latent, some.cache.latent);
    EXPECT_EQ(same.y.rows(), 0);
  }
}

// The first token sees itself alone: its output is W_O of its own values whatever the query.
TEST(LatentAttention, TheFirstTokenIsItsOwnValue) {
  const LatentAttentionWeights<double> weights = drawn(2, 3, 2, 5, 4, 6);
  const Matrix<double> x = Matrix<double>::Random(1, 6);
  const RotaryTables<double> tables = rotary_tables<double>(7, 1, 2, 1e4);
  const LatentCache<double> cache = latent_of(x, weights, tables);
  const Matrix<double> v = restored_keys_values(cache, weights).v;
  for (LatentForm form : kForms) {
    EXPECT_LT(relative(latent_attention(x, weights, tables, form).y, linear(v, weights.output)), 1e-14);
  }
}

TEST(LatentAttention, RefusesWhatDoesNotFit) {
  const LatentAttentionWeights<double> good = drawn(2, 3, 2, 5, 4, 6);
  const Matrix<double> x = Matrix<double>::Random(2, 6);
  const RotaryTables<double> tables = rotary_tables<double>(0, 2, 2, 1e4);
  const auto refuses = [&](auto change) {
    LatentAttentionWeights<double> weights = good;
    change(weights);
    EXPECT_THROW((void)latent_attention(x, weights, tables), Error);
  };
  EXPECT_NO_THROW((void)latent_attention(x, good, tables));
  refuses([](auto& w) { w.heads = 0; });
  refuses([](auto& w) { w.heads = 3; });
  refuses([](auto& w) { w.q_up = Matrix<double>::Ones(9, 6); });
  refuses([](auto& w) { w.kv_down = Matrix<double>::Ones(3, 6); });  // fewer rows than the latent
  refuses([](auto& w) { w.kv_down = Matrix<double>::Ones(5, 6); });  // rotary key of 1
  refuses([](auto& w) { w.kv_down = Matrix<double>::Ones(6, 5); });  // another model width
  refuses([](auto& w) { w.kv_norm = Vector<double>::Ones(3); });
  refuses([](auto& w) { w.output = Matrix<double>::Ones(6, 18); });  // dv = 9 > n + dv = 8
  refuses([](auto& w) { w.q_down = Matrix<double>::Ones(4, 6); });   // q_up reads 6
  refuses([](auto& w) {
    w.q_down = Matrix<double>::Ones(6, 6);
    w.q_norm = Vector<double>::Ones(5);
  });
  EXPECT_THROW((void)latent_attention(x, good, rotary_tables<double>(0, 2, 4, 1e4)), Error);  // other width
  EXPECT_THROW((void)latent_attention(x, good, rotary_tables<double>(0, 3, 2, 1e4)), Error);  // other tokens
  EXPECT_THROW((void)latent_attention(x, good, {}), Error);  // a rotary key and no tables
  LatentCache<double> cache = latent_of(x, good, tables);
  cache.rotary_key = Matrix<double>::Zero(1, 2);
  EXPECT_THROW((void)latent_attention(x, good, tables, LatentForm::absorbed, cache), Error);
  cache = {Matrix<double>::Zero(2, 3), Matrix<double>::Zero(2, 2)};
  EXPECT_THROW((void)latent_attention(x, good, tables, LatentForm::absorbed, cache), Error);
}

}  // namespace
}  // namespace samestate
