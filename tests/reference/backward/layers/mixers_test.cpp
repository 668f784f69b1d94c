#include <gtest/gtest.h>

#include "reference/backward/layers/mamba.h"
#include "reference/backward/layers/mamba2.h"
#include "reference/backward/layers/multi_scale_retention.h"
#include "reference/backward/recurrence.h"
#include "tests/reference/backward/layers/layer_fields.h"

namespace samestate {
namespace {

using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kMixed = 4;

const auto kMambaFields = [](auto& w, auto& cache, auto&& visit) {
  visit(w.in_proj);
  visit(w.conv1d);
  visit(w.conv1d_bias);
  visit(w.x_proj);
  visit(w.dt_proj);
  visit(w.dt_bias);
  visit(w.A_log);
  visit(w.skip);
  visit(w.out_proj);
  visit(w.in_bias);
  visit(w.out_bias);
  visit(cache.convolution);
  visit(cache.state);
};

template <class Scalar>
std::pair<MambaWeights<Scalar>, MambaCache<Scalar>> mamba_of(const Tensors<Scalar>& x, Discretisation mode) {
  std::pair<MambaWeights<Scalar>, MambaCache<Scalar>> out;
  kMambaFields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  out.first.discretisation = mode;
  return out;
}

TEST(MambaBackward, IsTheDerivative) {
  // D = 3, Di = 4, N = 2, R = 2, W = 3.
  const Tensors<double> inputs{
      normal(kMixed, 3, 1), normal(8, 3, 2),  normal(4, 3, 3),       normal(4, 1, 4), normal(6, 4, 5),
      normal(4, 2, 6),      normal(4, 1, 7),  0.5 * normal(4, 2, 8), normal(4, 1, 9), normal(3, 4, 10),
      normal(8, 1, 11),     normal(3, 1, 12), normal(2, 4, 13),      normal(4, 2, 14)};
  for (const Discretisation mode : {Discretisation::euler, Discretisation::zero_order_hold}) {
    const GradientCheck check(inputs, [=](const auto& x) {
      const auto [w, cache] = mamba_of(x, mode);
      const auto y = mamba(x[0], w, cache);
      return std::decay_t<decltype(x)>{y.out, y.cache.convolution, y.cache.state};
    });
    const auto with = [](Discretisation used) {
      return [used](const auto& x, const auto& d) {
        using Scalar = ScalarOf<decltype(x)>;
        const auto [w, cache] = mamba_of(x, used);
        const auto g = mamba_backward<Scalar>(x[0], w, cache, {d[0], {d[1], d[2]}});
        Tensors<Scalar> out{g.hidden};
        kMambaFields(g.weights, g.cache, test::FieldWriter<Scalar>(out));
        return out;
      };
    };
    test::expect_gradients(check, with(mode), test::kLayerResidual);
    for (const std::size_t which : {0, 1, 2})
      test::expect_seen(check, test::without_cotangent(with(mode), which), "a cotangent");
    test::expect_seen(
        check, with(mode == Discretisation::euler ? Discretisation::zero_order_hold : Discretisation::euler),
        "the other discretisation");
  }
}

const auto kMamba2Fields = [](auto& w, auto& cache, auto&& visit) {
  visit(w.in_proj);
  visit(w.conv1d);
  visit(w.conv1d_bias);
  visit(w.dt_bias);
  visit(w.A_log);
  visit(w.skip);
  visit(w.norm);
  visit(w.out_proj);
  visit(cache.convolution);
  visit(cache.state);
};

template <class Scalar>
std::pair<Mamba2Weights<Scalar>, Mamba2Cache<Scalar>> mamba2_of(const Tensors<Scalar>& x, Index norm_groups) {
  std::pair<Mamba2Weights<Scalar>, Mamba2Cache<Scalar>> out;
  out.first.groups = 2;
  out.first.norm_groups = norm_groups;
  kMamba2Fields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  return out;
}

TEST(Mamba2Backward, IsTheDerivative) {
  // D = 3, H = 4, P = 2, Di = 8, G = 2, N = 2, W = 3: convolution of 16 channels, in_proj of 28 rows.
  const Tensors<double> inputs{normal(kMixed, 3, 1), 0.5 * normal(28, 3, 2), normal(16, 3, 3),
                               normal(16, 1, 4),     normal(4, 1, 5),        0.5 * normal(4, 1, 6),
                               normal(4, 1, 7),      normal(8, 1, 8),        normal(3, 8, 9),
                               normal(2, 16, 10),    normal(8, 2, 11)};
  const auto run = [](const auto& s, const auto& c) { return recurrent_backward<Retention>(s, c); };
  for (const Index norm_groups : {1, 2}) {
    const GradientCheck check(inputs, [=](const auto& x) {
      const auto [w, cache] = mamba2_of(x, norm_groups);
      const auto y = mamba2(x[0], w, cache);
      return std::decay_t<decltype(x)>{y.out, y.cache.convolution, y.cache.state};
    });
    const auto with = [=](Index groups) {
      return [=](const auto& x, const auto& d) {
        using Scalar = ScalarOf<decltype(x)>;
        const auto [w, cache] = mamba2_of(x, groups);
        const auto g = mamba2_backward<Scalar>(x[0], w, cache, {d[0], {d[1], d[2]}}, run);
        Tensors<Scalar> out{g.hidden};
        kMamba2Fields(g.weights, g.cache, test::FieldWriter<Scalar>(out));
        return out;
      };
    };
    test::expect_gradients(check, with(norm_groups), test::kLayerResidual);
    for (const std::size_t which : {0, 1, 2})
      test::expect_seen(check, test::without_cotangent(with(norm_groups), which), "a cotangent");
    test::expect_seen(check, with(3 - norm_groups), "the groups of the norm");
  }
}

const auto kRetentionFields = [](auto& w, auto& states, auto&& visit) {
  visit(w.q_proj);
  visit(w.k_proj);
  visit(w.v_proj);
  visit(w.g_proj);
  visit(w.out_proj);
  visit(states);
};

template <class Scalar>
std::pair<MultiScaleRetentionWeights<Scalar>, std::vector<Matrix<Scalar>>> retention_of(
    const Tensors<Scalar>& x) {
  std::pair<MultiScaleRetentionWeights<Scalar>, std::vector<Matrix<Scalar>>> out;
  out.first.heads = 2;
  out.second.resize(2);
  kRetentionFields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  return out;
}

TEST(MultiScaleRetentionBackward, IsTheDerivative) {
  // D = 3, two heads of dk = 4 and dv = 3.
  const Tensors<double> inputs{normal(kMixed, 3, 1), normal(8, 3, 2), normal(8, 3, 3), normal(6, 3, 4),
                               normal(6, 3, 5),      normal(3, 6, 6), normal(4, 3, 7), normal(4, 3, 8)};
  const GradientCheck check(inputs, [](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    auto [w, states] = retention_of(x);
    std::vector<Matrix<Scalar>> after = states;
    const auto head = [&](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                          const Scalar&, Index h) {
      const auto at = static_cast<std::size_t>(h);
      const Trajectory<Scalar> y = recurrent<Retention>(retention_head(q, k, v, h, after[at]));
      after[at] = y.state;
      return y.o;
    };
    Tensors<Scalar> out{multi_scale_retention(x[0], w, head, 5).y};
    out.insert(out.end(), after.begin(), after.end());
    return out;
  });
  const auto at_position = [](Index first) {
    return [first](const auto& x, const auto& d) {
      using Scalar = ScalarOf<decltype(x)>;
      const auto [w, states] = retention_of(x);
      const auto g = multi_scale_retention_backward<Scalar>(
          x[0], w, states, d[0], {d[1], d[2]},
          [](const auto& s, const auto& c) { return recurrent_backward<Retention>(s, c); }, first);
      Tensors<Scalar> out{g.x};
      kRetentionFields(g.weights, g.initial_states, test::FieldWriter<Scalar>(out));
      return out;
    };
  };
  test::expect_gradients(check, at_position(5), test::kLayerResidual);
  for (const std::size_t which : {0, 1, 2})
    test::expect_seen(check, test::without_cotangent(at_position(5), which), "a cotangent");
  test::expect_seen(check, at_position(4), "the position");
}

}  // namespace
}  // namespace samestate
