#include "oracles/systems/rows.h"
#include "reference/gates.h"

namespace samestate {
namespace {

struct Gates {
  static Signature signature(const Call& call) {
    const Index H = call.at("H");
    return {{{"a", Axis::tokens, {call.tokens, H}, Content::activation},
             {"b", Axis::tokens, {call.tokens, H}, Content::activation},
             {"A_log", Axis::whole, {H}, Content::log_rate},
             {"dt_bias", Axis::whole, {H}, Content::offset}},
            {{"g", Axis::tokens, {call.tokens, H}}, {"beta", Axis::tokens, {call.tokens, H}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"g", log_decay(get(inputs, "a"), get_vector(inputs, "A_log"), get_vector(inputs, "dt_bias"))},
            {"beta", write_strength(get(inputs, "b"))}};
  }
};

}  // namespace

std::vector<Operator> activation_gate_operators() {
  // `branchless` is the same expression, with max(x, 0) and e^-|x| where the equation depends on the sign.
  Operator row{"activation_gates",
               "g = -exp(A_log) softplus(a + dt_bias), beta = sigma(b) (GDN-11, GDN-12)",
               {{"H", 4, 1, 4096, "heads"}},
               {{"equation"}, {"branchless"}},
               false,
               Gates::signature};
  evaluate_with<Gates>(row);
  row.token_wise = true;
  return {std::move(row)};
}

std::vector<NumpyText> activation_gate_numpy() {
  return {{"activation_gates", R"py(def reference(x, size):
    """g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b)"""
    g = -np.exp(x["A_log"]) * np.logaddexp(0, x["a"] + x["dt_bias"])
    return {"g": g, "beta": 1 / (1 + np.exp(-x["b"]))}
)py"}};
}

}  // namespace samestate
