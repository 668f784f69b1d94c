#include <gtest/gtest.h>

#include "reference/backward/latent_attention.h"
#include "reference/backward/layers/gated_attention.h"
#include "reference/backward/layers/qwen3_next_moe.h"
#include "tests/reference/backward/layers/layer_fields.h"

namespace samestate {
namespace {

using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

constexpr Index kModel = 5;
constexpr Index kNow = 3;
constexpr Index kPast = 2;

const auto kGatedFields = [](auto& p, auto& cache, auto&& visit) {
  visit(p.q_proj);
  visit(p.k_proj);
  visit(p.v_proj);
  visit(p.o_proj);
  visit(p.q_norm);
  visit(p.k_norm);
  visit(cache.k);
  visit(cache.v);
};

template <class Scalar>
std::pair<GatedAttentionParameters<Scalar>, KeyValueCache<Scalar>> gated_of(const Tensors<Scalar>& x) {
  std::pair<GatedAttentionParameters<Scalar>, KeyValueCache<Scalar>> out;
  out.first.heads = 4;
  out.first.key_heads = 2;
  out.first.head_width = 4;
  out.first.rotary_width = 2;
  out.first.theta = Scalar(100);
  kGatedFields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  return out;
}

template <class Scalar>
RotaryTables<Scalar> tables_from(Index position) {
  return rotary_tables(position, kNow, 2, Scalar(100));
}

/// For tokens that begin at `position`, which is kPast.
auto gated_backward(Index position) {
  return [position](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [p, cache] = gated_of(x);
    const auto g =
        gated_attention_backward(x[0], p, tables_from<Scalar>(position), cache, d[0], {d[1], d[2]});
    Tensors<Scalar> out{g.hidden};
    kGatedFields(g.parameters, g.cache, test::FieldWriter<Scalar>(out));
    return out;
  };
}

TEST(GatedAttentionBackward, IsTheDerivative) {
  const Tensors<double> inputs{normal(kNow, kModel, 1), normal(4 * 2 * 4, kModel, 2), normal(8, kModel, 3),
                               normal(8, kModel, 4),    normal(kModel, 16, 5),        normal(4, 1, 6),
                               normal(4, 1, 7),         normal(kPast, 8, 8),          normal(kPast, 8, 9)};
  const GradientCheck check(inputs, [](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [p, cache] = gated_of(x);
    const auto y = gated_attention(x[0], p, tables_from<Scalar>(kPast), cache,
                                   [](const AttentionInputs<Scalar>& a) { return softmax_attention(a); });
    return Tensors<Scalar>{y.out, y.cache.k, y.cache.v};
  });
  test::expect_gradients(check, gated_backward(kPast), test::kLayerResidual);
  for (const std::size_t which : {0, 1, 2})
    test::expect_seen(check, test::without_cotangent(gated_backward(kPast), which), "a cotangent");
  test::expect_seen(check, gated_backward(kPast - 1), "the position");
}

const auto kLatentFields = [](auto& w, auto& past, auto&& visit) {
  visit(w.q_up);
  visit(w.kv_down);
  visit(w.kv_up);
  visit(w.output);
  visit(past.latent);
  visit(past.rotary_key);
  if (w.q_down.size() == 0) return;
  visit(w.q_down);
  visit(w.q_norm);
  visit(w.kv_norm);
};

/// n = 3, r = 2, dv = 2, c = 4, q = 3, two heads; `compressed` has norms and the compression of the queries.
template <class Scalar>
std::pair<LatentAttentionWeights<Scalar>, LatentCache<Scalar>> latent_weights_of(const Tensors<Scalar>& x) {
  std::pair<LatentAttentionWeights<Scalar>, LatentCache<Scalar>> out;
  out.first.heads = 2;
  if (x.size() > 7) out.first.q_down.resize(1, 1);
  kLatentFields(out.first, out.second, test::FieldReader<Scalar>(x, 1));
  return out;
}

auto latent_backward(Index position) {
  return [position](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [w, past] = latent_weights_of(x);
    const auto g =
        latent_attention_backward(x[0], w, tables_from<Scalar>(position), d[0], past, {d[1], d[2]});
    Tensors<Scalar> out{g.x};
    kLatentFields(g.weights, g.past, test::FieldWriter<Scalar>(out));
    return out;
  };
}

TEST(LatentAttentionBackward, IsTheDerivativeOfEveryForm) {
  for (const bool compressed : {false, true}) {
    // Small queries and keys: next to a softmax of 0 and 1 the gradient of a score cancels.
    Tensors<double> inputs{normal(kNow, kModel, 1),  0.4 * normal(2 * 5, compressed ? 3 : kModel, 2),
                           normal(4 + 2, kModel, 3), 0.4 * normal(2 * 5, 4, 4),
                           normal(kModel, 4, 5),     normal(kPast, 4, 6),
                           normal(kPast, 2, 7)};
    if (compressed) {
      inputs.push_back(normal(3, kModel, 8));
      inputs.push_back(normal(3, 1, 9));
      inputs.push_back(normal(4, 1, 10));
    }
    for (const LatentForm form : {LatentForm::naive, LatentForm::absorbed, LatentForm::fully_absorbed}) {
      const GradientCheck check(inputs, [=](const auto& x) {
        using Scalar = ScalarOf<decltype(x)>;
        const auto [w, past] = latent_weights_of(x);
        const auto y = latent_attention(x[0], w, tables_from<Scalar>(kPast), form, past);
        return Tensors<Scalar>{y.y, y.cache.latent, y.cache.rotary_key};
      });
      test::expect_gradients(check, latent_backward(kPast), test::kLayerResidual);
      for (const std::size_t which : {0, 1, 2})
        test::expect_seen(check, test::without_cotangent(latent_backward(kPast), which), "a cotangent");
      test::expect_seen(check, latent_backward(kPast - 1), "the position");
    }
  }
}

const auto kMoeFields = [](auto& w, auto&& visit) {
  visit(w.router);
  for (auto& expert : w.experts) {
    visit(expert.gate);
    visit(expert.up);
    visit(expert.down);
  }
  visit(w.shared.gate);
  visit(w.shared.up);
  visit(w.shared.down);
  visit(w.shared_gate);
};

template <class Scalar>
Qwen3NextMoeWeights<Scalar> moe_of(const Tensors<Scalar>& x) {
  Qwen3NextMoeWeights<Scalar> out;
  out.experts.resize(4);
  kMoeFields(out, test::FieldReader<Scalar>(x, 1));
  return out;
}

TEST(Qwen3NextMoeBackward, IsTheDerivative) {
  Tensors<double> inputs{normal(4, 3, 1), normal(4, 3, 2)};
  for (unsigned i = 0; i < 5; ++i) {
    inputs.push_back(normal(2, 3, 10 + i));
    inputs.push_back(normal(2, 3, 20 + i));
    inputs.push_back(normal(3, 2, 30 + i));
  }
  inputs.push_back(normal(1, 3, 40));
  for (const TopKWeights mode : {TopKWeights::renormalised, TopKWeights::literal}) {
    const GradientCheck check(inputs, [=](const auto& x) {
      const auto y = qwen3_next_moe(x[0], moe_of(x), 2, ExpertForm::loop, mode);
      return std::decay_t<decltype(x)>{y.y, y.routing.probabilities};
    });
    const auto with = [=](TopKWeights used) {
      return [=](const auto& x, const auto& d) {
        using Scalar = ScalarOf<decltype(x)>;
        const Qwen3NextMoeWeights<Scalar> w = moe_of(x);
        const auto routing = route(router_logits(x[0], w.router), 2, mode);
        const auto g = qwen3_next_moe_backward(x[0], w, routing, used, d[0], d[1]);
        Tensors<Scalar> out{g.x};
        kMoeFields(g.weights, test::FieldWriter<Scalar>(out));
        return out;
      };
    };
    test::expect_gradients(check, with(mode), test::kLayerResidual);
    for (const std::size_t which : {0, 1})
      test::expect_seen(check, test::without_cotangent(with(mode), which), "a cotangent");
    test::expect_seen(check,
                      with(mode == TopKWeights::literal ? TopKWeights::renormalised : TopKWeights::literal),
                      "the other weights");
  }
}

}  // namespace
}  // namespace samestate
