#include "reference/layers/mamba.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/state_space_forms.h"
#include "reference/layers/mamba2.h"

namespace samestate {
namespace {

struct Mixer {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    const Index Di = call.at("Di");
    const Index N = call.at("N");
    const Index R = call.at("R");
    const Index W = call.at("W");
    return {{{"hidden", Axis::tokens, {call.tokens, D}, Content::activation},
             {"in_proj", Axis::whole, {2 * Di, D}, Content::weight},
             {"conv1d", Axis::whole, {Di, W}, Content::weight},
             {"conv1d_bias", Axis::whole, {Di}, Content::offset},
             {"x_proj", Axis::whole, {R + 2 * N, Di}, Content::weight},
             {"dt_proj", Axis::whole, {Di, R}, Content::weight},
             {"dt_bias", Axis::whole, {Di}, Content::offset},
             {"A_log", Axis::whole, {Di, N}, Content::log_rate},
             {"skip", Axis::whole, {Di}, Content::scale},
             {"out_proj", Axis::whole, {D, Di}, Content::weight},
             {"convolution", Axis::state, {W - 1, Di}, Content::activation},
             {"h", Axis::state, {Di, N}, Content::activation}},
            {{"out", Axis::tokens, {call.tokens, D}},
             {"convolution", Axis::state, {W - 1, Di}},
             {"h", Axis::state, {Di, N}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    MambaWeights<Scalar> w;
    w.in_proj = get(inputs, "in_proj");
    w.conv1d = get(inputs, "conv1d");
    w.conv1d_bias = get_vector(inputs, "conv1d_bias");
    w.x_proj = get(inputs, "x_proj");
    w.dt_proj = get(inputs, "dt_proj");
    w.dt_bias = get_vector(inputs, "dt_bias");
    w.A_log = get(inputs, "A_log");
    w.skip = get_vector(inputs, "skip");
    w.out_proj = get(inputs, "out_proj");
    w.discretisation = call.at("hold") != 0 ? Discretisation::zero_order_hold : Discretisation::euler;
    MambaOutput<Scalar> out = mamba(
        get(inputs, "hidden"), w, MambaCache<Scalar>{get(inputs, "convolution"), get(inputs, "h")},
        [&](const SelectiveScan<Scalar>& x, Discretisation mode) {
          return call.form == "chunked" ? selective_scan_chunk_after_chunk(x, mode, call.chunk)
                                        : selective_scan_recurrent<Scalar, OracleFactors<Scalar>>(x, mode);
        });
    return {{"out", std::move(out.out)},
            {"convolution", std::move(out.cache.convolution)},
            {"h", std::move(out.cache.state)}};
  }
};

struct Mixer2 {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    const Index H = call.at("H");
    const Index G = call.at("G");
    const Index N = call.at("N");
    const Index W = call.at("W");
    const Index Di = H * call.at("P");
    const Index channels = Di + 2 * G * N;
    if (H % G != 0) throw Error("G=" + std::to_string(G) + ": must divide H=" + std::to_string(H));
    if (Di % call.at("norm_groups") != 0) {
      throw Error("norm_groups=" + std::to_string(call.at("norm_groups")) +
                  ": must divide H P=" + std::to_string(Di));
    }
    return {{{"hidden", Axis::tokens, {call.tokens, D}, Content::activation},
             {"in_proj", Axis::whole, {Di + channels + H, D}, Content::weight},
             {"conv1d", Axis::whole, {channels, W}, Content::weight},
             {"conv1d_bias", Axis::whole, {channels}, Content::offset},
             {"dt_bias", Axis::whole, {H}, Content::offset},
             {"A_log", Axis::whole, {H}, Content::log_rate},
             {"skip", Axis::whole, {H}, Content::scale},
             {"norm", Axis::whole, {Di}, Content::scale},
             {"out_proj", Axis::whole, {D, Di}, Content::weight},
             {"convolution", Axis::state, {W - 1, channels}, Content::activation},
             {"S", Axis::state, {Di, N}, Content::activation}},
            {{"out", Axis::tokens, {call.tokens, D}},
             {"convolution", Axis::state, {W - 1, channels}},
             {"S", Axis::state, {Di, N}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    Mamba2Weights<Scalar> w;
    w.groups = call.at("G");
    w.in_proj = get(inputs, "in_proj");
    w.conv1d = get(inputs, "conv1d");
    w.conv1d_bias = get_vector(inputs, "conv1d_bias");
    w.dt_bias = get_vector(inputs, "dt_bias");
    w.A_log = get_vector(inputs, "A_log");
    w.skip = get_vector(inputs, "skip");
    w.norm = get_vector(inputs, "norm");
    w.out_proj = get(inputs, "out_proj");
    w.norm_groups = call.at("norm_groups");
    Mamba2Output<Scalar> out =
        mamba2(get(inputs, "hidden"), w, Mamba2Cache<Scalar>{get(inputs, "convolution"), get(inputs, "S")},
               [&](const StateSpaceHead<Scalar>& head) {
                 return call.form == "chunked" ? state_space_chunk_after_chunk(head, call.chunk)
                                               : state_space_recurrent<Scalar, OracleFactors<Scalar>>(head);
               });
    return {{"out", std::move(out.out)},
            {"convolution", std::move(out.cache.convolution)},
            {"S", std::move(out.cache.state)}};
  }
};

}  // namespace

std::vector<Operator> mamba_operators() {
  Operator mixer{"mamba_mixer",
                 "in_proj, convolution, x_proj, dt_proj, selective scan with skip and gate, out_proj (SSM-5, "
                 "SSM-6, SSM-11)",
                 {{"D", 16, 1, 4096, "model width"},
                  {"Di", 24, 1, 8192, "inner width"},
                  {"N", 4, 1, 256, "states of a channel"},
                  {"R", 2, 1, 512, "rank of the time step"},
                  {"W", 4, 1, 16, "width of the convolution"},
                  {"hold", 0, 0, 1, "1: zero-order hold; 0: Euler (E-13)"}},
                 {{"recurrent"}, {"chunked", true}},
                 true,
                 Mixer::signature};
  evaluate_with<Mixer>(mixer);
  mixer.cost = [](const Call& call, const Signature& signature) {
    return row_costs::scan(call, call.at("Di"), row_costs::linear_maps(signature));
  };
  Operator mixer2{"mamba2_mixer",
                  "in_proj, convolution over (x, B, C), state space duality, RMSNorm(y silu(z)), out_proj "
                  "(EQUATIONS 5.10)",
                  {{"D", 16, 1, 4096, "model width"},
                   {"H", 4, 1, 256, "heads", "G"},
                   {"G", 2, 1, 256, "groups of heads that share B and C"},
                   {"P", 8, 1, 256, "channels of a head"},
                   {"N", 8, 1, 256, "states of a channel"},
                   {"W", 4, 1, 16, "width of the convolution"},
                   {"norm_groups", 1, 1, 64, "equal parts of the inner width with a mean each"}},
                  {{"recurrent"}, {"chunked", true}},
                  true,
                  Mixer2::signature};
  evaluate_with<Mixer2>(mixer2);
  mixer2.cost = [](const Call& call, const Signature& signature) {
    return row_costs::duality(call, row_costs::linear_maps(signature));
  };
  return {std::move(mixer), std::move(mixer2)};
}

}  // namespace samestate
