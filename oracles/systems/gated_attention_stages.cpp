#include "oracles/systems/gated_attention_stages.h"

#include <utility>

#include "oracles/systems/instances.h"
#include "reference/layers/gated_attention.h"

namespace samestate {
namespace {

/// The norm of every head and its rotation, for queries or keys, depending on the size `heads`.
struct NormAndRotation {
  static Signature signature(const Call& call) {
    const Index d = call.at("d");
    const Index pairs = call.at("pairs");
    const Extents heads = {call.at("heads"), d};
    return {{of_tokens(call, "x", heads),
             {"weight", Axis::whole, {d}, Content::offset},
             of_tokens(call, "cosine", {pairs}, Content::cosine),
             of_tokens(call, "sine", {pairs}, Content::sine)},
            {of_tokens(call, "y", heads)}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index heads = call.at("heads");
    const Matrix<Scalar>& rows = get(inputs, "x");
    const Matrix<Scalar> x = rows.template reshaped<Eigen::RowMajor>(call.tokens, heads * rows.cols());
    const Matrix<Scalar> y =
        detail::norm_and_rotate(x, heads, get_vector(inputs, "weight"), Scalar(kGatedAttentionEpsilon),
                                RotaryTables<Scalar>{get(inputs, "cosine"), get(inputs, "sine")});
    return {{"y", y.template reshaped<Eigen::RowMajor>(rows.rows(), rows.cols())}};
  }
};

struct Attended {
  static Signature signature(const Call& call) {
    const Index d = call.at("d");
    const Index keys = call.at("Hkv") * d;
    return {{of_tokens(call, "q", {call.at("H") * d}), of_tokens(call, "k", {keys}),
             of_tokens(call, "v", {keys})},
            {of_tokens(call, "attended", {call.at("H") * d})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    AttentionInputs<Scalar> x;
    x.q = get(inputs, "q");
    x.k = get(inputs, "k");
    x.v = get(inputs, "v");
    x.heads = call.at("H");
    x.key_heads = call.at("Hkv");
    return {{"attended", detail::attended_heads(std::move(x), [&](const AttentionInputs<Scalar>& of) {
               return attend(call, of);
             })}};
  }
};

struct Gate {
  static Signature signature(const Call& call) {
    const Extents heads = {call.at("H"), call.at("d")};
    return {{of_tokens(call, "attended", heads, Content::strength), of_tokens(call, "gate", heads)},
            {of_tokens(call, "gated", heads)}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"gated", detail::gated_heads(get(inputs, "attended"), get(inputs, "gate"))}};
  }
};

/// Attention with the gate applied to its quotient.
struct GatedSums {
  static Signature signature(const Call& call) {
    Signature both = Attended::signature(call);
    both.inputs.push_back(Gate::signature(call).inputs.back());
    both.outputs = Gate::signature(call).outputs;
    return both;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> attended = Attended::evaluate(call, inputs).at("attended");
    const Matrix<Scalar>& gate = get(inputs, "gate");
    return Gate::evaluate<Scalar>(
        call, {{"attended", attended.template reshaped<Eigen::RowMajor>(gate.rows(), gate.cols())},
               {"gate", gate}});
  }
};

}  // namespace

LayerStages gated_attention_stages(const Call& call) {
  static const Operator turned = stage_operator<NormAndRotation>("gated_attention.norm_and_rotation",
                                                                 "RoPE(x (mean x^2 + 1e-6)^-1/2 (1 + w))");
  static const Operator attention = stage_operator<Attended>("gated_attention.attention", "sum_s p_ts v_s",
                                                             {{"prefill"}, {"online", true}});
  static const Operator both = stage_operator<GatedSums>(
      "gated_attention.gated_sums", "(sum_s p_ts v_s) sigma(gate)", {{"prefill"}, {"online", true}});
  static const Operator gate = stage_operator<Gate>("gated_attention.gate", "attended sigma(gate)");
  const Index D = call.at("D");
  const Index H = call.at("H");
  const Index d = call.at("d");
  const Index keys = call.at("Hkv") * d;
  const auto projection = [&](std::string_view name, Index columns, std::string weight, std::string to) {
    return stage_of(name, linear_map(), call, {{"In", D}, {"Out", columns}},
                    {{"x", "hidden"}, {"weight", std::move(weight)}}, {{"y", std::move(to)}});
  };
  const auto norm = [&](std::string_view name, Index heads, StageTensor x, std::string weight,
                        std::string to) {
    return stage_of(name, turned, call, {{"heads", heads}, {"d", d}, {"pairs", call.at("pairs")}},
                    {std::move(x), {"weight", std::move(weight)}, {"cosine", "cosine"}, {"sine", "sine"}},
                    {{"y", std::move(to)}});
  };
  LayerStages out;
  out.taps = {of_tokens(call, "q_gate", {H, 2 * d}), of_tokens(call, "k_projected", {keys}),
              of_tokens(call, "q", {H, d}), of_tokens(call, "attended", {H, d}, Content::strength)};
  out.stages = {
      projection("query and gate", H * 2 * d, "q_proj", "q_gate"),
      projection("keys", keys, "k_proj", "k_projected"), projection("values", keys, "v_proj", "v"),
      norm("norm and rotation of q", H, {"x", "q_gate", 0, d}, "q_norm", "q"),
      norm("norm and rotation of k", call.at("Hkv"), {"x", "k_projected"}, "k_norm", "k"),
      stage_of("attention", attention, call, {{"q", "q"}, {"k", "k"}, {"v", "v"}},
               {{"attended", "attended"}}),
      stage_of("gate", gate, call, {{"attended", "attended"}, {"gate", "q_gate", d, d}},
               {{"gated", "gated"}}),
      // For a kernel that stores only the gated result.
      stage_of("attention and gate", both, call,
               {{"q", "q"}, {"k", "k"}, {"v", "v"}, {"gate", "q_gate", d, d}}, {{"gated", "gated"}}),
      stage_of("output", linear_map(), call, {{"In", H * d}, {"Out", D}},
               {{"x", "gated"}, {"weight", "o_proj"}}, {{"y", "out"}})};
  return out;
}

}  // namespace samestate
