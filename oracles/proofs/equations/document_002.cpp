#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/planted.h"
#include "oracles/proofs/equations/small_layer.h"
#include "reference/costs.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/linear_attention.h"
#include "reference/softmax_attention.h"

/// Document 002: the mathematics of Qwen3-Next and of linear attention. The document writes states [dv, dk];
/// the references hold the transposes.
namespace samestate::document_002_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;
using Vec = Vector<double>;

Finding parallel_and_recurrent(const char* what) {
  const Sequence<double> x = from_zero_state(drawn_sequence(9, 4, 3));
  M sum = M::Zero(9, 3);
  for (Index t = 0; t < 9; ++t) {
    for (Index j = 0; j <= t; ++j) sum.row(t) += x.v.row(j) * x.k.row(j).dot(x.q.row(t)) * x.scale;
  }
  return Computation()
      .agree(what, recurrent<LinearAttention>(x).o, sum)
      .agree("and lower(Q K^T) V", linear_attention_parallel(x), sum)
      .holds();
}

Finding circular_gate() {
  const Vec zero = Vec::Zero(1);
  const double correct = log_decay(row_of({0.0}), zero, zero)(0, 0);
  double alpha = 0.5;  // alpha = e^g, g = -softplus(alpha): alpha = 1 / (1 + e^alpha)
  for (int i = 0; i < 200; ++i) alpha = 1.0 / (1.0 + std::exp(alpha));
  return Computation()
      .rounds_to("A_log = a = dt_bias = 0: g", correct, -0.6931, 4)
      .rounds_to("fixed point of the printed form, alpha", alpha, 0.4011, 4)
      .rounds_to("its g", std::log(alpha), -0.9136, 4)
      .equal("it solves the printed form", -softplus(alpha), std::log(alpha))
      .contrast("g", std::log(alpha), correct)
      .identity("gdn_layer_decay_without_bias")
      .erratum();
}

Finding state_update() {
  const Sequence<double> x = drawn_sequence(1, 4, 3);
  const M correct = recurrent<GatedDeltaRule>(x).state;
  Sequence<double> other = x;
  other.q *= 2.0;
  const M literal = x.g(0) * x.initial_state;  // g of the layer is the log-decay
  Sequence<double> zero = x;
  zero.initial_state.setZero();
  const M f = recurrent<GatedDeltaRule>(zero).state;  // f(k, v, beta) without h_{t-1}
  return Computation()
      .contrast_all("g h + f(k, v, beta), and the rule", (literal + f).eval(), correct)
      .contrast_all("alpha h + f without h_{t-1}, and the rule",
                    (std::exp(x.g(0)) * x.initial_state + f).eval(), correct)
      .identical("the state at twice the query", recurrent<GatedDeltaRule>(other).state, correct)
      .remark("correct: h_t = alpha_t h_{t-1} + f(k_t, v_t, beta_t, h_{t-1})")
      .erratum();
}

Finding norm_per_head() {
  const Vec one = Vec::Ones(2);
  M heads(2, 2);
  heads << 1, 1, 10, 10;
  const M per_head = rms_norm(heads, one, 0.0);
  const M whole = rms_norm<double>(row_of({1, 1, 10, 10}), Vec::Ones(4), 0.0);
  return Computation()
      .agree("heads (1, 1) and (10, 10), d = 2 a head: all ones", per_head, M::Ones(2, 2).eval())
      .rounds_to("over the whole vector, head 0", whole(0, 0), 0.141, 3)
      .rounds_to("head 1", whole(0, 2), 1.407, 3)
      .contrast("first channel, whole and per head", whole(0, 0), per_head(0, 0))
      .count("d of the model", costs::Qwen3NextConfig{}.value_width, 128)
      .holds();
}

Finding projected_vector() {
  SmallLayer layer;
  const M printed = linear(layer.out.core, layer.weights.out_proj);
  const M correct = layer.out.y;
  // Grouped rows of a key head: q 3, k 3, v 4, z 4.
  for (const Index head : {0, 1}) layer.weights.in_proj_qkvz.middleRows(head * 14 + 10, 4).setZero();
  const GatedDeltaNetOutput<double> closed = layer.run();
  return Computation()
      .contrast_all("W_o h^core, and W_o h^out", printed, correct)
      .identical("W_o h^out at z = 0 is 0", closed.y, M::Zero(9, 5).eval())
      .contrast_all("W_o h^core at z = 0, and 0", linear(closed.core, layer.weights.out_proj), closed.y)
      .identity("gdn_layer_core_projected")
      .erratum();
}

Finding reassociation() {
  const Sequence<double> x = scalar_sequence({1, 1}, {1, 10}, {1, 1}, {0, 0});
  const Sequence<double> random = from_zero_state(drawn_sequence(9, 4, 3));
  const M causal = linear_attention_parallel(x);
  const M reassociated = linear_attention_bidirectional_state_first(x);
  AttentionInputs<double> attention;
  attention.q = random.q;
  attention.k = random.k;
  attention.v = random.v;
  attention.causal = false;
  return Computation()
      .agree("n = 2, q = k = 1, v = (1, 10): causal", causal.transpose().eval(), row_of({1, 11}))
      .agree("Q (K^T V)", reassociated.transpose().eval(), row_of({11, 11}))
      .contrast_all("causal, and reassociated", reassociated, causal)
      .agree("non-causal (Q K^T) V, and Q (K^T V)", linear_attention_bidirectional_scores_first(random),
             linear_attention_bidirectional_state_first(random))
      .contrast_all("with the softmax, and without", softmax_attention(attention),
                    linear_attention_bidirectional_state_first(random))
      .remark("resolution: the last arrow only without a causal mask")
      .identity("linear_attention_reassociated")
      .identity("linear_attention_causal_reassociation")
      .resolved();
}

const Equation kRows[] = {
    {"RMS-5", "002", "L7", "norms", "RMSNorm(x) = x / sqrt(mean x^2 + eps) w, w := 1", V::ok,
     [] {
       return Computation()
           .equal("x = (3, 4), eps = 0: second entry 4 / sqrt(12.5)",
                  rms_norm(row_of({3, 4}), Vec::Ones(2).eval(), 0.0)(0, 1), 4.0 / std::sqrt(12.5))
           .equal("eps = 12.5 inside the root", rms_norm(row_of({3, 4}), Vec::Ones(2).eval(), 12.5)(0, 1),
                  0.8)
           .identity("norm_epsilon_on_sum")
           .holds();
     }},
    {"RMS-6", "002", "L9", "norms", "RMSNorm0(x) = x / sqrt(mean x^2 + eps) (1 + w), w := 0", V::ok,
     [] {
       IdentityDraw<double> draw(1);
       const M x = draw.normal(4, 5);
       const Vec w = draw.normal_vector(5, 0.1);
       return Computation()
           .identical("w, and the plain norm at w' = 1 + w", rms_norm_zero_centred(x, w, 1e-6),
                      rms_norm<double>(x, w + Vec::Ones(5), 1e-6))
           .holds();
     }},
    {"RMS-7", "002", "L11", "norms", "zero-centring keeps weights near 0 and stabilises training",
     V::untestable,
     [] { return Computation().untestable("an effect on training, to be measured in training"); }},
    {"CFG-14", "002", "L13", "qwen3_next", "Gated DeltaNet is 75 % of the layers", V::ok,
     [] {
       const costs::Qwen3NextConfig model;
       return Computation()
           .equal("per cent",
                  100.0 * static_cast<double>(costs::shape(model).delta_layers) /
                      static_cast<double>(model.layers),
                  75.0)
           .holds();
     }},
    {"GDN-44", "002", "L17", "gated_delta_net", "Q, K, V, Z = W_qkzv h; b, a = W_ba h", V::ok_qualified,
     [] {
       const SmallLayer layer;
       return Computation()
           .agree("column vectors W h, and the rows of x W^T",
                  (layer.weights.in_proj_ba * layer.x.transpose()).transpose().eval(),
                  linear(layer.x, layer.weights.in_proj_ba))
           .remark("the order is q, k, v, z (GDN-22)")
           .holds();
     }},
    {"CONV-7", "002", "L21", "short_convolution",
     "X = concat(Q, K, V); Conv1D(X_{t-k+1:t}), k = 4; SiLU; split", V::ok,
     [] {
       IdentityDraw<double> draw(1);
       const M x = draw.normal(6, 2);
       const M kernel = draw.normal(2, 4);
       const M y = short_convolution(x, kernel, {}, empty_convolution_state<double>(4, 2)).y;
       const double sum =
           kernel(1, 0) * x(2, 1) + kernel(1, 1) * x(3, 1) + kernel(1, 2) * x(4, 1) + kernel(1, 3) * x(5, 1);
       return Computation()
           .equal("y of token 5, channel 1: silu(sum_j w_j x_{2+j})", y(5, 1), silu(sum))
           .equal("y of token 0: zero history", y(0, 0), silu(kernel(0, 3) * x(0, 0)))
           .holds();
     }},
    {"ACT-2", "002", "L25", "activations", "sigma = SiLU(x) = x / (1 + e^-x)", V::inconsistent,
     [] {
       return Computation()
           .equal("silu(2)", silu(2.0), 2.0 / (1.0 + std::exp(-2.0)))
           .contrast("silu(2) and the logistic function that L29 needs", silu(2.0), logistic(2.0))
           .remark("resolution: sigma is the logistic function")
           .resolved();
     }},
    {"GDN-45", "002", "L29", "gates", "beta_t = sigma(b_t) in (0, 1)", V::inconsistent,
     [] {
       return finding_of_the_write_strength([](double b) { return write_strength(row_of({b}))(0, 0); });
     }},
    {"GDN-46", "002", "L29", "gates", "alpha_t = e^{g_t}", V::ok,
     [] {
       const SmallLayer layer;
       const M alpha = layer.out.g.array().exp().matrix();
       return Computation()
           .relation("0 < alpha <= 1 in the small layer", alpha.minCoeff() > 0.0 && alpha.maxCoeff() <= 1.0)
           .equal("g = 0: alpha", std::exp(0.0), 1.0)
           .holds();
     }},
    {"GDN-47", "002", "L29", "gates", "g_t = -exp(A_log) softplus(alpha_t + Delta_t)", V::erratum,
     circular_gate},
    {"ACT-3", "002", "L33", "activations", "softplus(x) = log(1 + e^x)", V::ok,
     [] {
       return Computation()
           .equal("softplus(0)", softplus(0.0), std::log(2.0))
           .equal("softplus(1)", softplus(1.0), std::log(1.0 + std::exp(1.0)))
           .equal("softplus(1000), where e^x overflows", softplus(1000.0), 1000.0)
           .equal("softplus(-50)", softplus(-50.0), std::exp(-50.0))
           .holds();
     }},
    {"GDN-48", "002", "L37", "gated_delta_rule", "h = g h_{t-1} + f(Q, K, V, beta)", V::erratum,
     state_update},
    {"GDN-49", "002", "L41", "gated_delta_rule",
     "S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       return Computation()
           .agree("state, and the transposed row recurrence", gated_delta_rule_column(x).state,
                  recurrent<GatedDeltaRule>(x).state)
           .agree("outputs", gated_delta_rule_column(x).o, recurrent<GatedDeltaRule>(x).o)
           .identity("gdn_column_form")
           .holds();
     }},
    {"GDN-50", "002", "L41", "gated_delta_rule",
     "S_t = alpha_t S_{t-1} + beta_t (v_t - alpha_t S_{t-1} k_t) k_t^T", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       return Computation()
           .agree("state, and GDN-49", gated_delta_rule_expanded(x).state, gated_delta_rule_column(x).state)
           .agree("outputs", gated_delta_rule_expanded(x).o, gated_delta_rule_column(x).o)
           .identity("gdn_expanded_form")
           .holds();
     }},
    {"RMS-8", "002", "L45", "norms", "h^out = w h^core / sqrt(mean (h^core)^2 + eps) SiLU(Z)",
     V::ok_qualified, norm_per_head},
    {"GDN-51", "002", "L49", "gated_delta_net", "h_t = W_o h_t^core", V::erratum, projected_vector},
    {"LA-1", "002", "L53", "linear_attention", "O = softmax(Q K^T) V -> (Q K^T) V -> Q (K^T V)", V::ambiguous,
     reassociation},
    {"COST-7", "002", "L53", "costs", "O(n^2) -> O(n)", V::ok_qualified,
     [] {
       const auto quadratic = [](costs::Count n) { return costs::softmax_attention_flops(n, 1, 128, 128); };
       const auto linear_flops = [](costs::Count n) {
         return costs::product({n, costs::recurrent_flops_per_token({})});
       };
       return Computation()
           .count("n^2 d: operations at 2 n over n", quadratic(2048) / quadratic(1024), 4)
           .count("n d^2: operations at 2 n over n", linear_flops(2048) / linear_flops(1024), 2)
           .holds();
     }},
    {"LA-2", "002", "L57", "linear_attention", "o_t = sum_{j <= t} v_j (k_j^T q_t) = (sum v_j k_j^T) q_t",
     V::ok, [] { return parallel_and_recurrent("the sum over j <= t, and the state"); }},
    {"LA-3", "002", "L59", "linear_attention", "o_t = S_t q_t, S_t = S_{t-1} + v_t k_t^T", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       const M S = x.initial_state + x.k.transpose() * x.v;
       return Computation()
           .agree("S after 9 tokens, S_0 + K^T V", recurrent<LinearAttention>(x).state, S)
           .agree("o of the last, S^T q", recurrent<LinearAttention>(x).o.bottomRows(1).eval(),
                  (x.scale * x.q.bottomRows(1) * S).eval())
           .identity("linear_attention_parallel")
           .identity("linear_attention_chunked")
           .holds();
     }},
    {"LA-4", "002", "L61-62", "linear_attention", "linear time; only S is stored", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       return Computation()
           .agree("decode from S alone", decode<LinearAttention>(x).o, recurrent<LinearAttention>(x).o)
           .count("operations of 2000 tokens over 1000",
                  costs::product({2000, costs::recurrent_flops_per_token({})}) /
                      costs::product({1000, costs::recurrent_flops_per_token({})}),
                  2)
           .identity("linear_attention_decode")
           .holds();
     }},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_002_equations
