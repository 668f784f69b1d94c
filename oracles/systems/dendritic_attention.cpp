#include "reference/layers/dendritic_attention.h"

#include "oracles/systems/dendritic_stages.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/rows.h"

namespace samestate {
namespace {

/// The layer with its routing injected: `scores` replace the probabilities of the candidates, so the choice
/// of branches is exact and the same everywhere (EQUATIONS 8.2); the router is a separate operator.
struct DendriticLayer {
  static Signature signature(const Call& call) {
    const DendriticSizes s = dendritic_sizes(call);
    const Index T = call.tokens;
    const Index D = s.model_width;
    const Index keys = s.heads * s.head_width;
    const Index values = s.heads * s.value_width;
    const Index E = s.branches();
    const Index W = s.convolution_width;
    const TensorSpec conv_q{"conv_q", Axis::state, {E, W - 1, keys}, Content::zeros};
    const TensorSpec conv_k{"conv_k", Axis::state, {E, W - 1, keys}, Content::zeros};
    const TensorSpec conv_v{"conv_v", Axis::state, {W - 1, values}, Content::zeros};
    const TensorSpec S{"S", Axis::state, {s.virtual_heads(), s.split().width, s.value_width}, Content::zeros};
    return {{{"x", Axis::tokens, {T, D}, Content::activation},
             {"mask", Axis::tokens, {T, 1}, Content::mask},
             {"scores", Axis::tokens, {T, s.heads * s.branch.candidates()}, Content::strength},
             {"q_proj", Axis::whole, {keys, D}, Content::weight},
             {"k_proj", Axis::whole, {keys, D}, Content::weight},
             {"v_proj", Axis::whole, {values, D}, Content::weight},
             {"g_proj", Axis::whole, {values, D}, Content::weight},
             {"o_proj", Axis::whole, {D, values}, Content::weight},
             {"b_proj", Axis::whole, {s.merged_heads(), D}, Content::weight},
             {"a_proj", Axis::whole, {s.merged_heads(), D}, Content::weight},
             {"q_conv", Axis::whole, {keys, W}, Content::weight},
             {"k_conv", Axis::whole, {keys, W}, Content::weight},
             {"v_conv", Axis::whole, {values, W}, Content::weight},
             {"A_log", Axis::whole, {1, s.merged_heads()}, Content::log_rate},
             {"dt_bias", Axis::whole, {1, s.merged_heads()}, Content::offset},
             {"o_norm", Axis::whole, {1, s.value_width}, Content::scale},
             {"q_expansion", Axis::whole, {s.heads, E * s.head_width, s.head_width}, Content::weight},
             {"k_expansion", Axis::whole, {s.heads, E * s.head_width, s.head_width}, Content::weight},
             conv_q,
             conv_k,
             conv_v,
             S},
            {{"y", Axis::tokens, {T, D}}, {"a", Axis::tokens, {T, values}}, conv_q, conv_k, conv_v, S}};
  }

  template <class Scalar>
  static DendriticParameters<Scalar> weights(const DendriticSizes& s, const Tensors<Scalar>& inputs) {
    DendriticParameters<Scalar> p;
    p.sizes = s;
    p.q_proj = get(inputs, "q_proj");
    p.k_proj = get(inputs, "k_proj");
    p.v_proj = get(inputs, "v_proj");
    p.g_proj = get(inputs, "g_proj");
    p.o_proj = get(inputs, "o_proj");
    p.b_proj = get(inputs, "b_proj");
    p.a_proj = get(inputs, "a_proj");
    p.router = Matrix<Scalar>::Zero(s.branch.candidates(), s.head_width);  // the router is not evaluated
    p.q_conv = get(inputs, "q_conv");
    p.k_conv = get(inputs, "k_conv");
    p.v_conv = get(inputs, "v_conv");
    p.A_log = get_vector(inputs, "A_log");
    p.dt_bias = get_vector(inputs, "dt_bias");
    p.o_norm = get_vector(inputs, "o_norm");
    const Index rows = s.branches() * s.head_width;
    for (Index h = 0; h < s.heads; ++h) {
      p.q_expansion.push_back(get(inputs, "q_expansion").middleRows(h * rows, rows));
      p.k_expansion.push_back(get(inputs, "k_expansion").middleRows(h * rows, rows));
    }
    p.norm_epsilon = Scalar(static_cast<double>(1e-5F));  // as kernels hold it
    return p;
  }

  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const DendriticSizes s = dendritic_sizes(call);
    DendriticCache<Scalar> cache = empty_dendritic_cache<Scalar>(s);
    if (s.convolution_width > 1) {
      cache.conv_q = unstacked(get(inputs, "conv_q"), s.branches());
      cache.conv_k = unstacked(get(inputs, "conv_k"), s.branches());
      cache.conv_v = get(inputs, "conv_v");
    }
    cache.state = unstacked(get(inputs, "S"), s.virtual_heads());
    const std::vector<DendriticRouting<Scalar>> injected = dendritic_routing(s, get(inputs, "scores"));
    DendriticOptions<Scalar> options;
    options.compacted = call.form != "masked";
    options.routing = &injected;
    options.real = real_tokens(get(inputs, "mask"));
    DendriticResult<Scalar> out = dendritic_attention_by(dendritic_rule<Scalar>(call), weights(s, inputs),
                                                         get(inputs, "x"), std::move(cache), options);
    return {{"y", std::move(out.output)},
            {"a", std::move(out.a)},
            {"conv_q", stacked(out.cache.conv_q, get(inputs, "conv_q"))},
            {"conv_k", stacked(out.cache.conv_k, get(inputs, "conv_k"))},
            {"conv_v", std::move(out.cache.conv_v)},
            {"S", stacked(out.cache.state, get(inputs, "S"))}};
  }
};

}  // namespace

std::vector<Operator> dendritic_attention_operators() {
  Operator layer{"dendritic_attention",
                 "the dendritic layer with injected routing: EQUATIONS 7.3, steps 1 and 4 to 18",
                 {{"D", 24, 1, 8192, "hidden width"},
                  {"H", 2, 1, 32, "heads"},
                  {"N", 2, 1, 16, "windows of a head"},
                  {"stride", 5, 1, 128, "channels from one window to the next"},
                  {"O", 2, 0, 128, "channels that neighbours share"},
                  {"dv", 8, 1, 256, "value width of a head"},
                  {"Es", 1, 0, 8, "shared branches"},
                  {"K", 2, 0, 8, "branches chosen"},
                  {"idle", 1, 0, 16, "branches left over"},
                  {"W", 4, 1, 8, "width of the convolutions"}},
                 {{"masked"}, {"compacted"}, {"chunked", true}},
                 true,
                 DendriticLayer::signature};
  evaluate_with<DendriticLayer>(layer);
  layer.late_factors = kKeyLengthFactors;
  return {std::move(layer)};
}

}  // namespace samestate
