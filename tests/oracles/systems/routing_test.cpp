#include "oracles/systems/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "oracles/contracts.h"
#include "oracles/systems/operator.h"
#include "reference/mixture_of_experts.h"
#include "tests/oracles/systems/signature_error.h"

namespace samestate {
namespace {

Matrix<Running> scores(const std::vector<double>& values, double error) {
  Matrix<Running> x(1, static_cast<Index>(values.size()));
  for (Index i = 0; i < x.cols(); ++i) x(0, i) = Running::within(values[static_cast<std::size_t>(i)], error);
  return x;
}

std::vector<Chosen> choice(const std::vector<double>& values, double error, Index K) {
  const Matrix<Running> x = scores(values, error);
  return certain_choice(x, x, K);
}

constexpr Chosen kOut = Chosen::out;
constexpr Chosen kIn = Chosen::in;
constexpr Chosen kOpen = Chosen::open;

TEST(CertainChoice, OpenOnlyWhereTheErrorsMeet) {
  EXPECT_EQ(choice({4, 3, 2, 1}, 0.4, 2), (std::vector{kIn, kIn, kOut, kOut}));
  EXPECT_EQ(choice({4, 3, 2.9, 1}, 0.1, 2), (std::vector{kIn, kOpen, kOpen, kOut}));
  EXPECT_EQ(choice({4, 3.9, 2, 1}, 0.1, 2),
            (std::vector{kIn, kIn, kOut, kOut}));  // which is first is no matter
  EXPECT_EQ(choice({4, 3, 2, 1}, 9, 4), (std::vector{kIn, kIn, kIn, kIn}));
}

TEST(CertainChoice, TiesWithoutErrorGoToTheLowerExpert) {
  EXPECT_EQ(choice({0, 0, 0}, 0.0, 1), (std::vector{kIn, kOut, kOut}));
  EXPECT_EQ(choice({0, 0, 0}, 1e-9, 1), (std::vector{kOpen, kOpen, kOpen}));
  // The probabilities of tied logits are made alike, whatever their error.
  EXPECT_EQ(certain_choice(scores({0, 0}, 0.0), scores({0.5, 0.5}, 1e-3), 1), (std::vector{kIn, kOut}));
}

TEST(CertainChoice, BothRankingsMustBeCertain) {
  EXPECT_EQ(certain_choice(scores({2, 1}, 0.1), scores({0.6, 0.4}, 0.2), 1), (std::vector{kOpen, kOpen}));
  EXPECT_EQ(certain_choice(scores({2, 1}, 1.0), scores({0.6, 0.4}, 0.01), 1), (std::vector{kOpen, kOpen}));
}

/// A router whose probabilities are off by up to their error and that chooses by what it has.
TEST(CertainWeights, CoverEveryChoiceThatMayBeMade) {
  std::mt19937_64 engine(9);
  std::uniform_real_distribution<double> side(-1.0, 1.0);
  int turned = 0;
  for (int round = 0; round < 500; ++round) {
    const Index N = 6;
    const Index K = 1 + round % 5;
    const double error = 0.02;
    Matrix<double> p(1, N);
    Matrix<double> moved(1, N);
    Matrix<Running> bounded(1, N);
    for (Index i = 0; i < N; ++i) {
      p(0, i) = 0.2 + 0.1 * side(engine);
      moved(0, i) = p(0, i) + error * side(engine);
      bounded(0, i) = Running::within(p(0, i), error);
    }
    const auto weights = [&](const Matrix<double>& x) {
      Matrix<double> w = Matrix<double>::Zero(1, N);
      const Matrix<Index> chosen = top_k(x, K);
      for (Index r = 0; r < K; ++r) w(0, chosen(0, r)) = x(0, chosen(0, r));
      return Matrix<double>(w / w.sum());
    };
    const Matrix<double> exact = weights(p);
    const Matrix<double> actual = weights(moved);
    const Matrix<Running> bound = certain_weights(bounded, certain_choice(bounded, bounded, K), K);
    bool other = false;
    for (Index i = 0; i < N; ++i) {
      EXPECT_LE(std::abs(actual(0, i) - exact(0, i)), bound(0, i).error() + 1e-15);
      other = other || (actual(0, i) == 0.0) != (exact(0, i) == 0.0);
    }
    if (other) ++turned;
  }
  EXPECT_GT(turned, 50);
}

TEST(CertainWeights, WhatIsOutIsExactlyZero) {
  const Matrix<Running> p = scores({0.5, 0.25, 0.24, 0.01}, 0.01);
  const Matrix<Running> w = certain_weights(p, certain_choice(p, p, 2), 2);
  EXPECT_EQ(w(0, 3).value(), 0.0);
  EXPECT_EQ(w(0, 3).error(), 0.0);
  EXPECT_NEAR(w(0, 0).value(), 0.5 / 0.75, 1e-12);  // known though its partner is not
  EXPECT_LT(w(0, 0).error(), 0.06);
  EXPECT_GT(w(0, 1).error(), w(0, 1).value());
}

TEST(RoutingOperators, ImpossibleSizesAreNamed) {
  for (const char* system : {"expert_router", "load_balance", "mixture_of_experts", "qwen3_next_moe"}) {
    EXPECT_EQ(error_of(system, {}), "") << system;
    EXPECT_NE(error_of(system, {{"K", 4}, {"N", 3}}).find("K=4"), std::string::npos) << system;
  }
  EXPECT_NE(error_of("load_balance", {}, 0).find("T=0"), std::string::npos);
  EXPECT_NE(error_of("latent_cache", {{"dr", 3}}).find("dr=3"), std::string::npos);
  EXPECT_NE(error_of("latent_attention", {{"dr", 3}}).find("dr=3"), std::string::npos);
}

}  // namespace
}  // namespace samestate
