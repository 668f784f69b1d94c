#include "reference/layers/gated_attention.h"

#include <gtest/gtest.h>

#include <functional>

namespace samestate {
namespace {

/// Model width 1, one head of width 2, no rotation, gate (0, log 3), values (3, 5).
GatedAttentionParameters<double> small() {
  GatedAttentionParameters<double> p;
  p.head_width = 2;
  p.epsilon = 0.0;
  p.q_proj.resize(4, 1);
  p.q_proj << 3, 4, 0, std::log(3.0);
  p.k_proj.resize(2, 1);
  p.k_proj << 1, 0;
  p.v_proj.resize(2, 1);
  p.v_proj << 3, 5;
  p.o_proj = Matrix<double>::Ones(1, 2);
  p.q_norm.resize(2);
  p.q_norm << 0, 1;
  p.k_norm = Vector<double>::Zero(2);
  return p;
}

Matrix<double> tokens(Index T) { return Matrix<double>::Ones(T, 1); }

// 5.7 by hand: one token attends to itself, so the output is the value times sigma(gate) = (1/2, 3/4).
TEST(GatedAttention, GatesTheHeadsByHand) {
  const GatedAttentionOutput<double> y = gated_attention(tokens(1), small());
  EXPECT_NEAR(y.q(0, 0), 3 / std::sqrt(12.5), 1e-15);
  EXPECT_NEAR(y.q(0, 1), 2 * 4 / std::sqrt(12.5), 1e-15);
  EXPECT_EQ(y.gate(0, 0), 0.0);
  EXPECT_EQ(y.attended(0, 0), 3.0);
  EXPECT_EQ(y.attended(0, 1), 5.0);
  EXPECT_NEAR(y.gated(0, 0), 1.5, 1e-15);
  EXPECT_NEAR(y.gated(0, 1), 3.75, 1e-15);
  EXPECT_NEAR(y.out(0, 0), 5.25, 1e-15);
}

TEST(GatedAttention, CachesKeysAfterNormAndRotation) {
  GatedAttentionParameters<double> p = small();
  p.rotary_width = 2;
  const GatedAttentionOutput<double> y = gated_attention(tokens(3), p);
  for (Index t = 0; t < 3; ++t) {
    const double angle = static_cast<double>(t);
    EXPECT_NEAR(y.cache.k(t, 0), std::sqrt(2.0) * std::cos(angle), 1e-15);
    EXPECT_NEAR(y.cache.k(t, 1), std::sqrt(2.0) * std::sin(angle), 1e-15);
    EXPECT_EQ(y.cache.v(t, 1), 5.0);
  }
  const GatedAttentionOutput<double> next = gated_attention(tokens(1), p, y.cache);
  EXPECT_EQ(next.cache.tokens(), 4);
  EXPECT_NEAR(next.cache.k(3, 0), std::sqrt(2.0) * std::cos(3.0), 1e-15);
}

// The scores' scale: q = k = (sqrt 2, 0) has the product 2, over sqrt 2. Keys of opposite sign: +-sqrt 2.
TEST(GatedAttention, DividesScoresByTheRootOfTheHeadWidth) {
  GatedAttentionParameters<double> p = small();
  p.q_proj << 1, 0, 0, 0;
  p.q_norm.setZero();
  Matrix<double> hidden(2, 1);
  hidden << -1, 1;
  const GatedAttentionOutput<double> y = gated_attention(hidden, p);
  const double own = logistic(2 * std::sqrt(2.0));
  EXPECT_NEAR(y.attended(1, 0), 3 * own - 3 * (1 - own), 1e-14);
}

// q_proj holds query and gate head by head: [q_0, gate_0, q_1, gate_1].
TEST(GatedAttention, ReadsQueryAndGateHeadByHead) {
  GatedAttentionParameters<double> p;
  p.heads = 2;
  p.q_proj.resize(4, 1);
  p.q_proj << 5, 0, -7, std::log(3.0);
  p.k_proj = Matrix<double>::Ones(1, 1);
  p.v_proj = Matrix<double>::Constant(1, 1, 4.0);
  p.o_proj.resize(1, 2);
  p.o_proj << 1, 10;
  p.q_norm = Vector<double>::Zero(1);
  p.k_norm = Vector<double>::Zero(1);
  const GatedAttentionOutput<double> y = gated_attention(tokens(2), p);
  EXPECT_NEAR(y.q(1, 0), 1, 1e-6);
  EXPECT_NEAR(y.q(1, 1), -1, 1e-6);
  EXPECT_EQ(y.gate(1, 0), 0.0);
  EXPECT_NEAR(y.out(1, 0), 4 * 0.5 + 40 * 0.75, 1e-13);
}

// CFG-9, CFG-10: 16 heads of 256 on 2 key heads, 64 columns turned; 4096 differs from the model width.
TEST(GatedAttention, HasTheShapesOfQwen3Next) {
  GatedAttentionParameters<double> p;
  p.heads = 16;
  p.key_heads = 2;
  p.head_width = 256;
  p.rotary_width = 64;
  p.q_proj = Matrix<double>::Constant(8192, 3, 0.5);
  p.k_proj = Matrix<double>::Constant(512, 3, 0.5);
  p.v_proj = Matrix<double>::Constant(512, 3, 0.5);
  p.o_proj = Matrix<double>::Constant(3, 4096, 0.5);
  p.q_norm = Vector<double>::Zero(256);
  p.k_norm = Vector<double>::Zero(256);
  const GatedAttentionOutput<double> y = gated_attention(Matrix<double>::Ones(2, 3).eval(), p);
  EXPECT_EQ(y.attended.cols(), 4096);
  EXPECT_EQ(y.cache.k.cols(), 512);
  EXPECT_EQ(y.cache.v.cols(), 512);
  EXPECT_EQ(y.out.cols(), 3);
  // Every value is 1.5 and every gate: 4096 * 1.5 sigma(1.5) / 2.
  EXPECT_NEAR(y.out(1, 2), 3072 * logistic(1.5), 1e-10);
}

TEST(GatedAttention, TakesNoTokens) {
  const GatedAttentionOutput<double> past = gated_attention(tokens(2), small());
  const GatedAttentionOutput<double> y = gated_attention(tokens(0), small(), past.cache);
  EXPECT_EQ(y.out.rows(), 0);
  EXPECT_EQ(y.cache.k, past.cache.k);
}

TEST(GatedAttention, RefusesSizesThatDisagree) {
  const std::vector<std::function<void(GatedAttentionParameters<double>&)>> faults{
      [](auto& p) { p.heads = 0; },
      [](auto& p) { p.key_heads = 0; },
      [](auto& p) { p.key_heads = 2; },
      [](auto& p) { p.head_width = 0; },
      [](auto& p) { p.rotary_width = 1; },
      [](auto& p) { p.rotary_width = 4; },
      [](auto& p) { p.q_proj = Matrix<double>::Ones(2, 1); },
      [](auto& p) { p.k_proj = Matrix<double>::Ones(2, 2); },
      [](auto& p) { p.v_proj = Matrix<double>::Ones(4, 1); },
      [](auto& p) { p.o_proj = Matrix<double>::Ones(2, 1); },
      [](auto& p) { p.q_norm = Vector<double>::Ones(1); },
      [](auto& p) { p.k_norm = Vector<double>::Ones(3); }};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    GatedAttentionParameters<double> p = small();
    faults[i](p);
    EXPECT_THROW((void)gated_attention(tokens(1), p), Error) << "fault " << i;
  }
  EXPECT_THROW((void)gated_attention(Matrix<double>::Ones(1, 2).eval(), small()), Error);
  const KeyValueCache<double> other{Matrix<double>::Ones(1, 3), Matrix<double>::Ones(1, 3)};
  EXPECT_THROW((void)gated_attention(tokens(1), small(), other), Error);
}

TEST(GatedAttentionResumed, RefusesCutsOutOfOrder) {
  const auto plain = [](const AttentionInputs<double>& x) { return softmax_attention(x); };
  EXPECT_NEAR(gated_attention_resumed(tokens(2), small(), {0, 1, 1}, plain).out(1, 0), 5.25, 1e-14);
  EXPECT_THROW((void)gated_attention_resumed(tokens(2), small(), {2, 1}, plain), Error);
  EXPECT_THROW((void)gated_attention_resumed(tokens(2), small(), {3}, plain), Error);
}

}  // namespace
}  // namespace samestate
