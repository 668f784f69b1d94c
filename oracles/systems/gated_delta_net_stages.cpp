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

template <class Form>
Operator stage_of(std::string_view name, std::string_view equation, std::vector<OperatorForm> forms,
                  bool streams) {
  Operator row{name, equation, {}, std::move(forms), streams, Form::signature};
  evaluate_with<Form>(row);
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
  static const Operator projections = stage_of<Projections>(
      "gated_delta_net.projections", "mixed, z, b, a = W x, by kind", {{"equation"}}, false);
  static const Operator rule =
      stage_of<Rule>("gated_delta_net.rule", "the gated delta rule of all value heads",
                     {{"recurrent"}, {"chunked", true}}, true);
  const GatedDeltaNetShape shape = gated_delta_net_shape(call);
  const Index Hv = shape.value_heads;
  const Index keys = shape.keys();
  const auto of = [&](std::string_view system, std::map<std::string, Index, std::less<>> parameters) {
    const Operator* op = find_operator(system);
    return std::pair{op, Call{std::string(op->forms.front().name), call.tokens, 0, std::move(parameters)}};
  };
  LayerStages out;
  out.taps = {{"mixed", Axis::tokens, {call.tokens, shape.channels()}, Content::activation},
              {"z", Axis::tokens, {call.tokens, shape.values()}, Content::activation},
              {"b", Axis::tokens, {call.tokens, Hv}, Content::activation},
              {"a", Axis::tokens, {call.tokens, Hv}, Content::activation},
              {"convolved", Axis::tokens, {call.tokens, shape.channels()}, Content::activation},
              {"q", Axis::tokens, {call.tokens, shape.key_heads, shape.key_width}, Content::activation},
              {"k", Axis::tokens, {call.tokens, shape.key_heads, shape.key_width}, Content::activation},
              {"g", Axis::tokens, {call.tokens, Hv}, Content::log_decay},
              {"beta", Axis::tokens, {call.tokens, Hv}, Content::strength},
              {"gated", Axis::tokens, {call.tokens, shape.values()}, Content::activation}};
  const auto add = [&](std::string_view name, const Operator* op, Call one, std::vector<StageTensor> reads,
                       std::vector<StageTensor> writes) {
    out.stages.push_back({name, op, std::move(one), std::move(reads), std::move(writes)});
  };
  const auto own = [&](const Operator& op) {
    Call one = call;
    if (op.form(one.form) == nullptr) one.form = op.forms.front().name;
    return one;
  };
  add("projections", &projections, own(projections),
      {{"x", "x"}, {"mask", "mask"}, {"in_proj_qkvz", "in_proj_qkvz"}, {"in_proj_ba", "in_proj_ba"}},
      {{"mixed", "mixed"}, {"z", "z"}, {"b", "b"}, {"a", "a"}});
  const auto [convolution, of_channels] =
      of("short_convolution", {{"C", shape.channels()}, {"W", call.at("W")}, {"bias", 0}, {"activation", 1}});
  add("convolution", convolution, of_channels,
      {{"x", "mixed"}, {"kernel", "conv1d"}, {"state", "convolution"}},
      {{"y", "convolved"}, {"state", "convolution"}});
  const auto [l2norm, of_keys] = of("l2norm", {{"H", shape.key_heads}, {"D", shape.key_width}});
  add("norm of q", l2norm, of_keys, {{"x", "convolved", 0, keys}}, {{"y", "q"}});
  add("norm of k", l2norm, of_keys, {{"x", "convolved", keys, keys}}, {{"y", "k"}});
  const auto [gates, of_heads] = of("activation_gates", {{"H", Hv}});
  add("gates", gates, of_heads, {{"a", "a"}, {"b", "b"}, {"A_log", "A_log"}, {"dt_bias", "dt_bias"}},
      {{"g", "g"}, {"beta", "beta"}});
  add("rule", &rule, own(rule),
      {{"q", "q"},
       {"k", "k"},
       {"v", "convolved", 2 * keys, shape.values()},
       {"g", "g"},
       {"beta", "beta"},
       {"S", "S"}},
      {{"core", "core"}, {"S", "S"}});
  const auto [norm, of_values] = of("gated_rms_norm", {{"H", Hv}, {"D", shape.value_width}});
  add("norm", norm, of_values, {{"x", "core"}, {"z", "z"}, {"weight", "norm"}}, {{"y", "gated"}});
  add("output", &linear_map(), {"equation", call.tokens, 0, {{"In", shape.values()}, {"Out", call.at("D")}}},
      {{"x", "gated"}, {"weight", "out_proj"}}, {{"y", "y"}});
  // Of a kernel that keeps norm and projection in one.
  const auto [norm_and_output, of_layer] =
      of("gated_delta_net_output", {{"D", call.at("D")}, {"Hv", Hv}, {"dv", shape.value_width}});
  add("norm and output", norm_and_output, of_layer,
      {{"core", "core"}, {"z", "z"}, {"norm", "norm"}, {"out_proj", "out_proj"}}, {{"y", "y"}});
  return out;
}

}  // namespace samestate
