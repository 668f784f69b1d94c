#include "reference/short_convolution.h"

#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"

namespace samestate {
namespace {

struct Convolution {
  static Signature signature(const Call& call) {
    const Index C = call.at("C");
    const Index W = call.at("W");
    Signature s{{{"x", Axis::tokens, {call.tokens, C}, Content::activation},
                 {"kernel", Axis::whole, {C, W}, Content::weight},
                 {"state", Axis::state, {W - 1, C}, Content::activation}},
                {{"y", Axis::tokens, {call.tokens, C}}, {"state", Axis::state, {W - 1, C}}}};
    if (call.at("bias") != 0) s.inputs.push_back({"bias", Axis::whole, {C}, Content::offset});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Vector<Scalar> bias =
        call.at("bias") != 0 ? get_vector(inputs, "bias") : Vector<Scalar>(Vector<Scalar>::Zero(0));
    // A state without rows has lost its width.
    const Matrix<Scalar> state =
        call.at("W") == 1 ? empty_convolution_state<Scalar>(1, call.at("C")) : get(inputs, "state");
    Convolved<Scalar> out =
        short_convolution(get(inputs, "x"), get(inputs, "kernel"), bias, state, call.at("activation") != 0);
    return {{"y", std::move(out.y)}, {"state", std::move(out.state)}};
  }
};

}  // namespace

std::vector<Operator> short_convolution_operators() {
  // `scatter` adds each input to the W outputs that see it, where the equation gathers: the sums are the
  // same.
  Operator row{"short_convolution",
               "y_t = act(b + sum_j w_j x_{t-W+1+j}), depthwise and causal, the last W - 1 inputs carried",
               {{"C", 32, 1, 65536, "channels"},
                {"W", 4, 1, 16, "width of the kernel in time"},
                {"bias", 0, 0, 1, "1: with a bias"},
                {"activation", 1, 0, 1, "1: the sum passes silu"}},
               {{"gather"}, {"scatter"}},
               true,
               Convolution::signature};
  row.cost = [](const Call& call, const Signature& signature) { return row_costs::maps(call, signature); };
  evaluate_with<Convolution>(row);
  return {std::move(row)};
}

std::vector<NumpyText> short_convolution_numpy() {
  return {{"short_convolution", R"py(def reference(x, size):
    """y_t = act(bias + sum_j w_j x_{t-W+1+j}) of each channel; the last W - 1 inputs are carried"""
    W, T = size["W"], len(x["x"])
    inputs = np.concatenate([x["state"].reshape(W - 1, size["C"]), x["x"]])
    y = x["bias"] if size["bias"] else 0.0
    for j in range(W):
        y = y + x["kernel"][:, j] * inputs[j:j + T]
    if size["activation"]:
        y = y / (1 + np.exp(-y))
    return {"y": y, "state": inputs[T:]}
)py"}};
}

}  // namespace samestate
