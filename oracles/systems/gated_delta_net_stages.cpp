#include "oracles/systems/gated_delta_net_stages.h"

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/rows.h"

namespace samestate {
namespace {

/// The input projections, split and brought into flat order (GDN-23, GDN-24).
struct Projections {
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

/// The rule of all value heads, between q and k that are normalised and the norm.
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
      stage_operator<Projections>("gated_delta_net.projections", "mixed, z, b, a = W x (EQUATIONS 5.6)");
  static const Operator rule =
      stage_operator<Rule>("gated_delta_net.rule", "the gated delta rule of all value heads (EQUATIONS 5.6)",
                           {{"recurrent"}, {"chunked", true}}, true);
  const GatedDeltaNetShape shape = gated_delta_net_shape(call);
  const Index D = call.at("D");
  const Index Hv = shape.value_heads;
  const Index keys = shape.keys();
  const Index values = shape.values();
  const auto tokens = [&](std::string name, std::vector<Index> of_token,
                          Content content = Content::activation) {
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
      stage_of("norm", "gated_rms_norm", call, {{"H", Hv}, {"D", shape.value_width}},
               {{"x", "core"}, {"z", "z"}, {"weight", "norm"}}, {{"y", "gated"}}),
      stage_of("output", linear_map(), call, {{"In", values}, {"Out", D}},
               {{"x", "gated"}, {"weight", "out_proj"}}, {{"y", "y"}}),
      // Of a kernel that keeps norm and projection in one.
      stage_of("norm and output", "gated_delta_net_output", call,
               {{"D", D}, {"Hv", Hv}, {"dv", shape.value_width}},
               {{"core", "core"}, {"z", "z"}, {"norm", "norm"}, {"out_proj", "out_proj"}}, {{"y", "y"}})};
  return out;
}

}  // namespace samestate
