#include <gtest/gtest.h>

#include "reference/backward/mixture_of_experts.h"
#include "reference/group_limited_router.h"
#include "tests/reference/backward/gradient_check.h"

namespace samestate {
namespace {

using test::expect_gradients;
using test::expect_seen;
using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kRouted = 6;
constexpr Index kExperts = 5;

Matrix<Index> chosen(Index K) { return top_k(softmax(normal(kRouted, kExperts, 1)), K); }

/// Logits to weights and probabilities; the selection is that of the drawn logits.
auto route_forward(Index K, TopKWeights mode) {
  return [=](const auto& x) {
    const auto r = route_to(x[0], chosen(K), mode);
    return std::decay_t<decltype(x)>{r.weights, r.probabilities};
  };
}

auto route_reverse(Index K, TopKWeights mode, bool with_probabilities = true) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const Routing<Scalar> r = route_to(x[0], chosen(K), mode);
    return std::decay_t<decltype(x)>{
        route_backward(r, mode, d[0], with_probabilities ? d[1] : Matrix<Scalar>())};
  };
}

TEST(RouterBackward, IsTheDerivative) {
  for (const TopKWeights mode : {TopKWeights::renormalised, TopKWeights::literal}) {
    for (const Index K : {Index{1}, Index{3}, kExperts}) {
      const GradientCheck check({normal(kRouted, kExperts, 1)}, route_forward(K, mode));
      expect_gradients(check, route_reverse(K, mode));
      expect_seen(check, route_reverse(K, mode, false), "the cotangent of the probabilities");
      const TopKWeights other =
          mode == TopKWeights::literal ? TopKWeights::renormalised : TopKWeights::literal;
      // Over all experts the weights are the probabilities, and both are one function.
      if (K < kExperts) expect_seen(check, route_reverse(K, other), "the other weights");
    }
  }
}

TEST(RouterBackward, GroupLimited) {
  GroupLimitedRouter<double> router;
  router.selection_bias = Vector<double>::LinSpaced(6, -0.2, 0.2);
  router.groups = 3;
  router.groups_kept = 2;
  router.experts_per_token = 3;
  router.scaling = 2.5;
  const GradientCheck check({normal(kRouted, 6, 1)}, [&](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    const GroupLimitedRouter<Scalar> of{router.selection_bias.cast<Scalar>(), 3, 2, 3, Scalar(2.5)};
    const auto r = route_group_limited(x[0], of);
    return std::decay_t<decltype(x)>{r.weights, r.probabilities};
  });
  const auto backward = [&](double scaling) {
    return [=](const auto& x, const auto& d) {
      using Scalar = ScalarOf<decltype(x)>;
      const GroupLimitedRouter<Scalar> of{router.selection_bias.cast<Scalar>(), 3, 2, 3, Scalar(2.5)};
      return std::decay_t<decltype(x)>{
          route_group_limited_backward(route_group_limited(x[0], of), Scalar(scaling), d[0], d[1])};
    };
  };
  expect_gradients(check, backward(2.5));
  expect_seen(check, backward(1.0), "the scaling");
  expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto cut = d;
        cut[1].setZero();
        return backward(2.5)(x, cut);
      },
      "the cotangent of the scores");
}

// The weight of a single expert is 1 whatever the logits are: no gradient at all, bit for bit.
TEST(RouterBackward, OneRenormalisedExpertHasNoGradient) {
  const Routing<double> r = route(normal(kRouted, kExperts, 1), 1);
  EXPECT_EQ(route_backward(r, TopKWeights::renormalised, normal(kRouted, 1, 2)),
            Matrix<double>::Zero(kRouted, kExperts));
  EXPECT_GT(route_backward(r, TopKWeights::literal, normal(kRouted, 1, 2)).cwiseAbs().minCoeff(), 0.0);
}

// Renormalised weights do not see the experts that are not chosen.
TEST(RouterBackward, OnlyChosenLogitsHaveAGradientOfRenormalisedWeights) {
  const Routing<double> r = route(normal(kRouted, kExperts, 1), 2);
  const Matrix<double> dw = normal(kRouted, 2, 2);
  const Matrix<double> d = route_backward(r, TopKWeights::renormalised, dw);
  for (Index t = 0; t < kRouted; ++t) {
    EXPECT_EQ((d.row(t).array() != 0.0).count(), 2);
    EXPECT_NEAR(d.row(t).sum(), 0.0, 4e-16 * dw.row(t).cwiseAbs().maxCoeff());
  }
}

TEST(RouterBackward, AuxiliaryLoss) {
  Vector<bool> mask = Vector<bool>::Constant(kRouted, true);
  mask(2) = false;
  for (const LoadFraction fraction : {LoadFraction::assignment, LoadFraction::token}) {
    for (const Vector<bool>& counted : {Vector<bool>(), mask}) {
      const GradientCheck check({normal(kRouted, kExperts, 1)}, [=](const auto& x) {
        using Scalar = ScalarOf<decltype(x)>;
        const Scalar loss = auxiliary_loss(softmax(x[0]), chosen(2), Scalar(0.25), fraction, counted);
        return std::decay_t<decltype(x)>{Matrix<Scalar>::Constant(1, 1, loss)};
      });
      const auto backward = [=](const Vector<bool>& of, LoadFraction f) {
        return [=](const auto& x, const auto& d) {
          using Scalar = ScalarOf<decltype(x)>;
          const Routing<Scalar> r = route_to(x[0], chosen(2), TopKWeights::renormalised);
          const Matrix<Scalar> dp =
              auxiliary_loss_backward(r.probabilities, r.experts, Scalar(0.25), d[0](0, 0), f, of);
          return std::decay_t<decltype(x)>{
              route_backward(r, TopKWeights::renormalised, Matrix<Scalar>::Zero(kRouted, 2).eval(), dp)};
        };
      };
      expect_gradients(check, backward(counted, fraction));
      expect_seen(check, backward(counted.size() == 0 ? mask : Vector<bool>(), fraction), "the mask");
      expect_seen(
          check,
          backward(counted, fraction == LoadFraction::token ? LoadFraction::assignment : LoadFraction::token),
          "the fraction");
    }
  }
}

template <class Scalar>
std::vector<SwiGluExpert<Scalar>> swiglu_experts(const Tensors<Scalar>& x) {
  std::vector<SwiGluExpert<Scalar>> out;
  for (std::size_t i = 0; i < 3; ++i) out.push_back({x[2 + 3 * i], x[3 + 3 * i], x[4 + 3 * i]});
  return out;
}

/// The router's selection of 2 of 3 experts; expert 2 has no token.
template <class Scalar>
Routing<Scalar> two_of_three(const Matrix<Scalar>& weights) {
  Routing<Scalar> r;
  r.experts.resize(4, 2);
  r.experts << 0, 1, 1, 0, 0, 1, 1, 0;
  r.weights = weights;
  return r;
}

TEST(ExpertsBackward, SwiGlu) {
  Tensors<double> inputs{normal(4, 3, 1), normal(4, 2, 2)};
  for (unsigned i = 0; i < 3; ++i) {
    inputs.push_back(normal(5, 3, 10 + i));
    inputs.push_back(normal(5, 3, 20 + i));
    inputs.push_back(normal(3, 5, 30 + i));
  }
  const GradientCheck check(inputs, [](const auto& x) {
    return std::decay_t<decltype(x)>{mixture_of_experts(x[0], two_of_three(x[1]), swiglu_experts(x))};
  });
  const auto backward = [](const auto& x, const auto& d) {
    auto g = mixture_of_experts_backward(x[0], two_of_three(x[1]), swiglu_experts(x), d[0]);
    std::decay_t<decltype(x)> out{g.x, g.weights};
    for (auto& e : g.experts) {
      out.push_back(e.gate);
      out.push_back(e.up);
      out.push_back(e.down);
    }
    return out;
  };
  expect_gradients(check, backward);
  expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto ones = x;
        ones[1].setOnes();
        auto out = backward(ones, d);
        out[1] = backward(x, d)[1];
        return out;
      },
      "the weights of the experts");
  expect_seen(
      check,
      [&](const auto& x, const auto& d) {
        auto out = backward(x, d);
        out[2] -= out[3];  // the gate's slope, confused with up
        return out;
      },
      "the slope of silu");
  // An expert without a token: zeros of the right shape.
  const auto idle = backward(inputs, Tensors<double>{normal(4, 3, 7)});
  EXPECT_EQ(idle[8], Matrix<double>::Zero(5, 3));
}

TEST(ExpertsBackward, Linear) {
  const Tensors<double> inputs{normal(4, 3, 1), normal(4, 2, 2), normal(3, 3, 3),
                               normal(3, 1, 4), normal(3, 3, 5), normal(3, 1, 6)};
  const auto experts = [](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    std::vector<LinearExpert<Scalar>> out;
    for (std::size_t i = 2; i < 6; i += 2) out.push_back({x[i], x[i + 1].col(0)});
    return out;
  };
  const GradientCheck check(inputs, [&](const auto& x) {
    return std::decay_t<decltype(x)>{mixture_of_experts(x[0], two_of_three(x[1]), experts(x))};
  });
  expect_gradients(check, [&](const auto& x, const auto& d) {
    auto g = mixture_of_experts_backward(x[0], two_of_three(x[1]), experts(x), d[0]);
    return std::decay_t<decltype(x)>{
        g.x, g.weights, g.experts[0].weight, g.experts[0].bias, g.experts[1].weight, g.experts[1].bias};
  });
}

TEST(ExpertsBackward, RefusesWhatDisagrees) {
  const std::vector<LinearExpert<double>> experts(2, {normal(3, 3, 1), {}});
  const auto r = two_of_three<double>(normal(4, 2, 2));
  EXPECT_THROW((void)mixture_of_experts_backward<double>(normal(4, 3, 1), r, experts, normal(4, 2, 1)),
               Error);
  EXPECT_THROW((void)route_backward(route(normal(4, 3, 1), 2), TopKWeights::literal, normal(4, 3, 1)), Error);
  EXPECT_EQ(mixture_of_experts_backward<double>(normal(4, 3, 1), r, experts, normal(4, 3, 1))
                .experts[0]
                .bias.size(),
            0);
}

}  // namespace
}  // namespace samestate
