#include "reference/gated_delta_step.h"

#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"

namespace samestate {
namespace {

/// The step of one request. The pool of the batch consists of its requests' pools one after another, with
/// slots numbered continuously, like a pool in a server.
struct Step {
  static Signature signature(const Call& call) {
    const Index T = call.tokens;
    const Index P = call.at("P");
    const Index Hk = call.at("Hk");
    const Index Hv = call.at("Hv");
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    if (Hv % Hk != 0) throw Error("Hk=" + std::to_string(Hk) + ": must divide Hv=" + std::to_string(Hv));
    // Keys longer than 1 expand the state, which no model does: without the norm, keys are drawn shorter.
    const Content keys = call.at("l2norm") != 0 ? Content::activation : Content::weight;
    // A recurrence keeps its state in fp32, whatever the format of the data.
    const TensorSpec pool{"pool", Axis::state, {P, Hv, dk, dv}, Content::offset};
    return {{{"q", Axis::tokens, {T, Hk, dk}, keys},
             {"k", Axis::tokens, {T, Hk, dk}, keys},
             {"v", Axis::tokens, {T, Hv, dv}, Content::activation},
             {"a", Axis::tokens, {T, Hv}, Content::activation},
             {"b", Axis::tokens, {T, Hv}, Content::activation},
             {"A_log", Axis::whole, {Hv}, Content::log_rate},
             {"dt_bias", Axis::whole, {Hv}, Content::offset},
             {"slot", Axis::request, {1}, Content::slot, P},
             pool},
            {{"o", Axis::tokens, {T, Hv, dv}}, pool}};
  }

  /// The slot as an index; an invalid number becomes an index that no pool has.
  template <class Scalar>
  static Index slot_of(const Tensors<Scalar>& inputs, Index slots) {
    const Scalar& given = get(inputs, "slot")(0, 0);
    Index slot = kNullSlot;
    while (slot < slots && given != Scalar(static_cast<double>(slot))) ++slot;
    return slot;
  }

  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const GatedDeltaStep<Scalar> x{call.at("Hk"),
                                   get(inputs, "q"),
                                   get(inputs, "k"),
                                   get(inputs, "v"),
                                   get(inputs, "a"),
                                   get(inputs, "b"),
                                   get_vector(inputs, "A_log"),
                                   get_vector(inputs, "dt_bias"),
                                   get(inputs, "pool"),
                                   slot_of(inputs, call.at("P")),
                                   call.at("l2norm") != 0};
    GatedDeltaStepOutput<Scalar> out = gated_delta_step(x, [&](const Sequence<Scalar>& head) {
      return call.form == "expanded" ? gated_delta_rule_expanded(head) : recurrent<GatedDeltaRule>(head);
    });
    return {{"o", std::move(out.o)}, {"pool", std::move(out.pool)}};
  }
};

}  // namespace

std::vector<Operator> gated_delta_step_operators() {
  // `expanded` keeps the state as [dv, dk], like serving kernels, and reads it before it decays.
  Operator row{"gated_delta_step",
               "o, pool[slot] = rule(l2norm(q), l2norm(k), v, -exp(A_log) softplus(a + dt_bias), sigma(b), "
               "pool[slot]); slot -1: o = 0 (EQUATIONS 5.6)",
               {{"P", 3, 1, 1024, "slots of the pool"},
                {"Hk", 2, 1, 64, "key heads"},
                {"Hv", 4, 1, 256, "value heads", "Hk"},
                {"dk", 16, 1, 256, "key width of a head"},
                {"dv", 16, 1, 256, "value width of a head"},
                {"l2norm", 1, 0, 1, "1: q and k are normalised inside"}},
               {{"recurrent"}, {"expanded"}},
               true,
               Step::signature};
  evaluate_with<Step>(row);
  row.late_factors = kKeyLengthFactors;
  row.cost = [](const Call& call, const Signature&) {
    return row_costs::recurrence(call, costs::gated_delta_rule(call.at("dk"), call.at("dv")), call.at("Hv"));
  };
  return {std::move(row)};
}

std::vector<NumpyText> gated_delta_step_numpy() {
  return {{"gated_delta_step", R"py(def reference(x, size):
    """S <- e^g S; S <- S + k (beta (v - S^T k))^T; o = S^T q / sqrt dk of each head, S = pool[slot], with
    g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b); of slot -1 o is zero and nothing is written"""
    Hv, group = size["Hv"], size["Hv"] // size["Hk"]
    g = -np.exp(x["A_log"]) * np.logaddexp(0, x["a"] + x["dt_bias"])
    beta = 1 / (1 + np.exp(-x["b"]))
    q, k = x["q"], x["k"]
    if size["l2norm"]:
        q, k = (y / np.sqrt(np.sum(y * y, -1, keepdims=True) + 1e-6) for y in (q, k))
    o, pool, slot = np.zeros_like(x["v"]), x["pool"].copy(), int(x["slot"][0])
    for t in range(len(o) if slot >= 0 else 0):
        for h in range(Hv):
            S, kt, qt = np.exp(g[t, h]) * pool[slot, h], k[t, h // group], q[t, h // group]
            S = S + np.outer(kt, beta[t, h] * (x["v"][t, h] - S.T @ kt))
            o[t, h] = S.T @ qt / np.sqrt(size["dk"])
            pool[slot, h] = S
    return {"o": o, "pool": pool}
)py"}};
}

}  // namespace samestate
