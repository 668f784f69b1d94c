#include "oracles/systems/explicit_chunk.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracles/contracts.h"
#include "oracles/systems/operator.h"
#include "reference/gated_delta_rule.h"
#include "reference/retention.h"
#include "tests/oracles/systems/signature_error.h"

namespace samestate {
namespace {

/// The worst |difference - exact| over its bound, of decays e^{G_i - G_j} from fp32 cumulative sums.
double worst_ratio(const Vector<Running>& g, const Matrix<Running>& bounds) {
  std::vector<float> G;
  for (Index t = 0; t < g.size(); ++t) {
    G.push_back(static_cast<float>(g(t).value()) + (t > 0 ? G.back() : 0.0F));
  }
  double worst = 0.0;
  for (Index i = 0; i < g.size(); ++i) {
    for (Index j = 0; j < i; ++j) {
      const float difference = G[static_cast<std::size_t>(i)] - G[static_cast<std::size_t>(j)];
      const double error = std::abs(std::exp(static_cast<double>(difference)) - bounds(i, j).value());
      worst = std::max(worst, error / bounds(i, j).error());
    }
  }
  return worst;
}

TEST(CumulativeDecay, DifferencesOfASumLieWithinTheBound) {
  // A decay of 100 is followed by small ones: after it G has an ulp of 2^-17, while a sum between two tokens
  // does not.
  Vector<Running> g(12);
  for (Index t = 0; t < g.size(); ++t) {
    g(t) = Running(
        static_cast<double>(static_cast<float>(t == 2 ? -100.0 : -0.013 * static_cast<double>(t + 1))));
  }
  EXPECT_LT(worst_ratio(g, decay_between(cumulative_decay(g))), 1.0);
  EXPECT_GT(worst_ratio(g, decay_between(g)), 1.0) << "sums between do not see it";
}

TEST(CumulativeDecay, AHardResetIsCutOff) {
  Vector<Running> g(3);
  g << Running(-1e38), Running(-0.5), Running(-0.25);
  const Vector<Running> in_effect = cumulative_decay(g);
  EXPECT_LT(in_effect(2).error(), 129.0 * 0x1p-22);
  EXPECT_EQ(in_effect(2).value(), -0.25);
}

// After two entries of -600, which count as -128 each, -0.29 is off by half an ulp of 256 in a kernel that
// subtracts sums.
TEST(CumulativeDecay, SamplesDrawTheRoundingsOfItsSums) {
  Vector<Stochastic> g(3);
  g << Stochastic(-600.1F), Stochastic(-600.3F), Stochastic(-0.29F);
  double squares = 0.0;
  constexpr int kCount = 200;
  for (int n = 0; n < kCount; ++n) {
    const SamplingScope scope(SampledModel::sample(contract_named("fp32"), 7, n));
    const Vector<Stochastic> in_effect = cumulative_decay(g);
    EXPECT_EQ(in_effect(0).value(), static_cast<double>(-600.1F)) << "128 is a number of fp32";
    const double error = in_effect(2).value() - static_cast<double>(-0.29F);
    EXPECT_LE(std::abs(error), 257.0 * 0x1p-24);
    squares += error * error;
  }
  const double spread = std::sqrt(squares / kCount);
  EXPECT_GT(spread, 256.0 * 0x1p-25);
}

TEST(ExplicitChunk, TheInverseIsThatOfSubstitution) {
  for (const Index L : {1, 2, 7, 8, 9, 16, 21}) {
    const Matrix<double> A =
        lower<double>(Matrix<double>::NullaryExpr(L, L,
                                                  [](Index i, Index j) {
                                                    return std::sin(1.0 + 3.0 * static_cast<double>(i) +
                                                                    0.7 * static_cast<double>(j));
                                                  }),
                      -1);
    const Matrix<double> inverse = unit_lower_inverse(A);
    const Matrix<double> solved = solve_unit_lower<double>(A, Matrix<double>::Identity(L, L));
    EXPECT_LT((inverse - solved).norm(), 1e-14 * solved.norm()) << L;
    EXPECT_EQ(lower<double>(inverse, 0), inverse) << L;
  }
}

TEST(ExplicitChunk, IsTheReferenceInFloat64) {
  Sequence<double> x{Matrix<double>(5, 2),
                     Matrix<double>(5, 2),
                     Matrix<double>(5, 3),
                     Vector<double>::Constant(5, -0.1),
                     Vector<double>::Constant(5, 0.5),
                     0.5,
                     Matrix<double>::Ones(2, 3)};
  for (Index i = 0; i < 10; ++i) x.q.data()[i] = std::sin(1.0 + static_cast<double>(i));
  for (Index i = 0; i < 10; ++i) x.k.data()[i] = std::cos(2.0 * static_cast<double>(i));
  for (Index i = 0; i < 15; ++i) x.v.data()[i] = std::sin(3.0 * static_cast<double>(i));
  for (const Index chunk : {1, 2, 5, 9}) {
    const Trajectory<double> step = recurrent<GatedDeltaRule>(x);
    const Trajectory<double> chunks = explicitly_chunked<GatedDeltaRule>(x, chunk);
    EXPECT_LT((step.o - chunks.o).cwiseAbs().maxCoeff(), 1e-14) << chunk;
    EXPECT_LT((step.state - chunks.state).cwiseAbs().maxCoeff(), 1e-14) << chunk;
  }
  EXPECT_THROW((void)explicitly_chunked<Retention>(x, 0), Error);
  const Sequence<double> none = x.slice(0, 0, x.initial_state);
  EXPECT_EQ(explicitly_chunked<GatedDeltaRule>(none, 4).state, x.initial_state);
}

TEST(LayerOperators, SizesThatDoNotFitNameTheKey) {
  EXPECT_NE(error_of("multi_scale_retention", {{"dk", 5}}).find("dk=5"), std::string::npos);
  EXPECT_NE(error_of("dendritic_router", {{"Es", 0}, {"K", 0}}).find("no branch is active"),
            std::string::npos);
  EXPECT_NE(error_of("dendritic_attention", {{"K", 0}, {"idle", 0}}).find("idle=0"), std::string::npos);
  EXPECT_EQ(error_of("overlap_windows", {{"N", 1}, {"O", 0}}), "");
}

}  // namespace
}  // namespace samestate
