#include "reference/retnet.h"

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/head_tensors.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/retnet_stages.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/layers/multi_scale_retention.h"
#include "reference/retention.h"

namespace samestate {
namespace {

/// As in RetNet-13B. With one more head gamma = 1 - 2^-25 is not an fp32 number.
constexpr Index kMostHeads = 20;

const std::vector<Parameter> kWidths = head_widths(kMostHeads);

/// gamma of head h, which is an fp32 number for every head that the rows allow.
template <class Scalar>
Scalar decay_of(Index h) {
  return Scalar(1) - Scalar(std::ldexp(1.0, static_cast<int>(-5 - h)));
}

/// Each form divides a row by its own scale, and the norm without epsilon removes it again (EQ-11), so the
/// forms can only be compared after the norm.
struct NormalisedRetention {
  static Signature signature(const Call& call) {
    return {head_tensors(call), {{"o", Axis::tokens, {call.tokens, call.at("H") * call.at("dv")}}}};
  }
  template <class Scalar>
  static Matrix<Scalar> one_head(const Call& call, const Matrix<Scalar>& q, const Matrix<Scalar>& k,
                                 const Matrix<Scalar>& v, const Scalar& gamma) {
    if (call.form != "chunked") return normalised_retention_parallel(q, k, v, gamma);
    if (!associates_otherwise<Scalar>()) return normalised_retention_chunked(q, k, v, gamma, call.chunk);
    NormalisedRetentionState<Scalar> state{Matrix<Scalar>::Zero(k.cols(), v.cols())};
    return normalised_retention_recurrent(q, k, v, gamma, state);
  }
  /// The norm without epsilon of a row that a correct kernel may compute as zero, from terms that cancel, is
  /// 0 / 0.
  template <class Scalar>
  static Matrix<Scalar> norm(const Matrix<Scalar>& core) {
    Matrix<Scalar> o = retention_norm(core, Scalar(0));
    if constexpr (std::is_same_v<Scalar, Running>) {
      for (Index t = 0; t < core.rows(); ++t) {
        const Running squares = core.row(t).cwiseProduct(core.row(t)).sum();
        if (squares.value() > squares.error() || !std::isfinite(squares.error())) continue;
        for (Index c = 0; c < o.cols(); ++c) o(t, c) = Running::unknown(o(t, c), kUnlimited);
      }
    }
    return o;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    Matrix<Scalar> o(call.tokens, call.at("H") * dv);
    for (Index h = 0; h < call.at("H"); ++h) {
      const Matrix<Scalar> q = head(inputs, "q", h, dk);
      const Matrix<Scalar> k = head(inputs, "k", h, dk);
      const Matrix<Scalar> v = head(inputs, "v", h, dv);
      const Scalar gamma = decay_of<Scalar>(h);
      const Matrix<Scalar> core = one_head(call, q, k, v, gamma);
      o.middleCols(h * dv, dv) = norm(core);
    }
    return {{"o", std::move(o)}};
  }
};

/// The normalised recurrence with its own scale, before any norm. `core` carries the state of plain retention
/// and divides when it reads and at the end: S sqrt(s) is that state (EQUATIONS 5.11).
struct Recurrence {
  static Signature signature(const Call& call) {
    const Index H = call.at("H");
    const TensorSpec S{"S", Axis::state, {H, call.at("dk"), call.at("dv")}, Content::zeros};
    const TensorSpec s{"s", Axis::state, {H, 1}, Content::no_sum};
    std::vector<TensorSpec> inputs = head_tensors(call);
    inputs.push_back(S);
    inputs.push_back(s);
    return {std::move(inputs), {{"o", Axis::tokens, {call.tokens, H * call.at("dv")}}, S, s}};
  }
  template <class Scalar>
  static Matrix<Scalar> core(const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                             Index h, NormalisedRetentionState<Scalar>& state) {
    using std::sqrt;
    const Matrix<Scalar> plain = state.S * Scalar(sqrt(state.s));
    Sequence<Scalar> x = core_sequence<Scalar>(q, k, v, h, plain);
    Trajectory<Scalar> out = recurrent<Retention>(x);
    for (Index t = 0; t < q.rows(); ++t) {
      state.s = decay_of<Scalar>(h) * state.s + Scalar(1);
      out.o.row(t) /= Scalar(sqrt(state.s));
    }
    if (q.rows() > 0) state.S = out.state / Scalar(sqrt(state.s));
    return out.o;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dk = call.at("dk");
    const Index dv = call.at("dv");
    Matrix<Scalar> o(call.tokens, call.at("H") * dv);
    Matrix<Scalar> S = get(inputs, "S");
    Matrix<Scalar> s = get(inputs, "s");
    for (Index h = 0; h < call.at("H"); ++h) {
      NormalisedRetentionState<Scalar> state{S.middleRows(h * dk, dk), s(h, 0)};
      const Matrix<Scalar> q = head(inputs, "q", h, dk);
      const Matrix<Scalar> k = head(inputs, "k", h, dk);
      const Matrix<Scalar> v = head(inputs, "v", h, dv);
      o.middleCols(h * dv, dv) = call.form == "core"
                                     ? core(q, k, v, h, state)
                                     : normalised_retention_recurrent(q, k, v, decay_of<Scalar>(h), state);
      S.middleRows(h * dk, dk) = state.S;
      s(h, 0) = state.s;
    }
    return {{"o", std::move(o)}, {"S", std::move(S)}, {"s", std::move(s)}};
  }
};

/// Each head with a constant decay.
Cost retention_cost(const Call& call, costs::Count besides = 0) {
  return row_costs::recurrence(call, costs::retention(call.at("dk"), call.at("dv"), 0), call.at("H"),
                               besides);
}

/// The whole layer; `position` counts the tokens before the call.
struct RetNetLayer {
  static bool possible(const Call& call) { return call.at("dk") % 2 == 0; }
  static Signature signature(const Call& call) {
    const Index H = call.at("H");
    const Index D = call.at("D");
    if (!possible(call)) {
      throw Error("dk=" + std::to_string(call.at("dk")) + ": keys turn in pairs, make it even");
    }
    const Index keys = H * call.at("dk");
    const Index values = H * call.at("dv");
    const TensorSpec S{"S", Axis::state, {H, call.at("dk"), call.at("dv")}, Content::zeros};
    const TensorSpec position{"position", Axis::state, {1, 1}, Content::no_count};
    return {
        {{"x", Axis::tokens, {call.tokens, D}, Content::activation},
         {"q_proj", Axis::whole, {keys, D}, Content::weight},
         {"k_proj", Axis::whole, {keys, D}, Content::weight},
         {"v_proj", Axis::whole, {values, D}, Content::weight},
         {"g_proj", Axis::whole, {values, D}, Content::weight},
         {"out_proj", Axis::whole, {D, values}, Content::weight},
         S,
         position},
        {{"y", Axis::tokens, {call.tokens, D}}, {"core", Axis::tokens, {call.tokens, values}}, S, position}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index dk = call.at("dk");
    MultiScaleRetentionWeights<Scalar> w;
    w.epsilon = Scalar(kRetentionNormEpsilon);
    w.heads = call.at("H");
    w.q_proj = get(inputs, "q_proj");
    w.k_proj = get(inputs, "k_proj");
    w.v_proj = get(inputs, "v_proj");
    w.g_proj = get(inputs, "g_proj");
    w.out_proj = get(inputs, "out_proj");
    Matrix<Scalar> S = get(inputs, "S");
    const Index first = tokens_before(get(inputs, "position"));
    const auto run = [&](Matrix<Scalar> q, Matrix<Scalar> k, Matrix<Scalar> v, const Scalar&, Index h) {
      const Matrix<Scalar> before = S.middleRows(h * dk, dk);
      const Sequence<Scalar> x = core_sequence<Scalar>(std::move(q), std::move(k), std::move(v), h, before);
      Trajectory<Scalar> out = layer_core<Retention>(x, call.form == "chunked", call.chunk);
      S.middleRows(h * dk, dk) = out.state;
      return out.o;
    };
    MultiScaleRetentionOutput<Scalar> out = multi_scale_retention(get(inputs, "x"), w, run, first);
    return {{"y", std::move(out.y)},
            {"core", std::move(out.core)},
            {"S", std::move(S)},
            {"position", tokens_after<Scalar>(first, call.tokens)}};
  }
};

}  // namespace

std::vector<Operator> retnet_operators() {
  Operator normalised{"normalised_retention",
                      "norm(O), O = P V, P_ij = (Q K^T o D)_ij / sqrt(sum D_i) / max(|sum P_i|, 1) (EQ-11)",
                      kWidths,
                      {{"parallel"}, {"chunked", true}},
                      false,
                      NormalisedRetention::signature};
  evaluate_with<NormalisedRetention>(normalised);
  // The parallel form is one square of scores, which no header of costs counts.
  normalised.cost = [](const Call& call, const Signature&) {
    return call.chunk > 0 ? retention_cost(call) : Cost{};
  };
  Operator recurrence{"normalised_retention_recurrence",
                      "S <- S gamma sqrt(s'/s) + k v^T / sqrt(s), s = gamma s' + 1, o = S^T q",
                      kWidths,
                      {{"recurrent"}, {"core"}},
                      true,
                      Recurrence::signature};
  evaluate_with<Recurrence>(recurrence);
  recurrence.cost = [](const Call& call, const Signature&) { return retention_cost(call); };
  Operator layer{"multi_scale_retention",
                 "y = W_o (silu(W_g x) norm(retention(rot W_q x, rot W_k x dk^-1/2, W_v x)))",
                 {{"D", 32, 1, 8192, "hidden width"},
                  {"H", 2, 1, kMostHeads, "heads"},
                  {"dk", 16, 2, 512, "key width of a head, even"},
                  {"dv", 16, 1, 512, "value width of a head"}},
                 {{"recurrent"}, {"chunked", true}},
                 true,
                 RetNetLayer::signature};
  evaluate_with<RetNetLayer>(layer);
  layer.possible = RetNetLayer::possible;
  layer.cost = [](const Call& call, const Signature& signature) {
    return retention_cost(call, row_costs::linear_maps(signature));
  };
  return {std::move(normalised), std::move(recurrence), std::move(layer)};
}

}  // namespace samestate
