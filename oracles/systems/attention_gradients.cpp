#include <cmath>
#include <utility>

#include "oracles/bounds/row_delta.h"
#include "oracles/systems/gated_attention_stages.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/reversed.h"
#include "oracles/systems/row_costs.h"
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

}  // namespace

std::vector<Operator> attention_gradient_operators() {
  Operator attention = reverse_of<AttentionBackward>(
      softmax_attention_operators(), "softmax_attention", "softmax_attention.backward",
      "with p_t the weights: dS_ts = p_ts (d.o_t . v_s - d.o_t . o_t), d.q_t = sum_s dS_ts k_s / sqrt d, d.k_s = "
      "sum_t dS_ts q_t / sqrt d, d.v_s = sum_t p_ts d.o_t");
  // Two products of the forward pass, its scores once more for the LSE and once more in reverse, and four with dP and dS.
  attention.cost = [](const Call& call, const Signature&) {
    return Cost{costs::product({4, costs::causal_attention_flops(call.tokens, call.at("H"), call.at("d"),
                                                                 call.at("dv"))})};
  };
  return {std::move(attention)};
}

}  // namespace samestate
