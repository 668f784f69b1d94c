#include "reference/dendritic_router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace samestate {
namespace {

/// One token whose logits are `logits`: the router is the identity.
DendriticRouting<double> routed(const std::vector<double>& logits, const BranchCounts& n,
                                WeightRule rule = WeightRule::renormalise_routed) {
  const auto d = static_cast<Index>(logits.size());
  const Matrix<double> q = Eigen::Map<const Matrix<double>>(logits.data(), 1, d);
  return route_branches<double>(q, Matrix<double>::Identity(d, d), n, rule);
}

std::vector<double> weights_of(const DendriticRouting<double>& r) {
  return {r.weights.data(), r.weights.data() + r.weights.size()};
}

void expect_near(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-15) << "branch " << i;
}

// E-09: equal logits give 0.5 / 0.25 / 0.25, not thirds; of equals the lower indices are chosen.
TEST(DendriticRouter, SharesHalfWithTheRoutedBranches) {
  const DendriticRouting<double> r = routed({0, 0, 0, 0, 0, 0, 0}, {8, 1, 2});
  EXPECT_EQ(weights_of(r), (std::vector<double>{0.5, 0.25, 0.25, 0, 0, 0, 0, 0}));
  EXPECT_EQ(r.selected, (Matrix<Index>(1, 2) << 0, 1).finished());
  EXPECT_EQ(r.mask.count(), 3);
}

// DEND-10 by its words alone: 1 / (1 + 2/7) = 7/9.
TEST(DendriticRouter, LiteralRuleIsTheReadingR2) {
  expect_near(weights_of(routed({0, 0, 0, 0, 0, 0, 0}, {8, 1, 2}, WeightRule::literal)),
              {7.0 / 9, 1.0 / 9, 1.0 / 9, 0, 0, 0, 0, 0});
}

// With p = (1, 4, 2) / 7, branches Es + 1 and Es + 2 get 2/3 and 1/3 of the weight of the routed ones.
TEST(DendriticRouter, RenormalisesTheChosenAndShiftsTheirIndex) {
  const std::vector<double> logits{0, std::log(4.0), std::log(2.0)};
  const DendriticRouting<double> one = routed(logits, {4, 1, 2});
  expect_near(weights_of(one), {0.5, 0, 1.0 / 3, 1.0 / 6});
  EXPECT_EQ(one.selected, (Matrix<Index>(1, 2) << 1, 2).finished());
  EXPECT_EQ(one.mask, (Matrix<bool>(1, 4) << true, false, true, true).finished());
  EXPECT_NEAR(one.probabilities(0, 1), 4.0 / 7, 1e-15);
  EXPECT_EQ(one.logits(0, 1), std::log(4.0));

  expect_near(weights_of(routed(logits, {5, 2, 1})), {0.25, 0.25, 0, 0.5, 0});
  expect_near(weights_of(routed(logits, {3, 0, 2})), {0, 2.0 / 3, 1.0 / 3});
  expect_near(weights_of(routed(logits, {4, 1, 3})), {0.5, 0.5 / 7, 2.0 / 7, 1.0 / 7});
}

// Without routed branches there are no logits, and the shared ones have everything.
TEST(DendriticRouter, WithoutRoutedBranchesAsksNoRouter) {
  const DendriticRouting<double> r = routed({5, -5}, {4, 2, 0});
  EXPECT_EQ(r.logits.cols(), 0);
  EXPECT_EQ(weights_of(r), (std::vector<double>{0.5, 0.5, 0, 0}));
  EXPECT_EQ(r.mask, (Matrix<bool>(1, 4) << true, true, false, false).finished());
}

// a chosen branch whose probability underflows stays on.
TEST(DendriticRouter, MaskComesFromTheIndices) {
  const DendriticRouting<double> r = routed({0, -800, -900}, {4, 1, 2});
  EXPECT_EQ(r.weights(0, 2), 0.0);
  EXPECT_TRUE(r.mask(0, 2));
  EXPECT_FALSE(r.mask(0, 3));
}

TEST(DendriticRouter, NoTokens) {
  const DendriticRouting<double> r =
      route_branches<double>(Matrix<double>(0, 3), Matrix<double>::Ones(3, 3), {4, 1, 2});
  EXPECT_EQ(r.weights.rows(), 0);
  EXPECT_EQ(r.weights.cols(), 4);
}

// Only the proportions of injected weights count: 3 and 1 are 3/4 and 1/4 of the routed half.
TEST(DendriticRouter, TakesAnInjectedChoice) {
  const DendriticRouting<double> r = injected_routing<double>(
      (Matrix<Index>(1, 2) << 2, 0).finished(), (Matrix<double>(1, 2) << 3, 1).finished(), {4, 1, 2});
  EXPECT_EQ(weights_of(r), (std::vector<double>{0.5, 0.125, 0, 0.375}));
}

TEST(DendriticRouter, RefusesBadInjections) {
  const auto inject = [](Index i, Index j, double a, double b, BranchCounts n = {4, 1, 2}) {
    (void)injected_routing<double>((Matrix<Index>(1, 2) << i, j).finished(),
                                   (Matrix<double>(1, 2) << a, b).finished(), n);
  };
  EXPECT_NO_THROW(inject(0, 2, 1, 0));
  EXPECT_THROW(inject(0, 3, 1, 1), Error);   // no such candidate
  EXPECT_THROW(inject(-1, 2, 1, 1), Error);  // a shared branch
  EXPECT_THROW(inject(1, 1, 1, 1), Error);   // twice
  EXPECT_THROW(inject(0, 1, 1, -1), Error);
  EXPECT_THROW(inject(0, 1, 1, std::numeric_limits<double>::quiet_NaN()), Error);
  EXPECT_THROW(inject(0, 1, 0, 0), Error);
  EXPECT_THROW(inject(0, 1, 1, 1, {4, 1, 1}), Error);  // two columns for one
  EXPECT_THROW(
      (void)injected_routing<double>(Matrix<Index>::Zero(2, 1), Matrix<double>::Ones(1, 1), {4, 1, 1}),
      Error);
}

TEST(DendriticRouter, RefusesCountsThatMakeNoRouter) {
  for (const BranchCounts n : {BranchCounts{2, 1, 2}, BranchCounts{4, 1, -1}, BranchCounts{4, -1, 1},
                               BranchCounts{4, 0, 0}, BranchCounts{0, 0, 0}, BranchCounts{1, 2, 0}}) {
    EXPECT_THROW(require_branch_counts(n), Error) << n.branches << " " << n.shared << " " << n.routed;
  }
  try {
    require_branch_counts({3, 2, 2});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "branches=3, shared=2, routed=2: branches must be at least shared + routed");
  }
  EXPECT_THROW((void)routed({0, 0}, {4, 1, 2}), Error);  // two rows for three candidates
  EXPECT_THROW((void)route_branches<double>(Matrix<double>(1, 2), Matrix<double>::Ones(3, 3), {4, 1, 2}),
               Error);
}

}  // namespace
}  // namespace samestate
