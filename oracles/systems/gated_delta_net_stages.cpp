#include "oracles/systems/gated_delta_net_stages.h"

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/stage_points.h"

namespace samestate {
namespace {

/// The input projections, split and brought into flat order (GDN-23, GDN-24).
struct NetProjections {
  static Signature signature(const Call& call) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Index D = call.at("D");
    const Index Hv = shape.value_heads;
    return {{{"x", Axis::tokens, {call.tokens, D}, Content::activation},
             {"mask", Axis::tokens, {call.tokens, 1}, Content::mask},
             {"in_proj_qkvz", Axis::whole, {2 * shape.keys() + 2 * shape.values(), D}, Content::weight},
             {"in_proj_ba", Axis::whole, {2 * Hv, D}, Content::weight}},
            {{"mixed", Axis::tokens, {call.tokens, shape.channels()}},
             {"z", Axis::tokens, {call.tokens, shape.values()}},
             {"b", Axis::tokens, {call.tokens, Hv}},
             {"a", Axis::tokens, {call.tokens, Hv}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    GatedDeltaNetProjections<Scalar> p =
        project_hidden(get(inputs, "x"), get(inputs, "in_proj_qkvz"), get(inputs, "in_proj_ba"),
                       gated_delta_net_shape(call), real_tokens(get(inputs, "mask")));
    return {
        {"mixed", std::move(p.mixed)}, {"z", std::move(p.z)}, {"b", std::move(p.b)}, {"a", std::move(p.a)}};
  }
};

/// The rule of all value heads, from normalised q and k to the norm.
struct Rule {
  static Signature signature(const Call& call) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Index Hv = shape.value_heads;
    const TensorSpec S{"S", Axis::state, {Hv, shape.key_width, shape.value_width}, Content::zeros};
    return {{{"q", Axis::tokens, {call.tokens, shape.keys()}, Content::activation},
             {"k", Axis::tokens, {call.tokens, shape.keys()}, Content::activation},
             {"v", Axis::tokens, {call.tokens, shape.values()}, Content::activation},
             {"g", Axis::tokens, {call.tokens, Hv}, Content::log_decay},
             {"beta", Axis::tokens, {call.tokens, Hv}, Content::strength},
             S},
            {{"core", Axis::tokens, {call.tokens, shape.values()}}, S}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Index dk = shape.key_width;
    const Index dv = shape.value_width;
    const auto run = [&](const Sequence<Scalar>& head) {
      return layer_core<GatedDeltaRule>(head, call.form == "chunked", call.chunk);
    };
    Matrix<Scalar> core(call.tokens, shape.values());
    Matrix<Scalar> S = get(inputs, "S");
    for (Index h = 0; h < shape.value_heads; ++h) {
      const Index from = shape.key_head(h) * dk;
      Sequence<Scalar> head;
      head.q = get(inputs, "q").middleCols(from, dk);
      head.k = get(inputs, "k").middleCols(from, dk);
      head.v = get(inputs, "v").middleCols(h * dv, dv);
      head.g = get(inputs, "g").col(h);
      head.beta = get(inputs, "beta").col(h);
      head.initial_state = S.middleRows(h * dk, dk);
      const Trajectory<Scalar> one = run_value_head(shape, h, std::move(head), run);
      core.middleCols(h * dv, dv) = one.o;
      S.middleRows(h * dk, dk) = one.state;
    }
    return {{"core", std::move(core)}, {"S", std::move(S)}};
  }
};

/// Norms, gates and rule in one.
struct NormsToRule {
  static Signature signature(const Call& call) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Index Hv = shape.value_heads;
    const Signature rule = Rule::signature(call);
    return {{of_tokens(call, "convolved", {shape.channels()}),
             of_tokens(call, "a", {Hv}),
             of_tokens(call, "b", {Hv}),
             {"A_log", Axis::whole, {1, Hv}, Content::log_rate},
             {"dt_bias", Axis::whole, {1, Hv}, Content::scale},
             rule.inputs.back()},
            rule.outputs};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Matrix<Scalar>& convolved = get(inputs, "convolved");
    const Index dk = shape.key_width;
    Matrix<Scalar> q(call.tokens, shape.keys()), k = q;
    for (Index h = 0; h < shape.key_heads; ++h) {
      q.middleCols(h * dk, dk) = stored(l2norm<Scalar>(convolved.middleCols(h * dk, dk)),
                                        points::gated_delta_net_rule["normalised_q"]);
      k.middleCols(h * dk, dk) = stored(l2norm<Scalar>(convolved.middleCols(shape.keys() + h * dk, dk)),
                                        points::gated_delta_net_rule["normalised_k"]);
    }
    return Rule::evaluate<Scalar>(
        call, {{"q", std::move(q)},
               {"k", std::move(k)},
               {"v", convolved.rightCols(shape.values())},
               {"g", log_decay(get(inputs, "a"), get_vector(inputs, "A_log"), get_vector(inputs, "dt_bias"))},
               {"beta", write_strength(get(inputs, "b"))},
               {"S", get(inputs, "S")}});
  }
};

/// Including the convolution before them, as in a kernel that decodes a token in one launch.
struct ConvolutionToRule {
  static Signature signature(const Call& call) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const TensorSpec convolution{
        "convolution", Axis::state, {call.at("W") - 1, shape.channels()}, Content::zeros};
    Signature all = NormsToRule::signature(call);
    all.inputs.front().name = "mixed";
    all.inputs.push_back({"conv1d", Axis::whole, {shape.channels(), call.at("W")}, Content::weight});
    all.inputs.push_back(convolution);
    all.outputs.push_back(convolution);
    return all;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    Convolved<Scalar> qkv = short_convolution(get(inputs, "mixed"), get(inputs, "conv1d"), Vector<Scalar>(),
                                              get(inputs, "convolution"));
    Tensors<Scalar> behind = inputs;
    behind["convolved"] = std::move(qkv.y);
    Tensors<Scalar> out = NormsToRule::evaluate(call, behind);
    out["convolution"] = std::move(qkv.state);
    return out;
  }
};

/// A stage whose l2norms may be applied after a product.
template <class Form>
Operator with_late_factors(std::string_view name, std::string_view equation) {
  Operator row = stage_operator<Form>(name, equation, {{"recurrent"}, {"chunked", true}}, true);
  row.late_factors = kKeyLengthFactors;
  return row;
}

}  // namespace

GatedDeltaNetShape gated_delta_net_shape(const Call& call) {
  GatedDeltaNetShape shape;
  shape.key_heads = call.at("Hk");
  shape.value_heads = call.at("Hk") * call.at("R");
  shape.key_width = call.at("dk");
  shape.value_width = call.at("dv");
  return shape;
}

LayerStages gated_delta_net_stages(const Call& call) {
  static const Operator projections =
      stage_operator<NetProjections>("gated_delta_net.projections", "mixed, z, b, a = W x (EQUATIONS 5.6)");
  static const Operator rule =
      stage_operator<Rule>("gated_delta_net.rule", "the gated delta rule of all value heads (EQUATIONS 5.6)",
                           {{"recurrent"}, {"chunked", true}}, true);
  static const Operator norms_to_rule = with_late_factors<NormsToRule>(
      "gated_delta_net.norms_to_rule", "the rule of l2norm(q), l2norm(k), v and its gates (EQUATIONS 5.6)");
  static const Operator convolution_to_rule = with_late_factors<ConvolutionToRule>(
      "gated_delta_net.convolution_to_rule", "the same behind (q, k, v) = conv(mixed) (EQUATIONS 5.6)");
  const GatedDeltaNetShape shape = gated_delta_net_shape(call);
  const Index D = call.at("D");
  const Index Hv = shape.value_heads;
  const Index keys = shape.keys();
  const Index values = shape.values();
  const auto tokens = [&](std::string name, Extents of_token, Content content = Content::activation) {
    of_token.insert(of_token.begin(), call.tokens);
    return TensorSpec{std::move(name), Axis::tokens, std::move(of_token), content};
  };
  LayerStages out;
  out.taps = {tokens("mixed", {shape.channels()}),
              tokens("z", {values}),
              tokens("b", {Hv}),
              tokens("a", {Hv}),
              tokens("convolved", {shape.channels()}),
              tokens("q", {shape.key_heads, shape.key_width}),
              tokens("k", {shape.key_heads, shape.key_width}),
              tokens("g", {Hv}, Content::log_decay),
              tokens("beta", {Hv}, Content::strength),
              tokens("gated", {values})};
  const Sizes of_keys{{"H", shape.key_heads}, {"D", shape.key_width}};
  out.stages = {
      stage_of("projections", projections, call,
               {{"x", "x"}, {"mask", "mask"}, {"in_proj_qkvz", "in_proj_qkvz"}, {"in_proj_ba", "in_proj_ba"}},
               {{"mixed", "mixed"}, {"z", "z"}, {"b", "b"}, {"a", "a"}}),
      stage_of("convolution", "short_convolution", call,
               {{"C", shape.channels()}, {"W", call.at("W")}, {"bias", 0}, {"activation", 1}},
               {{"x", "mixed"}, {"kernel", "conv1d"}, {"state", "convolution"}},
               {{"y", "convolved"}, {"state", "convolution"}}),
      stage_of("norm of q", "l2norm", call, of_keys, {{"x", "convolved", 0, keys}}, {{"y", "q"}}),
      stage_of("norm of k", "l2norm", call, of_keys, {{"x", "convolved", keys, keys}}, {{"y", "k"}}),
      stage_of("gates", "activation_gates", call, {{"H", Hv}},
               {{"a", "a"}, {"b", "b"}, {"A_log", "A_log"}, {"dt_bias", "dt_bias"}},
               {{"g", "g"}, {"beta", "beta"}}),
      stage_of("rule", rule, call,
               {{"q", "q"},
                {"k", "k"},
                {"v", "convolved", 2 * keys, values},
                {"g", "g"},
                {"beta", "beta"},
                {"S", "S"}},
               {{"core", "core"}, {"S", "S"}}),
      // For a kernel that keeps the inputs of its rule, and for one that keeps the convolved channels too.
      stage_of("norms, gates and rule", norms_to_rule, call,
               {{"convolved", "convolved"},
                {"a", "a"},
                {"b", "b"},
                {"A_log", "A_log"},
                {"dt_bias", "dt_bias"},
                {"S", "S"}},
               {{"core", "core"}, {"S", "S"}}),
      stage_of("convolution to rule", convolution_to_rule, call,
               {{"mixed", "mixed"},
                {"a", "a"},
                {"b", "b"},
                {"A_log", "A_log"},
                {"dt_bias", "dt_bias"},
                {"S", "S"},
                {"conv1d", "conv1d"},
                {"convolution", "convolution"}},
               {{"core", "core"}, {"S", "S"}, {"convolution", "convolution"}}),
      stage_of("norm", "gated_rms_norm", call, {{"H", Hv}, {"D", shape.value_width}},
               {{"x", "core"}, {"z", "z"}, {"weight", "norm"}}, {{"y", "gated"}}),
      stage_of("output", linear_map(), call, {{"In", values}, {"Out", D}},
               {{"x", "gated"}, {"weight", "out_proj"}}, {{"y", "y"}}),
      // For a kernel that fuses norm and projection.
      stage_of("norm and output", "gated_delta_net_output", call,
               {{"D", D}, {"Hv", Hv}, {"dv", shape.value_width}},
               {{"core", "core"}, {"z", "z"}, {"norm", "norm"}, {"out_proj", "out_proj"}}, {{"y", "y"}})};
  return out;
}

}  // namespace samestate
