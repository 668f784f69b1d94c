#include <algorithm>
#include <numeric>
#include <utility>

#include "oracles/bounds/logistic_complement.h"
#include "oracles/systems/end_to_end.h"
#include "oracles/systems/reversed.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/backward/gates.h"
#include "reference/backward/l2norm.h"
#include "reference/backward/norms.h"
#include "reference/backward/rotary_embedding.h"
#include "reference/backward/short_convolution.h"

/// The backward passes of operators around a matrix recurrence as systems of named tensors: the inputs of the
/// forward call and the cotangents `d.OUTPUT` of its outputs come in, and gradients `d.INPUT` go out. The gradient
/// of a weight is a sum over all sequences of a call (Axis::whole).
namespace samestate {
namespace {

/// 1e-6 as kernels hold it: the nearest fp32 number.
template <class Scalar>
Scalar norm_epsilon() {
  return Scalar(static_cast<double>(1e-6F));
}

struct PlainNormBackward {
  static Signature signature(const Call& call) { return reversed<norm_operators>(call, "rms_norm"); }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    NormGradients<Scalar> out =
        rms_norm_backward(get(x, "x"), get_vector(x, "weight"), norm_epsilon<Scalar>(), get(x, "d.y"));
    return {{"d.x", std::move(out.x)}, {"d.weight", as_row(out.weight)}};
  }
};

struct ZeroCentredNormBackward {
  static Signature signature(const Call& call) {
    return reversed<norm_operators>(call, "zero_centred_rms_norm");
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    NormGradients<Scalar> out = rms_norm_zero_centred_backward(get(x, "x"), get_vector(x, "weight"),
                                                               norm_epsilon<Scalar>(), get(x, "d.y"));
    return {{"d.x", std::move(out.x)}, {"d.weight", as_row(out.weight)}};
  }
};

struct ResidualNormBackward {
  static Signature signature(const Call& call) { return reversed<norm_operators>(call, "residual_rms_norm"); }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    NormGradients<Scalar> out =
        rms_norm_residual_backward(get(x, "x"), get(x, "residual"), get_vector(x, "weight"),
                                   norm_epsilon<Scalar>(), get(x, "d.y"), get(x, "d.sum"));
    return {{"d.residual", out.x}, {"d.x", out.x}, {"d.weight", as_row(out.weight)}};
  }
};

struct GatedNormBackward {
  static Signature signature(const Call& call) { return reversed<norm_operators>(call, "gated_rms_norm"); }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    NormGradients<Scalar> out = rms_norm_gated_backward(get(x, "x"), get(x, "z"), get_vector(x, "weight"),
                                                        norm_epsilon<Scalar>(), get(x, "d.y"));
    return {{"d.x", std::move(out.x)}, {"d.z", std::move(out.z)}, {"d.weight", as_row(out.weight)}};
  }
};

struct GateFirstNormBackward {
  static Signature signature(const Call& call) {
    return reversed<norm_operators>(call, "gate_first_rms_norm");
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    NormGradients<Scalar> out = rms_norm_of_gated_backward(get(x, "x"), get(x, "z"), get_vector(x, "weight"),
                                                           norm_epsilon<Scalar>(), get(x, "d.y"));
    return {{"d.x", std::move(out.x)}, {"d.z", std::move(out.z)}, {"d.weight", as_row(out.weight)}};
  }
};

struct L2NormBackward {
  static Signature signature(const Call& call) { return reversed<norm_operators>(call, "l2norm"); }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    return {{"d.x", l2norm_backward(get(x, "x"), get(x, "d.y"), norm_epsilon<Scalar>())}};
  }
};

struct GatesBackward {
  /// The cotangents of g and beta are in fp32, as the recurrence hands them back.
  static Signature signature(const Call& call) {
    Signature s = reversed<activation_gate_operators>(call, "activation_gates");
    for (TensorSpec& spec : s.inputs) {
      if (spec.name == "d.g") spec.content = Content::log_decay;
      if (spec.name == "d.beta") spec.content = Content::strength;
    }
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& x) {
    LogDecayGradients<Scalar> out =
        log_decay_backward(get(x, "a"), get_vector(x, "A_log"), get_vector(x, "dt_bias"), get(x, "d.g"));
    return {{"d.a", std::move(out.a)},
            {"d.b", write_strength_backward(get(x, "b"), get(x, "d.beta"))},
            {"d.A_log", as_row(out.A_log)},
            {"d.dt_bias", as_row(out.dt_bias)}};
  }
};

struct RotationBackward {
  /// Tables are constants.
  static Signature signature(const Call& call) {
    Signature s = reversed<rotary_embedding_operators>(call, "rotary_embedding");
    std::erase_if(s.outputs, [](const TensorSpec& spec) { return spec.name != "d.x"; });
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& x) {
    const RotaryPairs pairs = call.at("interleaved") != 0 ? RotaryPairs::interleaved : RotaryPairs::halves;
    const RotaryTables<Scalar> tables{get(x, "cosine"), get(x, "sine")};
    return {{"d.x", rotate_backward(get(x, "d.y"), tables, pairs, call.at("H"))}};
  }
};

struct ConvolutionBackward {
  static Signature signature(const Call& call) {
    Signature s = reversed<short_convolution_operators>(call, "short_convolution");
    const auto given = static_cast<Cotangent>(call.at("cotangent"));
    std::erase_if(s.inputs, [&](const TensorSpec& spec) {
      return (spec.name == "d.y" && given == Cotangent::state) ||
             (spec.name == "d.state" && given == Cotangent::o);
    });
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index C = call.at("C"), W = call.at("W");
    const bool biased = call.at("bias") != 0;
    const std::vector<Index> lengths = lengths_of(call, inputs);
    const Index T = std::reduce(lengths.begin(), lengths.end());
    const Vector<Scalar> bias = biased ? get_vector(inputs, "bias") : Vector<Scalar>(Vector<Scalar>::Zero(0));
    ConvolutionGradients<Scalar> all{Matrix<Scalar>(T, C), Matrix<Scalar>::Zero(C, W),
                                     Vector<Scalar>::Zero(C),
                                     Matrix<Scalar>(std::ssize(lengths) * (W - 1), C)};
    Index first = 0;
    for (Index n = 0; n < std::ssize(lengths); ++n) {
      const Index tokens = lengths[static_cast<std::size_t>(n)];
      // A state without rows has lost its width.
      const auto state_of = [&](std::string_view name) -> Matrix<Scalar> {
        if (W == 1) return empty_convolution_state<Scalar>(1, C);
        return get(inputs, name).middleRows(n * (W - 1), W - 1);
      };
      const Matrix<Scalar> d_y = inputs.contains("d.y")
                                     ? Matrix<Scalar>(get(inputs, "d.y").middleRows(first, tokens))
                                     : Matrix<Scalar>(Matrix<Scalar>::Zero(tokens, C));
      const Matrix<Scalar> d_state = inputs.contains("d.state") ? state_of("d.state") : Matrix<Scalar>();
      const ConvolutionGradients<Scalar> one = short_convolution_backward<Scalar>(
          get(inputs, "x").middleRows(first, tokens), get(inputs, "kernel"), bias, state_of("state"), d_y,
          d_state, call.at("activation") != 0);
      all.x.middleRows(first, tokens) = one.x;
      all.state.middleRows(n * (W - 1), W - 1) = one.state;
      all.kernel += one.kernel;
      if (biased) all.bias += one.bias;
      first += tokens;
    }
    Tensors<Scalar> out{
        {"d.x", std::move(all.x)}, {"d.kernel", std::move(all.kernel)}, {"d.state", std::move(all.state)}};
    if (biased) out.emplace("d.bias", as_row(all.bias));
    return out;
  }
};

}  // namespace

std::vector<Operator> gradient_operators() {
  const std::vector<Operator> norms = norm_operators();
  std::vector<Operator> rows{
      reverse_of<PlainNormBackward>(
          norms, "rms_norm", "rms_norm.backward",
          "with n = x r and r = (mean x^2 + 1e-6)^-1/2: d.x = r (d.y w - n mean(n d.y w)), d.w = "
          "sum of d.y n over all rows"),
      reverse_of<ZeroCentredNormBackward>(
          norms, "zero_centred_rms_norm", "zero_centred_rms_norm.backward",
          "that of the norm with weight 1 + w; d.w = sum of d.y n over all rows"),
      reverse_of<ResidualNormBackward>(norms, "residual_rms_norm", "residual_rms_norm.backward",
                                       "d.x = d.residual = that of the norm of x + residual, plus d.sum; d.w "
                                       "= sum of d.y n over all rows"),
      reverse_of<GatedNormBackward>(norms, "gated_rms_norm", "gated_rms_norm.backward",
                                    "that of the norm for d.y silu(z); d.z = d.y rms_norm(x) silu'(z)"),
      reverse_of<GateFirstNormBackward>(
          norms, "gate_first_rms_norm", "gate_first_rms_norm.backward",
          "with d.u that of the norm of u = x silu(z): d.x = d.u silu(z), d.z = d.u x silu'(z)"),
      reverse_of<L2NormBackward>(norms, "l2norm", "l2norm.backward",
                                 "with r = (sum x^2 + 1e-6)^-1/2 and y = x r: d.x = r (d.y - y <y, d.y>)"),
      reverse_of<GatesBackward>(
          activation_gate_operators(), "activation_gates", "activation_gates.backward",
          "d.a = -d.g exp(A_log) sigma(a + dt_bias), d.A_log = sum of d.g g, d.dt_bias = sum "
          "of d.a, d.b = d.beta beta (1 - beta)"),
      reverse_of<RotationBackward>(
          rotary_embedding_operators(), "rotary_embedding", "rotary_embedding.backward",
          "d.x = d.y turned back: (d_i, d_j) -> (d_i cos + d_j sin, d_j cos - d_i sin) of every pair"),
      reverse_of<ConvolutionBackward>(short_convolution_operators(), "short_convolution",
                                      "short_convolution.backward",
                                      "with p the sums, dp = d.y act'(p) and h the state and x: d.h_{t+j} += "
                                      "w_j dp_t, d.w_j = sum of dp_t h_{t+j}, "
                                      "d.bias = sum of dp; d.state joins the last W - 1 rows of d.h")};
  rows.back().parameters.push_back({"cotangent", 0, 0, 2, "which cotangents are given (Cotangent)"});
  // The sums are made again, and each of their products has two in its reverse.
  rows.back().cost = [](const Call& call, const Signature& signature) {
    Cost cost = row_costs::maps(call, signature);
    cost.operations = costs::product({3, cost.operations});
    return cost;
  };
  return rows;
}

}  // namespace samestate
