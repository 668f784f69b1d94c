#include "oracles/systems/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>

#include "oracles/contracts.h"
#include "oracles/systems/group_routing.h"
#include "oracles/systems/operator.h"
#include "reference/group_limited_router.h"
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

TEST(Choices, AreAllWithWhatIsCertain) {
  const Choices choices({kIn, kOpen, kOut, kOpen, kOpen}, 3);
  EXPECT_EQ(choices.count(), 3);
  EXPECT_EQ(choices.places(), 3);
  EXPECT_EQ(choices.possible(), (std::vector<Index>{0, 1, 3, 4}));
  std::vector<std::vector<Index>> all;
  choices.each([&](const std::vector<Index>& chosen) { all.push_back(chosen); });
  EXPECT_EQ(all, (std::vector<std::vector<Index>>{{0, 1, 3}, {0, 1, 4}, {0, 3, 4}}));
  EXPECT_EQ(Choices({kIn, kOut}, 1).count(), 1);
  EXPECT_EQ(Choices(std::vector(200, kOpen), 100).count(), Choices::kMostChoices) << "no overflow";
}

TEST(Choices, AllowWhatACorrectKernelMayChoose) {
  const std::vector<Chosen> choice{kIn, kOpen, kOut, kOpen};
  const auto row = [](Index a, Index b) { return (Matrix<Index>(1, 2) << a, b).finished(); };
  EXPECT_TRUE(allows(choice, row(0, 3)));
  EXPECT_TRUE(allows(choice, row(1, 0)));
  EXPECT_FALSE(allows(choice, row(1, 3)));
  EXPECT_FALSE(allows(choice, row(0, 2)));
  const auto of = [&](double a, double b, double c, double d) {
    return choice_of_weights(choice, (Matrix<double>(1, 4) << a, b, c, d).finished(), 2);
  };
  EXPECT_EQ(of(0.6, 0, 0, 0.4), row(0, 3));
  EXPECT_EQ(of(0.4, 0.6, 0, 0), row(1, 0));
  EXPECT_EQ(of(0.6, 0.2, 0, 0.2), row(-1, -1)) << "three";
  EXPECT_EQ(of(1, 0, 0, 0), row(-1, -1)) << "one has vanished";
  EXPECT_EQ(of(0.6, 0, 0.4, 0), row(-1, -1)) << "no correct kernel's";
  EXPECT_EQ(choice_of_weights({kIn, kOut}, (Matrix<double>(1, 2) << 1, 0).finished(), 1)(0, 0), -1);
}

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

std::vector<Chosen> group_choice(const std::vector<double>& values, double error, const GroupLimit& limit) {
  // The logits carry such errors that scores alone decide.
  return certain_group_choice(scores(values, 1.0), scores(values, error), {}, limit);
}

// Groups of two score 7, 8 and 3: two of three are kept.
TEST(CertainGroupChoice, OpenOnlyWhereTheErrorsMeet) {
  const std::vector<double> values{4, 3, 6, 2, 2.5, 0.5};
  EXPECT_EQ(group_choice(values, 0.2, {3, 2, 3}), (std::vector{kIn, kIn, kIn, kOut, kOut, kOut}));
  // 3 against 2: either may be third.
  EXPECT_EQ(group_choice(values, 0.6, {3, 2, 3}), (std::vector{kIn, kOpen, kIn, kOpen, kOut, kOut}));
  // With 7 against 8 and one group kept, none of its experts is certain, and none of the other group's
  // either.
  EXPECT_EQ(group_choice(values, 0.3, {3, 1, 1}), (std::vector{kOpen, kOut, kOpen, kOut, kOut, kOut}));
  EXPECT_EQ(group_choice(values, 0.2, {3, 1, 1}), (std::vector{kOut, kOut, kIn, kOut, kOut, kOut}));
  // All of two groups, whichever these are.
  EXPECT_EQ(group_choice({4, 3, 3.9, 3, 9, 9}, 0.1, {3, 2, 4}),
            (std::vector{kOpen, kOpen, kOpen, kOpen, kIn, kIn}));
}

TEST(CertainGroupChoice, GroupsOfOneAndOneGroup) {
  EXPECT_EQ(group_choice({4, 3, 2, 1}, 0.4, {4, 2, 2}), (std::vector{kIn, kIn, kOut, kOut}));
  EXPECT_EQ(group_choice({4, 3, 2.9, 1}, 0.1, {4, 2, 2}), (std::vector{kIn, kOpen, kOpen, kOut}));
  EXPECT_EQ(group_choice({4, 3, 2.9, 1}, 0.1, {1, 1, 2}), (std::vector{kIn, kOpen, kOpen, kOut}));
}

TEST(CertainGroupChoice, TiesWithoutErrorGoToTheLowerIndex) {
  const Matrix<Running> zero = scores({0, 0, 0, 0}, 0.0), half = scores({0.5, 0.5, 0.5, 0.5}, 1e-3);
  EXPECT_EQ(certain_group_choice(zero, half, {}, {2, 1, 1}), (std::vector{kIn, kOut, kOut, kOut}));
  // Scores that were stored are numbers too.
  EXPECT_EQ(group_choice({0.5, 0.5, 0.5, 0.5}, 0.0, {2, 1, 1}), (std::vector{kIn, kOut, kOut, kOut}));
  EXPECT_EQ(group_choice({0.5, 0.5, 0.5, 0.5}, 1e-9, {2, 1, 1}), (std::vector{kOpen, kOpen, kOpen, kOpen}));
  // The same two numbers in another order: as good, by the same origin.
  const Matrix<Running> turned = scores({1, 0, 0, 1}, 0.0);
  EXPECT_EQ(certain_group_choice(turned, scores({0.7, 0.5, 0.5, 0.7}, 1e-3), {}, {2, 1, 1}),
            (std::vector{kIn, kOut, kOut, kOut}));
  // With other biases, the experts are different.
  const Vector<Running> bias = (Vector<Running>(4) << 0.0, 0.0, 0.25, 0.0).finished();
  EXPECT_EQ(certain_group_choice(zero, half, bias, {2, 1, 1}), (std::vector{kOut, kOut, kIn, kOut}));
}

/// A router whose scores are off by up to their error and that chooses by what it has.
TEST(CertainGroupChoice, CoversEveryChoiceThatMayBeMade) {
  std::mt19937_64 engine(11);
  std::uniform_real_distribution<double> side(-1.0, 1.0);
  int turned = 0, certain = 0;
  for (int round = 0; round < 2000; ++round) {
    constexpr Index kExperts = 12;
    const Index G = std::array<Index, 5>{1, 2, 3, 6, 12}[static_cast<std::size_t>(round % 5)];
    const Index M = 1 + round / 5 % G;
    const Index K = 1 + round / 7 % (M * (kExperts / G));
    const double error = round % 2 == 0 ? 0.01 : 0.001;
    GroupLimitedRouter<double> router{Vector<double>(kExperts), G, M, K, 2.5};
    Vector<Running> bias(kExperts);
    Matrix<double> logits(1, kExperts), moved(1, kExperts);
    Matrix<Running> s(1, kExperts);
    for (Index i = 0; i < kExperts; ++i) {
      router.selection_bias(i) = 0.1 * side(engine);
      bias(i) = Running(router.selection_bias(i));
      const double score = 0.5 + 0.2 * side(engine), other = score + error * side(engine);
      logits(0, i) = std::log(score / (1.0 - score)), moved(0, i) = std::log(other / (1.0 - other));
      s(0, i) = Running::within(score, error * 1.0000001);
    }
    const auto weights = [&](const Matrix<double>& x, std::vector<bool>& chosen) {
      const Routing<double> routing = route_group_limited(x, router);
      Matrix<double> w = Matrix<double>::Zero(1, kExperts);
      chosen.assign(kExperts, false);
      for (Index r = 0; r < K; ++r) {
        w(0, routing.experts(0, r)) = routing.weights(0, r);
        chosen[static_cast<std::size_t>(routing.experts(0, r))] = true;
      }
      return w;
    };
    std::vector<bool> exactly, actually;
    const Matrix<double> exact = weights(logits, exactly), actual = weights(moved, actually);
    const std::vector<Chosen> choice =
        certain_group_choice(scores(std::vector(12, 0.0), 9.0), s, bias, {G, M, K});
    const Matrix<Running> bound = certain_weights(s, choice, exactly, Running(2.5));
    for (Index i = 0; i < kExperts; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_TRUE(choice[at] != kIn || (exactly[at] && actually[at])) << round;
      EXPECT_TRUE(choice[at] != kOut || !(exactly[at] || actually[at])) << round;
      EXPECT_LE(std::abs(actual(0, i) - exact(0, i)), bound(0, i).error() + 1e-15) << round;
    }
    turned += exactly != actually ? 1 : 0;
    certain += decided(choice) ? 1 : 0;
  }
  EXPECT_GT(turned, 50);
  EXPECT_GT(certain, 500);
}

TEST(RoutingOperators, ImpossibleSizesAreNamed) {
  for (const char* system : {"expert_router", "load_balance", "mixture_of_experts", "qwen3_next_moe"}) {
    EXPECT_EQ(error_of(system, {}), "") << system;
    EXPECT_NE(error_of(system, {{"K", 4}, {"N", 3}}).find("K=4"), std::string::npos) << system;
  }
  EXPECT_EQ(error_of("group_limited_router", {}), "");
  EXPECT_EQ(error_of("group_limited_router", {{"N", 18}}),
            "N=18: the experts do not divide into G=4 groups; write N=20 or another multiple of G");
  EXPECT_EQ(error_of("group_limited_router", {{"N", 3}}),
            "N=3: the experts do not divide into G=4 groups; write N=4 or another multiple of G");
  EXPECT_EQ(error_of("group_limited_router", {{"M", 5}}),
            "M=5: of G=4 groups 1..4 are kept; write M=4 or a larger G");
  EXPECT_EQ(error_of("group_limited_router", {{"K", 9}}),
            "K=9: the M=2 groups kept have 8 experts, N / G = 4 each; write K=8 or less, or a larger M");
  EXPECT_EQ(error_of("group_limited_router", {{"K", 17}, {"M", 4}}),
            "K=17: the M=4 groups kept have 16 experts, N / G = 4 each; write K=16 or less, or a larger N");
  EXPECT_NE(error_of("load_balance", {}, 0).find("T=0"), std::string::npos);
  EXPECT_NE(error_of("latent_cache", {{"dr", 3}}).find("dr=3"), std::string::npos);
  EXPECT_NE(error_of("latent_attention", {{"dr", 3}}).find("dr=3"), std::string::npos);
}

}  // namespace
}  // namespace samestate
