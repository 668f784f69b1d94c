#include "reference/mixture_of_experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "reference/experts.h"
#include "reference/group_limited_router.h"
#include "reference/load_balance.h"
#include "reference/scalars.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::relative;

Matrix<double> row(std::initializer_list<double> values) {
  Matrix<double> x(1, static_cast<Index>(values.size()));
  Index i = 0;
  for (double value : values) x(0, i++) = value;
  return x;
}

Matrix<Index> selection(std::initializer_list<std::initializer_list<Index>> rows) {
  Matrix<Index> out(static_cast<Index>(rows.size()), static_cast<Index>(rows.begin()->size()));
  Index t = 0;
  for (const auto& tokens : rows) {
    Index r = 0;
    for (Index expert : tokens) out(t, r++) = expert;
    ++t;
  }
  return out;
}

/// Experts that multiply by 1, 10, 100 ...
std::vector<LinearExpert<double>> powers_of_ten(Index N, Index D) {
  std::vector<LinearExpert<double>> experts;
  double factor = 1.0;
  for (Index i = 0; i < N; ++i, factor *= 10.0) {
    experts.push_back({factor * Matrix<double>::Identity(D, D), {}});
  }
  return experts;
}

constexpr ExpertForm kForms[] = {ExpertForm::loop, ExpertForm::dense, ExpertForm::sorted,
                                 ExpertForm::per_token};

// E-11: logits (1, 0, -1), k = 2: the formula weighs 0.6652 and 0.2447, the code 0.7311 and 0.2689.
TEST(Router, RenormalisedAndLiteralWeights) {
  const Matrix<double> logits = row({1, 0, -1});
  const Routing<double> code = route(logits, 2);
  EXPECT_EQ(code.experts, selection({{0, 1}}));
  EXPECT_NEAR(code.weights(0, 0), 1 / (1 + std::exp(-1.0)), 1e-15);
  EXPECT_NEAR(code.weights(0, 1), 1 / (1 + std::exp(1.0)), 1e-15);
  const Routing<double> formula = route(logits, 2, TopKWeights::literal);
  EXPECT_NEAR(formula.weights(0, 0), 0.66524095577482178, 1e-15);
  EXPECT_NEAR(formula.weights(0, 1), 0.24472847105479767, 1e-15);
}

TEST(TopK, EqualScoresGoToTheLowerIndex) {
  Matrix<double> scores(3, 4);
  scores << 0, 0, 0, 0,  // a zero token: all logits equal (EQUATIONS 8.2)
      1, 2, 1, 2,        //
      3, 3, 1, 4;
  EXPECT_EQ(top_k(scores, 3), selection({{0, 1, 2}, {1, 3, 0}, {3, 0, 1}}));
}

TEST(TopK, AZeroTokenIsSharedByTheFirstExperts) {
  const Matrix<double> x = Matrix<double>::Zero(1, 3);
  const Routing<double> routing = route(router_logits<double>(x, Matrix<double>::Random(4, 3)), 2);
  EXPECT_EQ(routing.experts, selection({{0, 1}}));
  EXPECT_EQ(routing.weights, row({0.5, 0.5}));
}

TEST(TopK, RefusesWhatCannotBeChosen) {
  const Matrix<double> scores = row({1, 2});
  EXPECT_THROW((void)top_k(scores, 3), Error);
  EXPECT_THROW((void)top_k(scores, 0), Error);
  EXPECT_THROW((void)top_k(scores, -1), Error);
  EXPECT_THROW((void)top_k(Matrix<double>(0, 2), 3), Error);  // no tokens is no excuse
  EXPECT_EQ(top_k(Matrix<double>(0, 2), 2).rows(), 0);
}

TEST(SelectionGap, IsTheDistanceToTheFirstExpertLeftOut) {
  Matrix<double> p(2, 4);
  p << 0.125, 0.5, 0.25, 0.125,  //
      0.25, 0.25, 0.25, 0.25;
  EXPECT_EQ(selection_gap(p, 1), (Vector<double>(2) << 0.25, 0.0).finished());
  EXPECT_EQ(selection_gap(p, 2), (Vector<double>(2) << 0.125, 0.0).finished());
  EXPECT_EQ(selection_gap(p, 3), (Vector<double>::Zero(2)));  // a tie at the edge: 0.125 and 0.125
  EXPECT_EQ(selection_gap(p, 4), (Vector<double>::Ones(2)));
}

TEST(Router, HasAnOptionalBias) {
  const Matrix<double> weight = (Matrix<double>(2, 1) << 2, 3).finished();
  const Vector<double> bias = (Vector<double>(2) << 10, 0).finished();
  EXPECT_EQ(router_logits(row({1}), weight), row({2, 3}));
  EXPECT_EQ(router_logits(row({1}), weight, bias), row({12, 3}));
}

// Logits (-800, -790, 0): in float64 the first two probabilities round to 0 and tie, and the lower index
// wins; the logits know better. The two paths of EQ-20 choose differently there.
TEST(Router, ProbabilitiesThatUnderflowTieWhereLogitsDoNot) {
  const Matrix<double> logits = row({-800, -790, 0});
  EXPECT_EQ(route(logits, 2).experts, selection({{2, 0}}));
  EXPECT_EQ(route_by_logits(logits, 2).experts, selection({{2, 1}}));
  const Matrix<Decimal50> more_digits = logits.cast<Decimal50>();
  EXPECT_EQ(route(more_digits, 2).experts, selection({{2, 1}}));
}

TEST(Router, InjectedSelectionKeepsTheLogitsWeights) {
  const Matrix<double> logits = row({1, 0, -1});
  const Routing<double> injected = route_to(logits, selection({{2, 0}}));
  EXPECT_NEAR(injected.weights(0, 0), 1 / (1 + std::exp(2.0)), 1e-15);
  EXPECT_NEAR(injected.weights(0, 1), 1 / (1 + std::exp(-2.0)), 1e-15);
}

TEST(Router, RefusesASelectionThatIsNone) {
  const Matrix<double> logits = row({1, 0, -1});
  EXPECT_THROW((void)route_to(logits, selection({{0, 3}})), Error);
  EXPECT_THROW((void)route_to(logits, selection({{-1, 0}})), Error);
  EXPECT_THROW((void)route_to(logits, selection({{1, 1}})), Error);
  EXPECT_THROW((void)route_to(logits, selection({{0}, {1}})), Error);
  EXPECT_THROW((void)route_to(logits, Matrix<Index>(1, 0)), Error);
  // Both selected probabilities are 0, and 0 / 0 is not a weight.
  EXPECT_THROW((void)route_to(row({-800, -790, 0}), selection({{0, 1}})), Error);
  EXPECT_THROW((void)route(row({1, std::numeric_limits<double>::quiet_NaN()}), 1), Error);
}

TEST(MixtureOfExperts, SumsTheWeightedExpertsInEveryForm) {
  const Matrix<double> x = (Matrix<double>(3, 2) << 1, 2, 3, 4, 5, 6).finished();
  Routing<double> routing;
  routing.experts = selection({{0, 1}, {3, 0}, {1, 3}});  // expert 2 has no token
  routing.weights = (Matrix<double>(3, 2) << 0.5, 0.5, 0.25, 0.75, 1, 0).finished();
  const Matrix<double> expected =
      (Matrix<double>(3, 2) << 5.5, 11, 3 * 250.75, 4 * 250.75, 50, 60).finished();
  for (ExpertForm form : kForms) {
    EXPECT_EQ(mixture_of_experts(x, routing, powers_of_ten(4, 2), form), expected);
  }
}

TEST(MixtureOfExperts, NoTokens) {
  const Matrix<double> none(0, 2);
  const Routing<double> routing = route(Matrix<double>(0, 4), 2);
  for (ExpertForm form : kForms) {
    const Matrix<double> y = mixture_of_experts(none, routing, powers_of_ten(4, 2), form);
    EXPECT_EQ(y.rows(), 0);
    EXPECT_EQ(y.cols(), 2);
  }
}

TEST(MixtureOfExperts, RefusesWhatDoesNotFit) {
  const Matrix<double> x = row({1, 2});
  Routing<double> routing = route(row({1, 0, -1}), 2);
  EXPECT_THROW((void)mixture_of_experts(x, routing, std::vector<LinearExpert<double>>{}), Error);
  EXPECT_THROW((void)mixture_of_experts(x, routing, powers_of_ten(1, 2)), Error);  // token goes to expert 1
  EXPECT_THROW((void)mixture_of_experts(x, routing, powers_of_ten(3, 1)), Error);  // experts of width 1
  EXPECT_THROW((void)mixture_of_experts(Matrix<double>(2, 2), routing, powers_of_ten(3, 2)), Error);
  const std::vector<LinearExpert<double>> narrowing(3, {Matrix<double>::Ones(1, 2), {}});
  for (ExpertForm form : kForms) EXPECT_THROW((void)mixture_of_experts(x, routing, narrowing, form), Error);
  routing.weights = Matrix<double>::Ones(1, 3);
  EXPECT_THROW((void)mixture_of_experts(x, routing, powers_of_ten(3, 2)), Error);
}

// x = 2, gate 1, up 3, down 0.5: 0.5 silu(2) 6 = 6 sigma(2).
TEST(SwiGluExpert, GatesWithSilu) {
  const auto one = [](double value) { return Matrix<double>::Constant(1, 1, value); };
  const SwiGluExpert<double> expert{one(1), one(3), one(0.5)};
  EXPECT_NEAR(expert(one(2))(0, 0), 6 / (1 + std::exp(-2.0)), 1e-14);
  EXPECT_THROW((void)(SwiGluExpert<double>{one(1), Matrix<double>::Ones(2, 1), one(1)})(one(2)), Error);
}

// MOE-9: p = (0.4, 0.3, 0.3), (0, 0.55, 0.45) gives f = (1/2, 1/2, 0), P = (0.2, 0.425, 0.375) and a loss of
// 0.9375 alpha, below the balanced alpha (E-33).
TEST(AuxiliaryLoss, BalanceIsNotItsMinimum) {
  const Matrix<double> p = (Matrix<double>(2, 3) << 0.4, 0.3, 0.3, 0, 0.55, 0.45).finished();
  const Matrix<Index> experts = top_k(p, 1);
  EXPECT_EQ(load<double>(experts, 3), (Vector<double>(3) << 0.5, 0.5, 0).finished());
  EXPECT_NEAR(relative(mean_probability(p), (Vector<double>(3) << 0.2, 0.425, 0.375).finished()), 0, 1e-15);
  EXPECT_NEAR(auxiliary_loss(p, experts, 1.0), 0.9375, 1e-15);
  EXPECT_NEAR(auxiliary_loss(p, experts, 1e-3), 0.9375e-3, 1e-18);
}

// Two tokens on complementary pairs of four experts, P uniform: alpha by assignment, alpha K by token
// (MOE-7).
TEST(AuxiliaryLoss, BalancedCostsAlphaOrAlphaTimesK) {
  const Matrix<double> p = Matrix<double>::Constant(2, 4, 0.25);
  const Matrix<Index> experts = selection({{0, 2}, {3, 1}});
  EXPECT_EQ(load_by_rank<double>(experts, 4),
            (Matrix<double>(2, 4) << 0.5, 0, 0, 0.5, 0, 0.5, 0.5, 0).finished());
  EXPECT_EQ(auxiliary_loss(p, experts, 1.0), 1.0);
  EXPECT_EQ(auxiliary_loss(p, experts, 1.0, LoadFraction::token), 2.0);
}

TEST(AuxiliaryLoss, CollapseCostsTheMostThatTheRouterSays) {
  const Matrix<double> p = (Matrix<double>(2, 4) << 1, 0, 0, 0, 1, 0, 0, 0).finished();
  EXPECT_EQ(auxiliary_loss(p, top_k(p, 1), 1.0), 4.0);  // alpha N
}

TEST(AuxiliaryLoss, PaddingIsLeftOutOfBothMeans) {
  const Matrix<double> p = (Matrix<double>(3, 2) << 0.75, 0.25, 0.25, 0.75, 1, 0).finished();
  Vector<bool> mask(3);
  mask << true, true, false;
  EXPECT_EQ(auxiliary_loss(p, top_k(p, 1), 1.0, LoadFraction::assignment, mask), 1.0);
  // With the padding f = (2/3, 1/3), P = (2/3, 1/3): 2 (4/9 + 1/9).
  EXPECT_NEAR(auxiliary_loss(p, top_k(p, 1), 1.0), 10.0 / 9.0, 1e-15);
}

TEST(AuxiliaryLoss, RefusesAMeanOfNothing) {
  const Matrix<double> p = row({0.5, 0.5});
  EXPECT_THROW(
      (void)auxiliary_loss(p, top_k(p, 1), 1.0, LoadFraction::token, Vector<bool>(Vector<bool>::Zero(1))),
      Error);
  EXPECT_THROW(
      (void)auxiliary_loss(p, top_k(p, 1), 1.0, LoadFraction::token, Vector<bool>(Vector<bool>::Ones(2))),
      Error);
  EXPECT_THROW((void)auxiliary_loss(Matrix<double>(0, 2), Matrix<Index>(0, 1), 1.0), Error);
  EXPECT_THROW((void)auxiliary_loss(p, selection({{0}, {1}}), 1.0), Error);
}

// sigma(0) = 1/2 everywhere, the bias alone chooses: groups {0,1} and {2,3} score 1.25 and 1.5; group 1 wins
// and expert 3 with it; weights know no bias.
TEST(GroupLimitedRouter, BiasMovesTheChoiceAndNotTheWeight) {
  GroupLimitedRouter<double> router;
  router.selection_bias = (Vector<double>(4) << 0.25, 0, 0.125, 0.375).finished();
  router.groups = 2;
  router.experts_per_token = 2;
  router.scaling = 2.5;
  const Routing<double> routing = route_group_limited<double>(Matrix<double>::Zero(1, 4), router);
  EXPECT_EQ(routing.experts, selection({{3, 2}}));
  EXPECT_EQ(routing.weights, row({1.25, 1.25}));
  // Without the limit the best two are 3 and 0.
  router.groups_kept = 2;
  EXPECT_EQ(route_group_limited<double>(Matrix<double>::Zero(1, 4), router).experts, selection({{3, 0}}));
}

// Choices 5/8, 1/2, 1/2, 3/8, 1/2, 5/8, 1/2, 1/2 in groups of two score 9/8, 7/8, 9/8, 1: groups 0 and 2 are kept, of the tied
// experts in them those with the lower numbers.
TEST(GroupLimitedRouter, TiedGroupsAndExpertsGoToTheLowerIndex) {
  GroupLimitedRouter<double> router;
  router.selection_bias = (Vector<double>(8) << 0.125, 0, 0, -0.125, 0, 0.125, 0, 0).finished();
  router.groups = 4;
  router.groups_kept = 1;
  router.experts_per_token = 1;
  const Matrix<double> logits = Matrix<double>::Zero(1, 8);
  EXPECT_EQ(route_group_limited(logits, router).experts, selection({{0}}));
  EXPECT_EQ(route_group_limited_in_order(logits, router).experts, selection({{0}}));
  router.groups_kept = 2;
  router.experts_per_token = 3;
  EXPECT_EQ(route_group_limited(logits, router).experts, selection({{0, 5, 1}}));
  EXPECT_EQ(route_group_limited_in_order(logits, router).experts, selection({{0, 5, 1}}));
}

TEST(GroupLimitedRouter, OneGroupIsTheSigmoidRouter) {
  GroupLimitedRouter<double> router;
  router.experts_per_token = 2;
  const Routing<double> routing = route_group_limited(row({0, std::log(3.0), -1}), router);
  EXPECT_EQ(routing.experts, selection({{1, 0}}));
  EXPECT_NEAR(routing.weights(0, 0), 0.6, 1e-15);  // 3/4 and 1/2
  EXPECT_NEAR(routing.weights(0, 1), 0.4, 1e-15);
}

/// Integers, so that many are equal; of every number of groups, kept and chosen.
template <class Scalar>
void both_forms_choose_alike() {
  constexpr Index kExperts = 12;
  int groups = 0;
  for (Index G = 1; G <= kExperts; ++G) {
    if (kExperts % G != 0) continue;
    Matrix<Scalar> logits(9, kExperts);
    Vector<Scalar> bias(kExperts);
    for (Index i = 0; i < logits.size(); ++i)
      logits.data()[i] = Scalar(static_cast<double>(i * 7 % 5 - i * 3 % 4));
    for (Index i = 0; i < kExperts; ++i) bias(i) = Scalar(static_cast<double>(i * 5 % 3) * 0.125);
    for (Index M = 1; M <= G; ++M) {
      for (Index K = 1; K <= M * (kExperts / G); ++K) {
        const GroupLimitedRouter<Scalar> router{K % 2 == 0 ? bias : Vector<Scalar>(), G, M, K, Scalar(2.5)};
        const Routing<Scalar> a = route_group_limited(logits, router);
        const Routing<Scalar> b = route_group_limited_in_order(logits, router);
        EXPECT_EQ(a.experts, b.experts) << G << ' ' << M << ' ' << K;
        EXPECT_TRUE(a.weights == b.weights) << G << ' ' << M << ' ' << K;
      }
    }
    ++groups;
  }
  EXPECT_EQ(groups, 6);
}

TEST(GroupLimitedRouter, BothFormsChooseAlike) {
  both_forms_choose_alike<double>();
  both_forms_choose_alike<Decimal50>();
}

TEST(GroupLimitedRouter, RefusesGroupsThatDoNotFit) {
  const Matrix<double> logits = Matrix<double>::Zero(1, 4);
  const auto refuses = [&](Index groups, Index kept, Index K, Index bias) {
    EXPECT_THROW(
        (void)route_group_limited<double>(logits, {Vector<double>::Zero(bias), groups, kept, K, 1.0}), Error);
  };
  refuses(3, 1, 1, 4);
  refuses(0, 1, 1, 4);
  refuses(2, 3, 1, 4);
  refuses(2, 0, 1, 4);
  refuses(2, 1, 3, 4);
  refuses(2, 1, 0, 4);
  refuses(2, 1, 1, 3);
}

}  // namespace
}  // namespace samestate
