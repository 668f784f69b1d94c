#include "oracles/systems/retnet_stages.h"

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/stage_points.h"
#include "reference/layers/multi_scale_retention.h"

namespace samestate {
namespace {

struct Keys {
  static Signature signature(const Call& call) {
    const Index keys = call.at("H") * call.at("dk");
    const TensorSpec position{"position", Axis::state, {1, 1}, Content::no_count};
    return {{of_tokens(call, "x", {call.at("D")}),
             {"q_proj", Axis::whole, {keys, call.at("D")}, Content::weight},
             {"k_proj", Axis::whole, {keys, call.at("D")}, Content::weight},
             position},
            {of_tokens(call, "q", {keys}), of_tokens(call, "k", {keys}), position}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index first = tokens_before(get(inputs, "position"));
    RotatedKeys<Scalar> keys =
        rotated_keys(get(inputs, "x"), get(inputs, "q_proj"), get(inputs, "k_proj"), call.at("H"), first);
    return {{"q", std::move(keys.q)},
            {"k", std::move(keys.k)},
            {"position", tokens_after<Scalar>(first, call.tokens)}};
  }
};

struct Core {
  static Signature signature(const Call& call) {
    const Index H = call.at("H");
    const TensorSpec S{"S", Axis::state, {H, call.at("dk"), call.at("dv")}, Content::zeros};
    return {{of_tokens(call, "q", {H * call.at("dk")}), of_tokens(call, "k", {H * call.at("dk")}),
             of_tokens(call, "v", {H * call.at("dv")}), S},
            {of_tokens(call, "core", {H * call.at("dv")}), S}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    Matrix<Scalar> core(call.tokens, call.at("H") * dv);
    Matrix<Scalar> S = get(inputs, "S");
    for (Index h = 0; h < call.at("H"); ++h) {
      const Sequence<Scalar> x = core_sequence<Scalar>(
          get(inputs, "q").middleCols(h * dk, dk), get(inputs, "k").middleCols(h * dk, dk),
          get(inputs, "v").middleCols(h * dv, dv), h, S.middleRows(h * dk, dk));
      const Trajectory<Scalar> one = layer_core<Retention>(x, call.form == "chunked", call.chunk);
      core.middleCols(h * dv, dv) = stored(one.o, points::multi_scale_retention_core["core"]);
      S.middleRows(h * dk, dk) = one.state;
    }
    return {{"core", std::move(core)}, {"S", std::move(S)}};
  }
};

struct GatedNorm {
  static Signature signature(const Call& call) {
    const Index values = call.at("H") * call.at("dv");
    return {{of_tokens(call, "core", {values}), of_tokens(call, "g", {values})},
            {of_tokens(call, "gated", {values})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dv = call.at("dv");
    const Matrix<Scalar>& core = get(inputs, "core");
    Matrix<Scalar> normed(core.rows(), core.cols());
    for (Index h = 0; h < call.at("H"); ++h) {
      normed.middleCols(h * dv, dv) =
          retention_norm<Scalar>(core.middleCols(h * dv, dv), Scalar(kRetentionNormEpsilon));
    }
    return {{"gated", gated_retention(normed, get(inputs, "g"))}};
  }
};

}  // namespace

LayerStages multi_scale_retention_stages(const Call& call) {
  static const Operator keys = stage_operator<Keys>(
      "multi_scale_retention.keys", "q = rot(W_q x), k = rot(W_k x dk^-1/2)", {{"equation"}}, true);
  static const Operator core = stage_operator<Core>("multi_scale_retention.core", "retention of all heads",
                                                    {{"recurrent"}, {"chunked", true}}, true);
  static const Operator norm = stage_operator<GatedNorm>("multi_scale_retention.norm", "norm(core) silu(g)");
  const Index D = call.at("D");
  const Index H = call.at("H");
  const Index values = H * call.at("dv");
  LayerStages out;
  out.taps = {of_tokens(call, "q", {H, call.at("dk")}), of_tokens(call, "k", {H, call.at("dk")}),
              of_tokens(call, "v", {values}), of_tokens(call, "g", {values}),
              of_tokens(call, "gated", {values})};
  out.stages = {stage_of("queries and keys", keys, call,
                         {{"x", "x"}, {"q_proj", "q_proj"}, {"k_proj", "k_proj"}, {"position", "position"}},
                         {{"q", "q"}, {"k", "k"}, {"position", "position"}}),
                stage_of("values", linear_map(), call, {{"In", D}, {"Out", values}},
                         {{"x", "x"}, {"weight", "v_proj"}}, {{"y", "v"}}),
                stage_of("gate", linear_map(), call, {{"In", D}, {"Out", values}},
                         {{"x", "x"}, {"weight", "g_proj"}}, {{"y", "g"}}),
                stage_of("retention", core, call, {{"q", "q"}, {"k", "k"}, {"v", "v"}, {"S", "S"}},
                         {{"core", "core"}, {"S", "S"}}),
                stage_of("norm and gate", norm, call, {{"core", "core"}, {"g", "g"}}, {{"gated", "gated"}}),
                stage_of("output", linear_map(), call, {{"In", values}, {"Out", D}},
                         {{"x", "gated"}, {"weight", "out_proj"}}, {{"y", "y"}})};
  return out;
}

}  // namespace samestate
