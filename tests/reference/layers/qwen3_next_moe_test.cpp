#include "reference/layers/qwen3_next_moe.h"

#include <gtest/gtest.h>

#include <cmath>

namespace samestate {
namespace {

Matrix<double> one(double value) { return Matrix<double>::Constant(1, 1, value); }

/// E(x) = scale x silu(x).
SwiGluExpert<double> expert(double scale) { return {one(1), one(1), one(scale)}; }

/// One feature, three experts of scale 1, 10 and 100, router (1, 0, -1) x, shared expert of scale 1000.
Qwen3NextMoeWeights<double> toy(double shared_gate) {
  Qwen3NextMoeWeights<double> weights;
  weights.router = (Matrix<double>(3, 1) << 1, 0, -1).finished();
  weights.experts = {expert(1), expert(10), expert(100)};
  weights.shared = expert(1000);
  weights.shared_gate = one(shared_gate);
  return weights;
}

// x = 1: logits (1, 0, -1), weights sigma(1) and sigma(-1); E(x) = scale sigma(1); the gate is sigma(0) =
// 1/2.
TEST(Qwen3NextMoe, AddsTheGatedSharedExpert) {
  const double s = 1 / (1 + std::exp(-1.0));
  const Qwen3NextMoe<double> out = qwen3_next_moe(one(1), toy(0), 2);
  EXPECT_NEAR(out.routed(0, 0), s * (s + 10 * (1 - s)), 1e-14);
  EXPECT_NEAR(out.shared(0, 0), 1000 * s, 1e-12);
  EXPECT_EQ(out.gate(0, 0), 0.5);
  EXPECT_NEAR(out.y(0, 0), s * (s + 10 * (1 - s)) + 500 * s, 1e-12);
  EXPECT_EQ(out.routing.logits, (Matrix<double>(1, 3) << 1, 0, -1).finished());
  EXPECT_EQ(out.routing.experts, (Matrix<Index>(1, 2) << 0, 1).finished());
}

TEST(Qwen3NextMoe, AClosedSharedGateLeavesTheRoutedExperts) {
  const Qwen3NextMoe<double> out = qwen3_next_moe(one(1), toy(-2000), 2);
  EXPECT_EQ(out.y, out.routed);
}

TEST(Qwen3NextMoe, TakesARoutingMadeElsewhere) {
  const Qwen3NextMoeWeights<double> weights = toy(0);
  const Qwen3NextMoe<double> own = qwen3_next_moe(one(1), weights, 1);
  const Routing<double> flipped = route_to(own.routing.logits, Matrix<Index>::Constant(1, 1, 2));
  const Qwen3NextMoe<double> out = qwen3_next_moe_routed(one(1), weights, flipped);
  EXPECT_NEAR(out.routed(0, 0), 100 * own.routed(0, 0), 1e-12);  // a flip is no rounding error (8.2)
  EXPECT_EQ(out.shared, own.shared);
}

TEST(Qwen3NextMoe, NoTokens) {
  const Qwen3NextMoe<double> out = qwen3_next_moe(Matrix<double>(0, 1), toy(0), 2);
  EXPECT_EQ(out.y.rows(), 0);
  EXPECT_EQ(out.routing.experts.cols(), 2);
}

TEST(Qwen3NextMoe, RefusesWhatDoesNotFit) {
  EXPECT_THROW((void)qwen3_next_moe(one(1), toy(0), 4), Error);
  EXPECT_THROW((void)qwen3_next_moe(one(1), toy(0), 0), Error);
  Qwen3NextMoeWeights<double> fewer = toy(0);
  fewer.experts.pop_back();
  EXPECT_THROW((void)qwen3_next_moe(one(1), fewer, 1), Error);
  Qwen3NextMoeWeights<double> gates = toy(0);
  gates.shared_gate = Matrix<double>::Ones(2, 1);
  EXPECT_THROW((void)qwen3_next_moe(one(1), gates, 1), Error);
  Qwen3NextMoeWeights<double> widening = toy(0);
  widening.shared.down = Matrix<double>::Ones(2, 1);
  EXPECT_THROW((void)qwen3_next_moe(one(1), widening, 1), Error);
}

}  // namespace
}  // namespace samestate
