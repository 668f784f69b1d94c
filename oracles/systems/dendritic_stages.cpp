#include "oracles/systems/dendritic_stages.h"

#include "oracles/systems/instances.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/stage_points.h"

namespace samestate {
namespace {

/// Shapes of a call.
struct Shapes {
  explicit Shapes(const Call& call)
      : s(dendritic_sizes(call)),
        T(call.tokens),
        D(s.model_width),
        keys(s.heads * s.head_width),
        values(s.heads * s.value_width),
        E(s.branches()),
        merged(s.merged_heads()),
        W(s.convolution_width) {}
  const DendriticSizes s;
  const Index T, D, keys, values, E, merged, W;

  [[nodiscard]] TensorSpec tokens(std::string name, Extents of_token,
                                  Content content = Content::activation) const {
    of_token.insert(of_token.begin(), T);
    return {std::move(name), Axis::tokens, std::move(of_token), content};
  }
  [[nodiscard]] TensorSpec weight(std::string name, Index rows, Index columns) const {
    return {std::move(name), Axis::whole, {rows, columns}, Content::weight};
  }
};

/// Step 1, with the pads of v dropped (6).
struct Projections {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    return {{n.tokens("x", {n.D}), n.tokens("mask", {1}, Content::mask), n.weight("q_proj", n.keys, n.D),
             n.weight("k_proj", n.keys, n.D), n.weight("v_proj", n.values, n.D),
             n.weight("g_proj", n.values, n.D), n.weight("b_proj", n.merged, n.D),
             n.weight("a_proj", n.merged, n.D)},
            {n.tokens("q", {n.keys}), n.tokens("k", {n.keys}), n.tokens("v", {n.values}),
             n.tokens("z", {n.values}), n.tokens("b", {n.merged}), n.tokens("a_gate", {n.merged})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>& x = get(inputs, "x");
    Matrix<Scalar> v = linear(x, get(inputs, "v_proj"), points::dendritic_projections["v_proj"]);
    detail::drop_pads(real_tokens(get(inputs, "mask")), v);
    return {{"q", linear(x, get(inputs, "q_proj"), points::dendritic_projections["q_proj"])},
            {"k", linear(x, get(inputs, "k_proj"), points::dendritic_projections["k_proj"])},
            {"v", std::move(v)},
            {"z", linear(x, get(inputs, "g_proj"), points::dendritic_projections["g_proj"])},
            {"b", linear(x, get(inputs, "b_proj"), points::dendritic_projections["b_proj"])},
            {"a_gate", linear(x, get(inputs, "a_proj"), points::dendritic_projections["a_proj"])}};
  }
};

/// Steps 5 and 6 for q or k.
struct Expansion {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    const Index d = n.s.head_width;
    return {{n.tokens("x", {n.keys}),
             n.tokens("mask", {1}, Content::mask),
             {"expansion", Axis::whole, {n.s.heads, n.E * d, d}, Content::weight}},
            {n.tokens("y", {n.E * n.keys})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Shapes n(call);
    const std::vector<bool> real = real_tokens(get(inputs, "mask"));
    std::vector<Matrix<Scalar>> branches =
        detail::expand(get(inputs, "x"), unstacked(get(inputs, "expansion"), n.s.heads), n.s);
    Matrix<Scalar> y(n.T, n.E * n.keys);
    for (Index e = 0; e < n.E; ++e) {
      Matrix<Scalar>& branch = branches[static_cast<std::size_t>(e)];
      detail::drop_pads(real, branch);
      y.middleCols(e * n.keys, n.keys) = branch;
    }
    return {{"y", std::move(y)}};
  }
};

/// Step 7 for q or k: all branches use the same taps.
struct Convolutions {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    const TensorSpec state{"state", Axis::state, {n.E, n.W - 1, n.keys}, Content::zeros};
    return {{n.tokens("x", {n.E * n.keys}), n.weight("kernel", n.keys, n.W), state},
            {n.tokens("y", {n.E * n.keys}), state}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Shapes n(call);
    std::vector<Matrix<Scalar>> states = unstacked(get(inputs, "state"), n.E);
    Matrix<Scalar> y(call.tokens, n.E * n.keys);
    for (Index e = 0; e < n.E; ++e) {
      Matrix<Scalar>& state = states[static_cast<std::size_t>(e)];
      if (n.W == 1) state = empty_convolution_state<Scalar>(1, n.keys);
      const Matrix<Scalar> branch = get(inputs, "x").middleCols(e * n.keys, n.keys);
      Convolved<Scalar> one = short_convolution(branch, get(inputs, "kernel"), Vector<Scalar>(), state);
      y.middleCols(e * n.keys, n.keys) = one.y;
      state = std::move(one.state);
    }
    return {{"y", std::move(y)}, {"state", stacked(states, get(inputs, "state"))}};
  }
};

/// Steps 8 to 14.
struct Rule {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    const DendriticSizes& s = n.s;
    const TensorSpec S{"S", Axis::state, {s.virtual_heads(), s.split().width, s.value_width}, Content::zeros};
    return {{n.tokens("q", {n.E * n.keys}), n.tokens("k", {n.E * n.keys}), n.tokens("v", {n.values}),
             n.tokens("g", {n.merged}, Content::log_decay), n.tokens("beta", {n.merged}, Content::strength),
             n.tokens("mask", {1}, Content::mask),
             n.tokens("scores", {s.heads * s.branch.candidates()}, Content::strength), S},
            {n.tokens("o", {s.virtual_heads() * s.value_width}), S}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Shapes n(call);
    const DendriticSizes& s = n.s;
    const bool compacted = call.form != "masked";
    const std::vector<bool> real = real_tokens(get(inputs, "mask"));
    const std::vector<DendriticRouting<Scalar>> routing = dendritic_routing(s, get(inputs, "scores"));
    std::vector<Matrix<Scalar>> states = unstacked(get(inputs, "S"), s.virtual_heads());
    std::vector<Sequence<Scalar>> heads(states.size());
    for (Index e = 0; e < n.E; ++e) {
      const Matrix<Scalar> q = get(inputs, "q").middleCols(e * n.keys, n.keys);
      const Matrix<Scalar> k = get(inputs, "k").middleCols(e * n.keys, n.keys);
      dendritic_windows(s, e, {q, k, get(inputs, "v"), get(inputs, "g"), get(inputs, "beta")}, routing, real,
                        compacted, states, heads);
    }
    const std::vector<Matrix<Scalar>> parts =
        dendritic_cores(s, heads, routing, compacted, dendritic_rule<Scalar>(call), states);
    Matrix<Scalar> o(n.T, s.virtual_heads() * s.value_width);
    for (std::size_t i = 0; i < parts.size(); ++i)
      o.middleCols(static_cast<Index>(i) * s.value_width, s.value_width) = parts[i];
    return {{"o", std::move(o)}, {"S", stacked(states, get(inputs, "S"))}};
  }
};

/// Steps 7 to 14 for q and k, including the gates: for a kernel that convolves only the branches that a token
/// uses.
struct BranchesToRule {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    const auto state = [&](const char* name) {
      return TensorSpec{name, Axis::state, {n.E, n.W - 1, n.keys}, Content::zeros};
    };
    const Signature rule = Rule::signature(call);
    Signature all{{n.tokens("q_expanded", {n.E * n.keys}),
                   n.tokens("k_expanded", {n.E * n.keys}),
                   n.tokens("v", {n.values}),
                   n.weight("q_conv", n.keys, n.W),
                   n.weight("k_conv", n.keys, n.W),
                   n.tokens("a_gate", {n.merged}),
                   n.tokens("b", {n.merged}),
                   {"A_log", Axis::whole, {1, n.merged}, Content::log_rate},
                   {"dt_bias", Axis::whole, {1, n.merged}, Content::offset},
                   n.tokens("mask", {1}, Content::mask),
                   n.tokens("scores", {n.s.heads * n.s.branch.candidates()}, Content::strength),
                   state("conv_q"),
                   state("conv_k"),
                   rule.inputs.back()},
                  rule.outputs};
    all.outputs.push_back(state("conv_q"));
    all.outputs.push_back(state("conv_k"));
    return all;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const auto convolved = [&](const char* x, const char* kernel, const char* state) {
      return Convolutions::evaluate<Scalar>(
          call, {{"x", get(inputs, x)}, {"kernel", get(inputs, kernel)}, {"state", get(inputs, state)}});
    };
    Tensors<Scalar> q = convolved("q_expanded", "q_conv", "conv_q");
    Tensors<Scalar> k = convolved("k_expanded", "k_conv", "conv_k");
    Tensors<Scalar> behind = inputs;
    behind["q"] = std::move(q["y"]);
    behind["k"] = std::move(k["y"]);
    behind["g"] =
        log_decay(get(inputs, "a_gate"), get_vector(inputs, "A_log"), get_vector(inputs, "dt_bias"));
    behind["beta"] = write_strength(get(inputs, "b"));
    Tensors<Scalar> out = Rule::evaluate(call, behind);
    out["conv_q"] = std::move(q["state"]);
    out["conv_k"] = std::move(k["state"]);
    return out;
  }
};

/// Steps 15 and 16.
struct Mix {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    return {{n.tokens("o", {n.s.virtual_heads() * n.s.value_width}),
             n.tokens("scores", {n.s.heads * n.s.branch.candidates()}, Content::strength)},
            {n.tokens("a", {n.values})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const DendriticSizes s = dendritic_sizes(call);
    std::vector<Matrix<Scalar>> parts;
    for (Index i = 0; i < s.virtual_heads(); ++i)
      parts.push_back(get(inputs, "o").middleCols(i * s.value_width, s.value_width));
    return {{"a", mix_branches(parts, dendritic_routing(s, get(inputs, "scores")), s)}};
  }
};

/// Step 17, with the epsilon of this layer.
struct GatedNorm {
  static Signature signature(const Call& call) {
    const Shapes n(call);
    const Index dv = n.s.value_width;
    return {{n.tokens("x", {n.s.heads, dv}),
             n.tokens("z", {n.s.heads, dv}),
             {"weight", Axis::whole, {dv}, Content::scale}},
            {n.tokens("y", {n.s.heads, dv})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", rms_norm_gated(get(inputs, "x"), get(inputs, "z"), get_vector(inputs, "weight"),
                                 Scalar(static_cast<double>(1e-5F)))}};
  }
};

}  // namespace

DendriticSizes dendritic_sizes(const Call& call) {
  DendriticSizes s;
  s.model_width = call.at("D");
  s.heads = call.at("H");
  s.head_width = call.at("N") * call.at("stride") + call.at("O");  // every choice of windows is valid (7.5)
  s.value_width = call.at("dv");
  s.branch = {call.at("Es") + call.at("K") + call.at("idle"), call.at("Es"), call.at("K")};
  s.windows = call.at("N");
  s.overlap = call.at("O");
  s.convolution_width = call.at("W");
  require_dendritic_sizes(s);
  if (s.branch.candidates() < 1) throw Error("K=0 and idle=0 leave no branch to score; make idle 1");
  return s;
}

LayerStages dendritic_stages(const Call& call) {
  static const Operator projections =
      stage_operator<Projections>("dendritic_attention.projections", "EQUATIONS 7.3, step 1");
  static const Operator expansion =
      stage_operator<Expansion>("dendritic_attention.expansion", "EQUATIONS 7.3, steps 5 and 6");
  static const Operator convolutions = stage_operator<Convolutions>(
      "dendritic_attention.convolutions", "EQUATIONS 7.3, step 7", {{"gather"}}, true);
  static const Operator rule =
      stage_operator<Rule>("dendritic_attention.rule", "EQUATIONS 7.3, steps 8 to 14",
                           {{"masked"}, {"compacted"}, {"chunked", true}}, true);
  static const Operator branches_to_rule = [] {
    Operator row =
        stage_operator<BranchesToRule>("dendritic_attention.branches_to_rule", "EQUATIONS 7.3, steps 7 to 14",
                                       {{"masked"}, {"compacted"}, {"chunked", true}}, true);
    row.late_factors = kKeyLengthFactors;
    return row;
  }();
  static const Operator mix =
      stage_operator<Mix>("dendritic_attention.mix", "EQUATIONS 7.3, steps 15 and 16");
  static const Operator norm =
      stage_operator<GatedNorm>("dendritic_attention.norm", "EQUATIONS 7.3, step 17");
  const Shapes n(call);
  LayerStages out;
  out.taps = {n.tokens("q", {n.keys}),
              n.tokens("k", {n.keys}),
              n.tokens("v", {n.values}),
              n.tokens("z", {n.values}),
              n.tokens("b", {n.merged}),
              n.tokens("a_gate", {n.merged}),
              n.tokens("q_expanded", {n.E, n.keys}),
              n.tokens("k_expanded", {n.E, n.keys}),
              n.tokens("q_convolved", {n.E, n.keys}),
              n.tokens("k_convolved", {n.E, n.keys}),
              n.tokens("v_convolved", {n.values}),
              n.tokens("g", {n.merged}, Content::log_decay),
              n.tokens("beta", {n.merged}, Content::strength),
              n.tokens("o", {n.s.virtual_heads(), n.s.value_width}),
              n.tokens("gated", {n.values})};
  out.stages = {
      stage_of("projections", projections, call,
               {{"x", "x"},
                {"mask", "mask"},
                {"q_proj", "q_proj"},
                {"k_proj", "k_proj"},
                {"v_proj", "v_proj"},
                {"g_proj", "g_proj"},
                {"b_proj", "b_proj"},
                {"a_proj", "a_proj"}},
               {{"q", "q"}, {"k", "k"}, {"v", "v"}, {"z", "z"}, {"b", "b"}, {"a_gate", "a_gate"}}),
      stage_of("expansion of q", expansion, call,
               {{"x", "q"}, {"mask", "mask"}, {"expansion", "q_expansion"}}, {{"y", "q_expanded"}}),
      stage_of("expansion of k", expansion, call,
               {{"x", "k"}, {"mask", "mask"}, {"expansion", "k_expansion"}}, {{"y", "k_expanded"}}),
      stage_of("convolution of q", convolutions, call,
               {{"x", "q_expanded"}, {"kernel", "q_conv"}, {"state", "conv_q"}},
               {{"y", "q_convolved"}, {"state", "conv_q"}}),
      stage_of("convolution of k", convolutions, call,
               {{"x", "k_expanded"}, {"kernel", "k_conv"}, {"state", "conv_k"}},
               {{"y", "k_convolved"}, {"state", "conv_k"}}),
      stage_of("convolution of v", "short_convolution", call,
               {{"C", n.values}, {"W", n.W}, {"bias", 0}, {"activation", 1}},
               {{"x", "v"}, {"kernel", "v_conv"}, {"state", "conv_v"}},
               {{"y", "v_convolved"}, {"state", "conv_v"}}),
      stage_of("gates", "activation_gates", call, {{"H", n.merged}},
               {{"a", "a_gate"}, {"b", "b"}, {"A_log", "A_log"}, {"dt_bias", "dt_bias"}},
               {{"g", "g"}, {"beta", "beta"}}),
      stage_of("windows and rule", rule, call,
               {{"q", "q_convolved"},
                {"k", "k_convolved"},
                {"v", "v_convolved"},
                {"g", "g"},
                {"beta", "beta"},
                {"mask", "mask"},
                {"scores", "scores"},
                {"S", "S"}},
               {{"o", "o"}, {"S", "S"}}),
      // For a kernel that keeps the inputs of its rule.
      stage_of("branches to rule", branches_to_rule, call,
               {{"q_expanded", "q_expanded"},
                {"k_expanded", "k_expanded"},
                {"v", "v_convolved"},
                {"q_conv", "q_conv"},
                {"k_conv", "k_conv"},
                {"a_gate", "a_gate"},
                {"b", "b"},
                {"A_log", "A_log"},
                {"dt_bias", "dt_bias"},
                {"mask", "mask"},
                {"scores", "scores"},
                {"conv_q", "conv_q"},
                {"conv_k", "conv_k"},
                {"S", "S"}},
               {{"o", "o"}, {"S", "S"}, {"conv_q", "conv_q"}, {"conv_k", "conv_k"}}),
      stage_of("mix", mix, call, {{"o", "o"}, {"scores", "scores"}}, {{"a", "a"}}),
      stage_of("norm", norm, call, {{"x", "a"}, {"z", "z"}, {"weight", "o_norm"}}, {{"y", "gated"}}),
      stage_of("output", linear_map(), call, {{"In", n.values}, {"Out", n.D}},
               {{"x", "gated"}, {"weight", "o_proj"}}, {{"y", "y"}})};
  return out;
}

}  // namespace samestate
