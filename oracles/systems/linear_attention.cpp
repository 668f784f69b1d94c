#include "reference/linear_attention.h"

#include "oracles/systems/head_tensors.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"

namespace samestate {
namespace {

const std::vector<Parameter> kHeadWidths = head_widths(64);

template <class Scalar>
Sequence<Scalar> sequence(const Call& call, const Tensors<Scalar>& inputs, Index h) {
  Sequence<Scalar> x;
  x.q = head(inputs, "q", h, call.at("dk"));
  x.k = head(inputs, "k", h, call.at("dk"));
  x.v = head(inputs, "v", h, call.at("dv"));
  return x;
}

struct Bidirectional {
  static Signature signature(const Call& call) {
    return {head_tensors(call), {{"o", Axis::tokens, {call.tokens, call.at("H") * call.at("dv")}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dv = call.at("dv");
    Matrix<Scalar> o(call.tokens, call.at("H") * dv);
    for (Index h = 0; h < call.at("H"); ++h) {
      const Sequence<Scalar> x = sequence(call, inputs, h);
      o.middleCols(h * dv, dv) = call.form == "state_first" ? linear_attention_bidirectional_state_first(x)
                                                            : linear_attention_bidirectional_scores_first(x);
    }
    return {{"o", std::move(o)}};
  }
};

struct Normalised {
  static Signature signature(const Call& call) {
    const Index H = call.at("H");
    const Index keys = H * call.at("dk");
    const Index values = H * call.at("dv");
    return {{{"q", Axis::tokens, {call.tokens, keys}, Content::features},
             {"k", Axis::tokens, {call.tokens, keys}, Content::features},
             {"v", Axis::tokens, {call.tokens, values}, Content::activation},
             {"S", Axis::state, {H, call.at("dk"), call.at("dv")}, Content::zeros},
             {"z", Axis::state, {H, call.at("dk")}, Content::no_sum}},
            {{"o", Axis::tokens, {call.tokens, values}},
             {"S", Axis::state, {H, call.at("dk"), call.at("dv")}},
             {"z", Axis::state, {H, call.at("dk")}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    Matrix<Scalar> o(call.tokens, call.at("H") * dv);
    Matrix<Scalar> S = get(inputs, "S");
    Matrix<Scalar> z = get(inputs, "z");
    for (Index h = 0; h < call.at("H"); ++h) {
      NormalisedState<Scalar> state{S.middleRows(h * dk, dk), z.row(h).transpose()};
      const Sequence<Scalar> x = sequence(call, inputs, h);
      const NormalisedTrajectory<Scalar> out =
          call.form == "chunked" ? linear_attention_normalised_chunked(x, call.chunk, std::move(state))
                                 : linear_attention_normalised(x, std::move(state));
      o.middleCols(h * dv, dv) = out.o;
      S.middleRows(h * dk, dk) = out.state.S;
      z.row(h) = out.state.z.transpose();
    }
    return {{"o", std::move(o)}, {"S", std::move(S)}, {"z", std::move(z)}};
  }
};

}  // namespace

std::vector<Operator> linear_attention_operators() {
  Operator bidirectional{"linear_attention_bidirectional",
                         "O = (Q K^T) V = Q (K^T V), without a mask (LA-1, EQ-10)",
                         kHeadWidths,
                         {{"scores_first"}, {"state_first"}},
                         false,
                         Bidirectional::signature};
  evaluate_with<Bidirectional>(bidirectional);
  Operator normalised{"linear_attention_normalised",
                      "o_t = S_t^T q_t / (z_t . q_t), S_t = S_{t-1} + k_t v_t^T, z_t = z_{t-1} + k_t",
                      kHeadWidths,
                      {{"recurrent"}, {"chunked", true}},
                      true,
                      Normalised::signature};
  evaluate_with<Normalised>(normalised);
  normalised.cost = [](const Call& call, const Signature&) {
    return row_costs::recurrence(call, costs::linear_attention(call.at("dk"), call.at("dv"), true),
                                 call.at("H"));
  };
  return {std::move(bidirectional), std::move(normalised)};
}

std::vector<NumpyText> linear_attention_numpy() {
  return {{"linear_attention_bidirectional", R"py(def reference(x, size):
    """O = (Q K^T) V of each head, without a mask"""
    H, dk, dv = size["H"], size["dk"], size["dv"]
    q, k, v = (np.split(x[name], H, 1) for name in "qkv")
    return {"o": np.concatenate([q[h] @ (k[h].T @ v[h]) for h in range(H)], 1)}
)py"},
          {"linear_attention_normalised", R"py(def reference(x, size):
    """o_t = S_t^T q_t / (z_t . q_t), S_t = S_{t-1} + k_t v_t^T, z_t = z_{t-1} + k_t of each head"""
    H, S, z = size["H"], x["S"], x["z"]
    o = np.empty_like(x["v"])
    for t in range(len(o)):
        q, k, v = (x[name][t].reshape(H, -1) for name in "qkv")
        S = S + k[:, :, None] * v[:, None, :]
        z = z + k
        o[t] = (np.einsum("hkv,hk->hv", S, q) / np.sum(z * q, 1)[:, None]).ravel()
    return {"o": o, "S": S, "z": z}
)py"}};
}

}  // namespace samestate
