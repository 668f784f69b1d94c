#include "reference/channel_gates.h"

#include <cmath>
#include <string>

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/l2norm.h"

/// Rules whose decay is a vector, one number a key channel, as systems of named tensors.
namespace samestate {
namespace {

enum class ChannelGateKind { kimi, pair, linear };

/// Head h of `heads` of a tensor [T, heads, width].
template <class Scalar>
Matrix<Scalar> head_rows(const Matrix<Scalar>& x, Index h, Index heads) {
  Matrix<Scalar> out(x.rows() / heads, x.cols());
  for (Index t = 0; t < out.rows(); ++t) out.row(t) = x.row(t * heads + h);
  return out;
}

template <ChannelGateKind kind>
struct ChannelRule {
  using Rule = std::conditional_t<kind == ChannelGateKind::linear, ChannelLinear, ChannelDelta>;

  static Signature signature(const Call& call) {
    const Index T = call.tokens, Hk = call.at("Hk"), Hv = call.at("Hv"), dk = call.at("dk"), dv = call.at("dv");
    if (Hv % Hk != 0) throw Error("Hk=" + std::to_string(Hk) + ": must divide Hv=" + std::to_string(Hv));
    // Keys longer than 1 expand the state, which no model does: without the norm, keys are drawn shorter.
    const Content keys = kind == ChannelGateKind::linear || call.at("l2norm") != 0 ? Content::activation : Content::weight;
    const TensorSpec state{"state", Axis::state, {Hv, dk, dv}, Content::offset};
    Signature s{{{"q", Axis::tokens, {T, Hk, dk}, keys},
                 {"k", Axis::tokens, {T, Hk, dk}, keys},
                 {"v", Axis::tokens, {T, Hv, dv}, Content::activation},
                 {"g", Axis::tokens, {T, Hv, dk}, Content::log_decay}},
                {{"o", Axis::tokens, {T, Hv, dv}}, state}};
    if (kind == ChannelGateKind::kimi) s.inputs.push_back({"beta", Axis::tokens, {T, Hv, 1}, Content::strength});
    if (kind == ChannelGateKind::pair) {
      s.inputs.push_back({"b", Axis::tokens, {T, Hv, dk}, Content::strength});
      s.inputs.push_back({"w", Axis::tokens, {T, Hv, dv}, Content::strength});
    }
    s.inputs.push_back(state);
    return s;
  }

  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    using std::sqrt;
    const Index Hk = call.at("Hk"), Hv = call.at("Hv"), dk = call.at("dk"), dv = call.at("dv");
    const Matrix<Scalar>& states = get(inputs, "state");
    Matrix<Scalar> o(call.tokens * Hv, dv), last(Hv * dk, dv);
    const auto key = [&](std::string_view name, Index h) {
      Matrix<Scalar> x = head_rows(get(inputs, name), h / (Hv / Hk), Hk);
      return kind != ChannelGateKind::linear && call.at("l2norm") != 0 ? l2norm(x) : x;
    };
    for (Index h = 0; h < Hv; ++h) {
      ChannelSequence<Scalar> x{key("q", h),
                                key("k", h),
                                head_rows(get(inputs, "v"), h, Hv),
                                head_rows(get(inputs, "g"), h, Hv),
                                {},
                                {},
                                Scalar(1) / Scalar(sqrt(Scalar(static_cast<double>(dk)))),
                                states.middleRows(h * dk, dk)};
      if (kind == ChannelGateKind::kimi) x.erase = x.write = head_rows(get(inputs, "beta"), h, Hv);
      if (kind == ChannelGateKind::pair) {
        x.erase = head_rows(get(inputs, "b"), h, Hv);
        x.write = head_rows(get(inputs, "w"), h, Hv);
      }
      const Trajectory<Scalar> out =
          call.form == "chunked" ? channel_chunked<Rule>(x, call.chunk) : channel_recurrent<Rule>(x);
      for (Index t = 0; t < call.tokens; ++t) o.row(t * Hv + h) = out.o.row(t);
      last.middleRows(h * dk, dk) = out.state;
    }
    return {{"o", std::move(o)}, {"state", std::move(last)}};
  }
};

template <ChannelGateKind kind>
Operator channel_row(std::string_view name, std::string_view equation) {
  Operator row{name,
               equation,
               {{"Hk", 1, 1, 256, "key heads"},
                {"Hv", 2, 1, 256, "value heads: each key head serves Hv/Hk of them", "Hk"},
                {"dk", 32, 1, 256, "width of keys and of their decays"},
                {"dv", 32, 1, 256, "width of values"}},
               {{"recurrent"}, {"chunked", true}},
               true,
               ChannelRule<kind>::signature};
  if (kind != ChannelGateKind::linear) row.parameters.push_back({"l2norm", 1, 0, 1, "1: q and k are normalised inside"});
  evaluate_with<ChannelRule<kind>>(row);
  row.late_factors = kind == ChannelGateKind::linear ? 1.0 : kKeyLengthFactors;
  row.cost = [](const Call& call, const Signature&) {
    costs::RecurrenceConfig head = costs::gated_delta_rule(call.at("dk"), call.at("dv"));
    head.delta = kind != ChannelGateKind::linear;
    head.gates = call.at("dk") + (kind == ChannelGateKind::kimi ? 1 : kind == ChannelGateKind::pair ? call.at("dk") + call.at("dv") : 0);
    return row_costs::recurrence(call, head, call.at("Hv"));
  };
  return row;
}

}  // namespace

std::vector<Operator> channel_gate_operators() {
  return {channel_row<ChannelGateKind::kimi>(
              "kimi_delta_attention",
              "S <- Diag(e^g) S; S <- S + k (beta (v - S^T k))^T; o = S^T q / sqrt dk, g of each key channel"),
          channel_row<ChannelGateKind::pair>(
              "gated_delta_net_2",
              "S <- Diag(e^g) S; S <- S + k (w o v - S^T (b o k))^T; o = S^T q / sqrt dk, g and b of each key channel, "
              "w of each value channel"),
          channel_row<ChannelGateKind::linear>("gated_linear_attention",
                                     "S <- Diag(e^g) S + k v^T; o = S^T q / sqrt dk, g of each key channel")};
}

std::vector<NumpyText> channel_gate_numpy() {
  return {{"kimi_delta_attention", R"py(def reference(x, size):
    """S <- Diag(e^g) S; S <- S + k (beta (v - S^T k))^T; o = S^T q / sqrt dk of each head"""
    q, k, S, group = x["q"], x["k"], x["state"].copy(), size["Hv"] // size["Hk"]
    if size["l2norm"]:
        q, k = (y / np.sqrt(np.sum(y * y, -1, keepdims=True) + 1e-6) for y in (q, k))
    o = np.empty_like(x["v"])
    for t in range(len(o)):
        for h in range(size["Hv"]):
            kt, qt = k[t, h // group], q[t, h // group]
            S[h] *= np.exp(x["g"][t, h])[:, None]
            S[h] += np.outer(kt, x["beta"][t, h, 0] * (x["v"][t, h] - S[h].T @ kt))
            o[t, h] = S[h].T @ qt / np.sqrt(size["dk"])
    return {"o": o, "state": S}
)py"},
          {"gated_delta_net_2", R"py(def reference(x, size):
    """S <- Diag(e^g) S; S <- S + k (w o v - S^T (b o k))^T; o = S^T q / sqrt dk of each head"""
    q, k, S, group = x["q"], x["k"], x["state"].copy(), size["Hv"] // size["Hk"]
    if size["l2norm"]:
        q, k = (y / np.sqrt(np.sum(y * y, -1, keepdims=True) + 1e-6) for y in (q, k))
    o = np.empty_like(x["v"])
    for t in range(len(o)):
        for h in range(size["Hv"]):
            kt, qt = k[t, h // group], q[t, h // group]
            S[h] *= np.exp(x["g"][t, h])[:, None]
            S[h] += np.outer(kt, x["w"][t, h] * x["v"][t, h] - S[h].T @ (x["b"][t, h] * kt))
            o[t, h] = S[h].T @ qt / np.sqrt(size["dk"])
    return {"o": o, "state": S}
)py"},
          {"gated_linear_attention", R"py(def reference(x, size):
    """S <- Diag(e^g) S + k v^T; o = S^T q / sqrt dk of each head"""
    S, group = x["state"].copy(), size["Hv"] // size["Hk"]
    o = np.empty_like(x["v"])
    for t in range(len(o)):
        for h in range(size["Hv"]):
            kt, qt = x["k"][t, h // group], x["q"][t, h // group]
            S[h] = np.exp(x["g"][t, h])[:, None] * S[h] + np.outer(kt, x["v"][t, h])
            o[t, h] = S[h].T @ qt / np.sqrt(size["dk"])
    return {"o": o, "state": S}
)py"}};
}

}  // namespace samestate
