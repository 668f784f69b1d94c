#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "oracles/bounds/logistic_complement.h"
#include "oracles/bounds/row_delta.h"
#include "oracles/systems/end_to_end.h"
#include "oracles/systems/gated_attention_stages.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/latent_stages.h"
#include "oracles/systems/reversed.h"
#include "oracles/systems/row_costs.h"
#include "reference/backward/latent_attention.h"
#include "reference/backward/layers/gated_attention.h"
#include "reference/backward/softmax_attention.h"
#include "reference/costs/causal_attention.h"

/// The backward passes of attention. A form is that of the forward pass, whose o the backward pass reads as it was
/// stored; its LSE is kept in fp32.
namespace samestate {
namespace {

struct AttentionBackward {
  /// A call has all tokens of its sequences, so that keys and values, too, have a row for each token.
  static Signature signature(const Call& call) {
    Signature s = reversed<softmax_attention_operators>(call, "softmax_attention");
    for (auto* side : {&s.inputs, &s.outputs}) {
      for (TensorSpec& spec : *side) spec.axis = Axis::tokens;
    }
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    using std::sqrt;
    AttentionInputs<Scalar> x;
    x.q = get(inputs, "q");
    x.k = get(inputs, "k");
    x.v = get(inputs, "v");
    x.heads = call.at("H");
    x.key_heads = call.at("Hkv");
    x.scale = Scalar(1) / Scalar(sqrt(Scalar(static_cast<double>(call.at("d")))));
    AttentionGradients<Scalar> out =
        softmax_attention_backward(x, {attend(call, x), softmax_attention_lse(x)}, get(inputs, "d.o"));
    return {{"d.q", std::move(out.q)}, {"d.k", std::move(out.k)}, {"d.v", std::move(out.v)}};
  }
};

/// Attention within each of several sequences, whose tokens lie one sequence after another.
struct AttentionApart {
  const Call& call;
  const std::vector<Index>& lengths;

  template <class Scalar>
  [[nodiscard]] AttentionInputs<Scalar> part_of(const AttentionInputs<Scalar>& x, Index first,
                                                Index tokens) const {
    AttentionInputs<Scalar> part = x;
    part.q = x.q.middleRows(first, tokens);
    part.k = x.k.middleRows(first, tokens);
    part.v = x.v.middleRows(first, tokens);
    return part;
  }
  template <class Scalar>
  [[nodiscard]] AttentionOutput<Scalar> forward(const AttentionInputs<Scalar>& x) const {
    AttentionOutput<Scalar> all{Matrix<Scalar>(x.tokens(), x.heads * x.value_width()),
                                Matrix<Scalar>(x.tokens(), x.heads)};
    Index first = 0;
    for (const Index tokens : lengths) {
      const AttentionInputs<Scalar> part = part_of(x, first, tokens);
      all.o.middleRows(first, tokens) = attend(call, part);
      all.lse.middleRows(first, tokens) = softmax_attention_lse(part);
      first += tokens;
    }
    return all;
  }
  template <class Scalar>
  [[nodiscard]] AttentionGradients<Scalar> backward(const AttentionInputs<Scalar>& x,
                                                    const AttentionOutput<Scalar>& y,
                                                    const Matrix<Scalar>& d_o) const {
    AttentionGradients<Scalar> all{Matrix<Scalar>(x.q.rows(), x.q.cols()),
                                   Matrix<Scalar>(x.k.rows(), x.k.cols()),
                                   Matrix<Scalar>(x.v.rows(), x.v.cols()),
                                   {}};
    Index first = 0;
    for (const Index tokens : lengths) {
      const AttentionGradients<Scalar> one = softmax_attention_backward<Scalar>(
          part_of(x, first, tokens), {y.o.middleRows(first, tokens), y.lse.middleRows(first, tokens)},
          d_o.middleRows(first, tokens));
      all.q.middleRows(first, tokens) = one.q;
      all.k.middleRows(first, tokens) = one.k;
      all.v.middleRows(first, tokens) = one.v;
      first += tokens;
    }
    return all;
  }
};

struct GatedLayerBackward {
  /// Only `out` has a cotangent: in training nothing reads the cache. Tables are constants.
  static Signature signature(const Call& call) {
    Signature s = reversed<softmax_attention_operators>(call, "gated_attention");
    std::erase_if(s.inputs, [](const TensorSpec& spec) {
      return spec.name == "d.gated" || spec.name == "d.k" || spec.name == "d.v";
    });
    std::erase_if(s.outputs,
                  [](const TensorSpec& spec) { return spec.name == "d.cosine" || spec.name == "d.sine"; });
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const std::vector<Index> lengths = lengths_of(call, inputs);
    GatedAttentionGradients<Scalar> out =
        gated_attention_backward<Scalar>(get(inputs, "hidden"), gated_attention_parameters(call, inputs),
                                         {get(inputs, "cosine"), get(inputs, "sine")}, {},
                                         get(inputs, "d.out"), {}, AttentionApart{call, lengths});
    return {{"d.hidden", std::move(out.hidden)},
            {"d.q_proj", std::move(out.parameters.q_proj)},
            {"d.k_proj", std::move(out.parameters.k_proj)},
            {"d.v_proj", std::move(out.parameters.v_proj)},
            {"d.o_proj", std::move(out.parameters.o_proj)},
            {"d.q_norm", as_row(out.parameters.q_norm)},
            {"d.k_norm", as_row(out.parameters.k_norm)}};
  }
};

struct LatentBackward {
  /// A call has all tokens of its sequences, so that their cache, which is given, has a row for each token too. Tables are
  /// constants.
  static Signature signature(const Call& call) {
    Signature s = reversed<latent_attention_operators>(call, "latent_attention");
    for (auto* side : {&s.inputs, &s.outputs}) {
      for (TensorSpec& spec : *side) {
        if (spec.axis == Axis::prefix) spec.axis = Axis::tokens;
      }
    }
    std::erase_if(s.outputs,
                  [](const TensorSpec& spec) { return spec.name == "d.cos" || spec.name == "d.sin"; });
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const std::vector<Index> lengths = lengths_of(call, inputs);
    const bool turned = call.at("dr") > 0;
    const Matrix<Scalar>& c = get(inputs, "c");
    LatentAttentionGradients<Scalar> out = latent_attention_cached_backward<Scalar>(
        get(inputs, "x"), latent_attention_weights(call, inputs), latent_tables(call, inputs),
        get(inputs, "d.y"), {c, turned ? get(inputs, "kr") : Matrix<Scalar>(c.rows(), 0)},
        AttentionApart{call, lengths});
    Tensors<Scalar> all{{"d.x", std::move(out.x)},
                        {"d.c", std::move(out.past.latent)},
                        {"d.q_up", std::move(out.weights.q_up)},
                        {"d.kv_up", std::move(out.weights.kv_up)},
                        {"d.output", std::move(out.weights.output)}};
    if (turned) all.emplace("d.kr", std::move(out.past.rotary_key));
    if (call.at("q_lora") > 0) {
      all.emplace("d.q_down", std::move(out.weights.q_down));
      all.emplace("d.q_norm", as_row(out.weights.q_norm));
    }
    return all;
  }
};

}  // namespace

std::vector<Operator> attention_gradient_operators() {
  Operator attention = reverse_of<AttentionBackward>(
      softmax_attention_operators(), "softmax_attention", "softmax_attention.backward",
      "with p_t the weights: dS_ts = p_ts (d.o_t . v_s - d.o_t . o_t), d.q_t = sum_s dS_ts k_s / sqrt d, "
      "d.k_s = "
      "sum_t dS_ts q_t / sqrt d, d.v_s = sum_t p_ts d.o_t");
  // Two products of the forward pass, its scores once more for the LSE and once more in reverse, and four with dP and dS.
  attention.cost = [](const Call& call, const Signature&) {
    return Cost{costs::product(
        {4, costs::causal_attention_flops(call.tokens, call.at("H"), call.at("d"), call.at("dv"))})};
  };
  const std::vector<Operator> forward = softmax_attention_operators();
  Operator layer =
      reverse_of<GatedLayerBackward>(forward, "gated_attention", "gated_attention.backward",
                                     "the layer's steps in reverse: output projection, gate, attention, "
                                     "rotation and norm of q and k, their projections; "
                                     "gradients of weights are sums over all tokens");
  layer.cost = [](const Call& call, const Signature& signature) {
    return Cost{costs::sum({costs::product({3, row_costs::maps(call, signature).operations}),
                            costs::product({4, costs::causal_attention_flops(call.tokens, call.at("H"),
                                                                             call.at("d"), call.at("d"))})})};
  };
  Operator latent = reverse_of<LatentBackward>(latent_attention_operators(), "latent_attention",
                                               "latent_attention.backward",
                                               "the layer's steps in reverse, with keys and values restored "
                                               "from the latent: gradients of x through the queries, of "
                                               "the cache, and of weights as sums over all tokens");
  latent.forms = {{"naive"}, {"online", true}};
  latent.cost = [](const Call& call, const Signature& signature) {
    return Cost{
        costs::sum({costs::product({3, row_costs::maps(call, signature).operations}),
                    costs::product({4, costs::causal_attention_flops(
                                           call.tokens, call.at("H"),
                                           costs::sum({call.at("dn"), call.at("dr")}), call.at("dv"))})})};
  };
  return {std::move(attention), std::move(layer), std::move(latent)};
}

}  // namespace samestate
