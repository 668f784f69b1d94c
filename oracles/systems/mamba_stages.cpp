#include "oracles/systems/mamba_stages.h"

#include <utility>

#include "oracles/systems/rows.h"
#include "reference/layers/mamba2.h"

namespace samestate {
namespace {

/// The gate, followed by the norm of each group of the inner width.
struct GroupedNorm {
  static Signature signature(const Call& call) {
    const Index Di = call.at("H") * call.at("P");
    return {{{"y", Axis::tokens, {call.tokens, Di}, Content::activation},
             {"z", Axis::tokens, {call.tokens, Di}, Content::activation},
             {"norm", Axis::whole, {Di}, Content::scale}},
            {{"normed", Axis::tokens, {call.tokens, Di}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return {{"normed", grouped_norm_of_gated(get(inputs, "y"), get(inputs, "z"), get_vector(inputs, "norm"),
                                             Mamba2Weights<Scalar>{}.epsilon, call.at("norm_groups"))}};
  }
};

/// A system of the table in the layer's form and chunk, if it has that form.
Stage stage_in_form(std::string_view name, std::string_view system, const Call& layer, Sizes sizes,
                    std::vector<StageTensor> reads, std::vector<StageTensor> writes) {
  Stage stage = stage_of(name, system, layer, std::move(sizes), std::move(reads), std::move(writes));
  if (stage.op->form(layer.form) == nullptr) return stage;
  stage.call.form = layer.form;
  stage.call.chunk = layer.chunk;
  return stage;
}

TensorSpec tap(const Call& call, std::string name, Index columns) {
  return {std::move(name), Axis::tokens, {call.tokens, columns}, Content::activation};
}

Stage convolution(const Call& call, Index channels, Index first, std::string writes) {
  return stage_of("convolution", "short_convolution", call,
                  {{"C", channels}, {"W", call.at("W")}, {"bias", 1}, {"activation", 1}},
                  {{"x", "projected", first, channels},
                   {"kernel", "conv1d"},
                   {"bias", "conv1d_bias"},
                   {"state", "convolution"}},
                  {{"y", std::move(writes)}, {"state", "convolution"}});
}

}  // namespace

LayerStages mamba_mixer_stages(const Call& call) {
  const Index D = call.at("D");
  const Index Di = call.at("Di");
  const Index N = call.at("N");
  const Index R = call.at("R");
  LayerStages out;
  out.taps = {tap(call, "projected", 2 * Di), tap(call, "u", Di), tap(call, "selected", R + 2 * N),
              tap(call, "dt", Di), tap(call, "gated", Di)};
  out.stages = {
      stage_of("input", linear_map(), call, {{"In", D}, {"Out", 2 * Di}},
               {{"x", "hidden"}, {"weight", "in_proj"}}, {{"y", "projected"}}),
      convolution(call, Di, 0, "u"),
      stage_of("selection", linear_map(), call, {{"In", Di}, {"Out", R + 2 * N}},
               {{"x", "u"}, {"weight", "x_proj"}}, {{"y", "selected"}}),
      stage_of("time steps", linear_map(), call, {{"In", R}, {"Out", Di}},
               {{"x", "selected", 0, R}, {"weight", "dt_proj"}}, {{"y", "dt"}}),
      stage_in_form("scan", "selective_scan", call, {{"D", Di}, {"N", N}, {"hold", call.at("hold")}},
                    {{"u", "u"},
                     {"dt", "dt"},
                     {"dt_bias", "dt_bias"},
                     {"A_log", "A_log"},
                     {"B", "selected", R, N},
                     {"C", "selected", R + N, N},
                     {"skip", "skip"},
                     {"z", "projected", Di, Di},
                     {"h", "h"}},
                    {{"out", "gated"}, {"h", "h"}}),
      stage_of("output", linear_map(), call, {{"In", Di}, {"Out", D}},
               {{"x", "gated"}, {"weight", "out_proj"}}, {{"y", "out"}})};
  return out;
}

LayerStages mamba2_mixer_stages(const Call& call) {
  static const Operator norm =
      stage_operator<GroupedNorm>("mamba2_mixer.norm", "rms_norm(y silu(z)) of each group (EQUATIONS 5.10)");
  const Index D = call.at("D");
  const Index H = call.at("H");
  const Index Di = H * call.at("P");
  const Index states = call.at("G") * call.at("N");
  const Index channels = Di + 2 * states;
  LayerStages out;
  out.taps = {tap(call, "projected", Di + channels + H), tap(call, "convolved", channels), tap(call, "y", Di),
              tap(call, "normed", Di)};
  out.stages = {stage_of("input", linear_map(), call, {{"In", D}, {"Out", Di + channels + H}},
                         {{"x", "hidden"}, {"weight", "in_proj"}}, {{"y", "projected"}}),
                convolution(call, channels, Di, "convolved"),
                stage_in_form("state space", "state_space_duality", call,
                              {{"H", H}, {"G", call.at("G")}, {"P", call.at("P")}, {"N", call.at("N")}},
                              {{"x", "convolved", 0, Di},
                               {"dt", "projected", Di + channels, H},
                               {"dt_bias", "dt_bias"},
                               {"A_log", "A_log"},
                               {"B", "convolved", Di, states},
                               {"C", "convolved", Di + states, states},
                               {"skip", "skip"},
                               {"S", "S"}},
                              {{"y", "y"}, {"S", "S"}}),
                stage_of("gate and norm", norm, call,
                         {{"y", "y"}, {"z", "projected", 0, Di}, {"norm", "norm"}}, {{"normed", "normed"}}),
                stage_of("output", linear_map(), call, {{"In", Di}, {"Out", D}},
                         {{"x", "normed"}, {"weight", "out_proj"}}, {{"y", "out"}})};
  return out;
}

}  // namespace samestate
