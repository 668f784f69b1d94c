#include "reference/norms.h"

#include "oracles/systems/rows.h"
#include "reference/l2norm.h"

namespace samestate {
namespace {

const std::vector<Parameter> kNormWidths = {{"H", 2, 1, 512, "rows of a token, each normalised by itself"},
                                            {"D", 32, 1, 16384, "width of a row"}};

/// 1e-6 as kernels hold it: the nearest fp32 number.
template <class Scalar>
Scalar epsilon() {
  return Scalar(static_cast<double>(1e-6F));
}

/// The rows of a token: [T, H, D].
TensorSpec rows(const Call& call, std::string name, Content content = Content::activation) {
  return {std::move(name), Axis::tokens, {call.tokens, call.at("H"), call.at("D")}, content};
}

TensorSpec weight(const Call& call, Content content) {
  return {"weight", Axis::whole, {call.at("D")}, content};
}

struct Plain {
  static Signature signature(const Call& call) {
    return {{rows(call, "x"), weight(call, Content::scale)}, {rows(call, "y")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", rms_norm(get(inputs, "x"), get_vector(inputs, "weight"), epsilon<Scalar>())}};
  }
};

struct ZeroCentred {
  static Signature signature(const Call& call) {
    return {{rows(call, "x"), weight(call, Content::offset)}, {rows(call, "y")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", rms_norm_zero_centred(get(inputs, "x"), get_vector(inputs, "weight"), epsilon<Scalar>())}};
  }
};

struct Residual {
  static Signature signature(const Call& call) {
    return {{rows(call, "x"), rows(call, "residual"), weight(call, Content::offset)},
            {rows(call, "y"), rows(call, "sum")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    ResidualNorm<Scalar> out = rms_norm_residual(get(inputs, "x"), get(inputs, "residual"),
                                                 get_vector(inputs, "weight"), epsilon<Scalar>());
    return {{"y", std::move(out.y)}, {"sum", std::move(out.residual)}};
  }
};

struct Gated {
  static Signature signature(const Call& call) {
    return {{rows(call, "x"), rows(call, "z"), weight(call, Content::scale)}, {rows(call, "y")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", rms_norm_gated(get(inputs, "x"), get(inputs, "z"), get_vector(inputs, "weight"),
                                 epsilon<Scalar>())}};
  }
};

struct GateFirst {
  static Signature signature(const Call& call) { return Gated::signature(call); }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", rms_norm_of_gated(get(inputs, "x"), get(inputs, "z"), get_vector(inputs, "weight"),
                                    epsilon<Scalar>())}};
  }
};

struct L2 {
  static Signature signature(const Call& call) { return {{rows(call, "x")}, {rows(call, "y")}}; }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"y", l2norm(get(inputs, "x"), epsilon<Scalar>())}};
  }
};

/// `fused` is the same expression, with one pass over a row for the sum and one for the rest.
template <class Form>
Operator norm(std::string_view name, std::string_view equation) {
  Operator row{name, equation, kNormWidths, {{"equation"}, {"fused"}}, false, Form::signature};
  evaluate_with<Form>(row);
  row.token_wise = true;
  return row;
}

constexpr std::string_view kPlainText = R"py(def reference(x, size):
    """y = x (mean x^2 + 1e-6)^-1/2 weight, of each row"""
    root = np.sqrt(np.mean(x["x"] ** 2, -1, keepdims=True) + float(np.float32(1e-6)))
    return {"y": x["x"] / root * x["weight"]}
)py";

constexpr std::string_view kZeroCentredText = R"py(def reference(x, size):
    """y = x (mean x^2 + 1e-6)^-1/2 (1 + weight), of each row"""
    root = np.sqrt(np.mean(x["x"] ** 2, -1, keepdims=True) + float(np.float32(1e-6)))
    return {"y": x["x"] / root * (1 + x["weight"])}
)py";

constexpr std::string_view kResidualText = R"py(def reference(x, size):
    """sum = x + residual, y = sum (mean sum^2 + 1e-6)^-1/2 (1 + weight), of each row"""
    total = x["x"] + x["residual"]
    root = np.sqrt(np.mean(total ** 2, -1, keepdims=True) + float(np.float32(1e-6)))
    return {"y": total / root * (1 + x["weight"]), "sum": total}
)py";

constexpr std::string_view kGatedText = R"py(def reference(x, size):
    """y = x (mean x^2 + 1e-6)^-1/2 weight silu(z), of each row"""
    root = np.sqrt(np.mean(x["x"] ** 2, -1, keepdims=True) + float(np.float32(1e-6)))
    return {"y": x["x"] / root * x["weight"] * x["z"] / (1 + np.exp(-x["z"]))}
)py";

constexpr std::string_view kGateFirstText = R"py(def reference(x, size):
    """y = u (mean u^2 + 1e-6)^-1/2 weight with u = x silu(z), of each row"""
    u = x["x"] * x["z"] / (1 + np.exp(-x["z"]))
    root = np.sqrt(np.mean(u ** 2, -1, keepdims=True) + float(np.float32(1e-6)))
    return {"y": u / root * x["weight"]}
)py";

constexpr std::string_view kL2Text = R"py(def reference(x, size):
    """y = x (sum x^2 + 1e-6)^-1/2, of each row"""
    return {"y": x["x"] / np.sqrt(np.sum(x["x"] ** 2, -1, keepdims=True) + float(np.float32(1e-6)))}
)py";

}  // namespace

std::vector<Operator> norm_operators() {
  return {norm<Plain>("rms_norm", "y = x (mean x^2 + 1e-6)^-1/2 w (RMS-5)"),
          norm<ZeroCentred>("zero_centred_rms_norm", "y = x (mean x^2 + 1e-6)^-1/2 (1 + w) (RMS-2, RMS-6)"),
          norm<Residual>("residual_rms_norm", "sum = x + residual, y its zero-centred norm (RMS-4)"),
          norm<Gated>("gated_rms_norm", "y = rms_norm(x) silu(z): norm first, then the gate (RMS-1, RMS-8)"),
          norm<GateFirst>("gate_first_rms_norm", "y = rms_norm(x silu(z)): Mamba-2's order (EQUATIONS 5.1)"),
          norm<L2>("l2norm", "y = x (sum x^2 + 1e-6)^-1/2 (GDN-32)")};
}

std::vector<NumpyText> norm_numpy() {
  return {{"rms_norm", kPlainText},
          {"zero_centred_rms_norm", kZeroCentredText},
          {"residual_rms_norm", kResidualText},
          {"gated_rms_norm", kGatedText},
          {"gate_first_rms_norm", kGateFirstText},
          {"l2norm", kL2Text}};
}

}  // namespace samestate
