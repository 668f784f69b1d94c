#include "reference/backward/layers/gated_delta_net.h"

#include <gtest/gtest.h>

#include "reference/backward/chunk.h"
#include "reference/backward/recurrence.h"
#include "tests/reference/backward/layers/layer_fields.h"

namespace samestate {
namespace {

using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kNetTokens = 5;
constexpr Index kNetWidth = 4;

const auto kNetFields = [](auto& weights, auto& cache, auto&& visit) {
  visit(weights.in_proj_qkvz);
  visit(weights.in_proj_ba);
  visit(weights.conv1d);
  visit(weights.A_log);
  visit(weights.dt_bias);
  visit(weights.norm);
  visit(weights.out_proj);
  visit(cache.convolution);
  visit(cache.state);
};

GatedDeltaNetShape net_shape(ProjectionLayout layout) {
  GatedDeltaNetShape s{2, 4, 2, 3};
  s.layout = layout;
  return s;
}

/// x, then weights and cache.
Tensors<double> net_tensors(const GatedDeltaNetShape& s) {
  const Index W = 3;
  Tensors<double> out{normal(kNetTokens, kNetWidth, 1),
                      0.5 * normal(2 * s.keys() + 2 * s.values(), kNetWidth, 2),
                      0.5 * normal(2 * s.value_heads, kNetWidth, 3),
                      0.5 * normal(s.channels(), W, 4),
                      0.5 * normal(s.value_heads, 1, 5),
                      normal(s.value_heads, 1, 6),
                      normal(s.value_width, 1, 7),
                      0.5 * normal(kNetWidth, s.values(), 8),
                      normal(W - 1, s.channels(), 9)};
  for (unsigned h = 0; h < s.value_heads; ++h) out.push_back(normal(s.key_width, s.value_width, 10 + h));
  return out;
}

template <class Scalar>
std::pair<GatedDeltaNetWeights<Scalar>, GatedDeltaNetCache<Scalar>> net_of(const Tensors<Scalar>& x,
                                                                           const GatedDeltaNetShape& s) {
  std::pair<GatedDeltaNetWeights<Scalar>, GatedDeltaNetCache<Scalar>> out;
  out.second.state.resize(static_cast<std::size_t>(s.value_heads));
  kNetFields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  return out;
}

const auto kNetRule = [](const auto& head) { return recurrent<GatedDeltaRule>(head); };

auto net_forward(GatedDeltaNetShape s, std::vector<bool> real) {
  return [=](const auto& x) {
    const auto [weights, cache] = net_of(x, s);
    auto y = gated_delta_net(x[0], weights, s, cache, kNetRule, real);
    std::decay_t<decltype(x)> out{y.y, y.cache.convolution};
    out.insert(out.end(), y.cache.state.begin(), y.cache.state.end());
    return out;
  };
}

auto net_backward(GatedDeltaNetShape s, std::vector<bool> real, Index chunk = 0) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [weights, cache] = net_of(x, s);
    const auto run = [=](const auto& head, const auto& c) {
      return chunk == 0 ? recurrent_backward<GatedDeltaRule>(head, c)
                        : chunked_backward_parts<GatedDeltaRule>(head, c, chunk);
    };
    GatedDeltaNetCotangents<Scalar> cotangents{d[0], {d[1], {d.begin() + 2, d.end()}}};
    const auto g = gated_delta_net_backward(x[0], weights, s, cache, cotangents, kNetRule, run, real);
    Tensors<Scalar> out{g.x};
    kNetFields(g.weights, g.cache, test::FieldWriter<Scalar>(out));
    return out;
  };
}

TEST(GatedDeltaNetBackward, IsTheDerivative) {
  for (const ProjectionLayout layout : {ProjectionLayout::grouped, ProjectionLayout::flat}) {
    const GatedDeltaNetShape s = net_shape(layout);
    const std::vector<bool> real = layout == ProjectionLayout::flat
                                       ? std::vector<bool>{false, true, true, true, true}
                                       : std::vector<bool>{};
    const GradientCheck check(net_tensors(s), net_forward(s, real));
    test::expect_gradients(check, net_backward(s, real), test::kLayerResidual);
    test::expect_gradients(check, net_backward(s, real, 2), test::kLayerResidual);
    for (const std::size_t which : {0, 1, 2, 5}) {
      test::expect_seen(check, test::without_cotangent(net_backward(s, real), which), "a cotangent");
    }
    const GatedDeltaNetShape other =
        net_shape(layout == ProjectionLayout::flat ? ProjectionLayout::grouped : ProjectionLayout::flat);
    test::expect_seen(check, net_backward(other, real), "the other layout");
  }
}

TEST(GatedDeltaNetBackward, AbsentCotangentsOfTheCacheAreZero) {
  const GatedDeltaNetShape s = net_shape(ProjectionLayout::grouped);
  const Tensors<double> x = net_tensors(s);
  const auto [weights, cache] = net_of(x, s);
  const auto run = [](const auto& head, const auto& c) {
    return recurrent_backward<GatedDeltaRule>(head, c);
  };
  const Matrix<double> dy = normal(kNetTokens, kNetWidth, 3);
  GatedDeltaNetCotangents<double> zero{dy, cache};
  zero.cache.convolution.setZero();
  for (Matrix<double>& m : zero.cache.state) m.setZero();
  const auto absent = gated_delta_net_backward(x[0], weights, s, cache, {dy, {}}, kNetRule, run);
  EXPECT_EQ(absent.x, gated_delta_net_backward(x[0], weights, s, cache, zero, kNetRule, run).x);
}

}  // namespace
}  // namespace samestate
