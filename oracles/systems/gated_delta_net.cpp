#include "reference/layers/gated_delta_net.h"

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/gated_delta_net_stages.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/stage_points.h"

namespace samestate {
namespace {

/// The layer, with four tensors of interest besides the output: the norm hides errors of scale, so the core
/// and the states are judged as well (EQUATIONS 8.1).
struct GatedDeltaNetLayer {
  static Signature signature(const Call& call) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    const Index D = call.at("D");
    const Index W = call.at("W");
    const Index Hv = shape.value_heads;
    const TensorSpec convolution{"convolution", Axis::state, {W - 1, shape.channels()}, Content::zeros};
    const TensorSpec S{"S", Axis::state, {Hv, shape.key_width, shape.value_width}, Content::zeros};
    return {{{"x", Axis::tokens, {call.tokens, D}, Content::activation},
             {"mask", Axis::tokens, {call.tokens, 1}, Content::mask},
             {"in_proj_qkvz", Axis::whole, {2 * shape.keys() + 2 * shape.values(), D}, Content::weight},
             {"in_proj_ba", Axis::whole, {2 * Hv, D}, Content::weight},
             {"conv1d", Axis::whole, {shape.channels(), W}, Content::weight},
             {"A_log", Axis::whole, {1, Hv}, Content::log_rate},
             {"dt_bias", Axis::whole, {1, Hv}, Content::scale},
             {"norm", Axis::whole, {1, shape.value_width}, Content::scale},
             {"out_proj", Axis::whole, {D, shape.values()}, Content::weight},
             convolution,
             S},
            {{"y", Axis::tokens, {call.tokens, D}},
             {"core", Axis::tokens, {call.tokens, shape.values()}},
             convolution,
             S}};
  }

  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const GatedDeltaNetShape shape = gated_delta_net_shape(call);
    GatedDeltaNetWeights<Scalar> w;
    w.epsilon = Scalar(static_cast<double>(1e-6F));  // as kernels hold it
    w.in_proj_qkvz = get(inputs, "in_proj_qkvz");
    w.in_proj_ba = get(inputs, "in_proj_ba");
    w.conv1d = get(inputs, "conv1d");
    w.A_log = get_vector(inputs, "A_log");
    w.dt_bias = get_vector(inputs, "dt_bias");
    w.norm = get_vector(inputs, "norm");
    w.out_proj = get(inputs, "out_proj");
    GatedDeltaNetCache<Scalar> cache{get(inputs, "convolution"), {}};
    Matrix<Scalar> S = get(inputs, "S");
    for (Index h = 0; h < shape.value_heads; ++h) {
      cache.state.push_back(S.middleRows(h * shape.key_width, shape.key_width));
    }
    const std::vector<bool> real = real_tokens(get(inputs, "mask"));
    const auto run = [&](const Sequence<Scalar>& head) {
      return layer_core<GatedDeltaRule>(head, call.form == "chunked", call.chunk);
    };
    GatedDeltaNetOutput<Scalar> out = gated_delta_net(get(inputs, "x"), w, shape, cache, run, real);
    for (Index h = 0; h < shape.value_heads; ++h) {
      S.middleRows(h * shape.key_width, shape.key_width) = out.cache.state[static_cast<std::size_t>(h)];
    }
    return {{"y", std::move(out.y)},
            {"core", std::move(out.core)},
            {"convolution", std::move(out.cache.convolution)},
            {"S", std::move(S)}};
  }
};

/// The layer after the rule, from a given core: norm, gate, projection. In 16 bits the bound of the whole
/// layer's output is vacuous, because the norm divides by a core that is itself known only roughly; with an
/// injected core it is not.
struct OutputPart {
  static Signature signature(const Call& call) {
    const Index values = call.at("Hv") * call.at("dv");
    return {{{"core", Axis::tokens, {call.tokens, values}, Content::activation},
             {"z", Axis::tokens, {call.tokens, values}, Content::activation},
             {"norm", Axis::whole, {1, call.at("dv")}, Content::scale},
             {"out_proj", Axis::whole, {call.at("D"), values}, Content::weight}},
            {{"y", Axis::tokens, {call.tokens, call.at("D")}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dv = call.at("dv");
    Matrix<Scalar> gated(call.tokens, call.at("Hv") * dv);
    for (Index h = 0; h < call.at("Hv"); ++h) {
      const Matrix<Scalar> core = get(inputs, "core").middleCols(h * dv, dv);
      const Matrix<Scalar> z = get(inputs, "z").middleCols(h * dv, dv);
      gated.middleCols(h * dv, dv) =
          rms_norm_gated(core, z, get_vector(inputs, "norm"), Scalar(static_cast<double>(1e-6F)));
    }
    return {{"y", linear(stored(std::move(gated), points::gated_delta_net_output["gated"]),
                         get(inputs, "out_proj"), points::gated_delta_net_output["out_proj"])}};
  }
};

}  // namespace

std::vector<Operator> gated_delta_net_operators() {
  Operator layer{"gated_delta_net",
                 "y = W_o (norm(rule(l2norm(q), l2norm(k), v, g, beta)) silu(z)), (q, k, v) = conv(W x) "
                 "(EQUATIONS 5.6)",
                 {{"D", 32, 1, 8192, "hidden width"},
                  {"Hk", 2, 1, 64, "key heads"},
                  {"R", 2, 1, 16, "value heads a key head"},
                  {"dk", 16, 1, 256, "key width of a head"},
                  {"dv", 16, 1, 256, "value width of a head"},
                  {"W", 4, 1, 8, "width of the convolution"}},
                 {{"recurrent"}, {"chunked", true}},
                 true,
                 GatedDeltaNetLayer::signature};
  evaluate_with<GatedDeltaNetLayer>(layer);
  layer.late_factors = kKeyLengthFactors;
  layer.cost = [](const Call& call, const Signature& signature) {
    return row_costs::recurrence(call, costs::gated_delta_rule(call.at("dk"), call.at("dv")),
                                 call.at("Hk") * call.at("R"), row_costs::linear_maps(signature));
  };
  Operator output{"gated_delta_net_output",
                  "y = W_o (norm(core) silu(z)), each head's norm by itself (EQUATIONS 5.6, RMS-1, RMS-8)",
                  {{"D", 32, 1, 8192, "hidden width"},
                   {"Hv", 4, 1, 64, "value heads"},
                   {"dv", 16, 1, 256, "value width of a head"}},
                  {{"separate"}, {"fused"}},
                  false,
                  OutputPart::signature};
  evaluate_with<OutputPart>(output);
  output.token_wise = true;
  output.cost = [](const Call& call, const Signature& signature) { return row_costs::maps(call, signature); };
  return {std::move(layer), std::move(output)};
}

}  // namespace samestate
