#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/state_space_forms.h"

namespace samestate {
namespace {

struct ChannelScan {
  static Signature signature(const Call& call) {
    const Index T = call.tokens;
    const Index D = call.at("D");
    const Index N = call.at("N");
    return {{{"u", Axis::tokens, {T, D}, Content::activation},
             {"dt", Axis::tokens, {T, D}, Content::activation},
             {"dt_bias", Axis::whole, {D}, Content::offset},
             {"A_log", Axis::whole, {D, N}, Content::log_rate},
             {"B", Axis::tokens, {T, N}, Content::activation},
             {"C", Axis::tokens, {T, N}, Content::activation},
             {"skip", Axis::whole, {D}, Content::scale},
             {"z", Axis::tokens, {T, D}, Content::activation},
             {"h", Axis::state, {D, N}, Content::activation}},
            {{"out", Axis::tokens, {T, D}}, {"h", Axis::state, {D, N}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const SelectiveScan<Scalar> x{get(inputs, "u"),
                                  time_steps(get(inputs, "dt"), get_vector(inputs, "dt_bias")),
                                  decay_rates(get(inputs, "A_log")),
                                  get(inputs, "B"),
                                  get(inputs, "C"),
                                  get_vector(inputs, "skip"),
                                  get(inputs, "z"),
                                  get(inputs, "h")};
    const auto mode = call.at("hold") != 0 ? Discretisation::zero_order_hold : Discretisation::euler;
    SelectiveScanOutput<Scalar> out =
        call.form == "chunked"    ? selective_scan_chunk_after_chunk(x, mode, call.chunk)
        : call.form == "blelloch" ? selective_scan_blelloch<Scalar, OracleFactors<Scalar>>(x, mode)
                                  : selective_scan_recurrent<Scalar, OracleFactors<Scalar>>(x, mode);
    return {{"out", std::move(out.out)}, {"h", std::move(out.state)}};
  }
};

struct Duality {
  static Signature signature(const Call& call) {
    const Index T = call.tokens;
    const Index H = call.at("H");
    const Index G = call.at("G");
    const Index N = call.at("N");
    const Index P = call.at("P");
    if (H % G != 0) throw Error("G=" + std::to_string(G) + ": must divide H=" + std::to_string(H));
    return {{{"x", Axis::tokens, {T, H * P}, Content::activation},
             {"dt", Axis::tokens, {T, H}, Content::activation},
             {"dt_bias", Axis::whole, {H}, Content::offset},
             {"A_log", Axis::whole, {H}, Content::log_rate},
             {"B", Axis::tokens, {T, G * N}, Content::activation},
             {"C", Axis::tokens, {T, G * N}, Content::activation},
             {"skip", Axis::whole, {H}, Content::scale},
             {"S", Axis::state, {H * P, N}, Content::activation}},
            {{"y", Axis::tokens, {T, H * P}}, {"S", Axis::state, {H * P, N}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const StateSpaceHeads<Scalar> x{get(inputs, "x"),
                                    time_steps(get(inputs, "dt"), get_vector(inputs, "dt_bias")),
                                    decay_rates<Scalar>(get_vector(inputs, "A_log")),
                                    get(inputs, "B"),
                                    get(inputs, "C"),
                                    get_vector(inputs, "skip"),
                                    get(inputs, "S"),
                                    call.at("G")};
    StateSpaceOutput<Scalar> out = state_space_heads(x, [&](const StateSpaceHead<Scalar>& head) {
      return call.form == "chunked" ? state_space_chunk_after_chunk(head, call.chunk)
                                    : state_space_recurrent<Scalar, OracleFactors<Scalar>>(head);
    });
    return {{"y", std::move(out.y)}, {"S", std::move(out.state)}};
  }
};

}  // namespace

std::vector<Operator> state_space_operators() {
  Operator scan{
      "selective_scan",
      "h_t = e^{Delta_t A} h_{t-1} + Bbar_t u_t, out_t = (C_t h_t + D u_t) silu(z_t) (SSM-9, SSM-10)",
      {{"D", 32, 1, 8192, "channels"},
       {"N", 16, 1, 256, "states of a channel"},
       {"hold", 0, 0, 1, "1: zero-order hold, Bbar = (e^{Delta A} - 1) / A B; 0: Euler (E-13)"}},
      {{"recurrent"}, {"chunked", true}, {"blelloch"}},
      true,
      ChannelScan::signature};
  evaluate_with<ChannelScan>(scan);
  // The operations of the tree are not counted.
  scan.cost = [](const Call& call, const Signature&) {
    return call.form == "blelloch" ? Cost{} : row_costs::scan(call, call.at("D"));
  };
  Operator duality{"state_space_duality",
                   "S_t = e^{Delta_t A} S_{t-1} + Delta_t x_t B_t^T, y_t = S_t C_t + D x_t (EQ-08)",
                   {{"H", 4, 1, 256, "heads", "G"},
                    {"G", 2, 1, 256, "groups of heads that share B and C"},
                    {"P", 16, 1, 256, "channels of a head"},
                    {"N", 16, 1, 256, "states of a channel"}},
                   {{"recurrent"}, {"chunked", true}},
                   true,
                   Duality::signature};
  evaluate_with<Duality>(duality);
  duality.cost = [](const Call& call, const Signature&) { return row_costs::duality(call); };
  return {std::move(scan), std::move(duality)};
}

std::vector<NumpyText> state_space_numpy() {
  return {{"selective_scan", R"py(def reference(x, size):
    """h_t = e^{dt A} h_{t-1} + Bbar_t u_t, out_t = (h_t C_t + skip u_t) silu(z_t); A = -exp(A_log), dt after softplus"""
    h, A = x["h"], -np.exp(x["A_log"])
    out = np.empty_like(x["u"])
    for t in range(len(out)):
        dt = np.logaddexp(0, x["dt"][t] + x["dt_bias"])[:, None]
        factor = np.expm1(dt * A) / A if size["hold"] else dt  # zero-order hold, or Euler
        h = np.exp(dt * A) * h + factor * x["B"][t] * x["u"][t][:, None]
        z = x["z"][t]
        out[t] = (h @ x["C"][t] + x["skip"] * x["u"][t]) * z / (1 + np.exp(-z))
    return {"out": out, "h": h}
)py"},
          {"state_space_duality", R"py(def reference(x, size):
    """S_t = e^{dt A} S_{t-1} + dt x_t B_t^T, y_t = S_t C_t + skip x_t of each head; A = -exp(A_log), dt after softplus"""
    H, G, P, N = size["H"], size["G"], size["P"], size["N"]
    S, A = x["S"].reshape(H, P, N), -np.exp(x["A_log"])
    y = np.empty_like(x["x"])
    for t in range(len(y)):
        dt = np.logaddexp(0, x["dt"][t] + x["dt_bias"])
        B, C = (np.repeat(x[name][t].reshape(G, N), H // G, 0) for name in "BC")  # shared by the heads of a group
        xs = x["x"][t].reshape(H, P)
        S = np.exp(dt * A)[:, None, None] * S + (dt[:, None] * xs)[:, :, None] * B[:, None, :]
        y[t] = (np.einsum("hpn,hn->hp", S, C) + x["skip"][:, None] * xs).ravel()
    return {"y": y, "S": S.reshape(H * P, N)}
)py"}};
}

}  // namespace samestate
