#include "oracles/systems/mixture_stages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "oracles/systems/instances.h"
#include "oracles/systems/stage_points.h"
#include "reference/layers/qwen3_next_moe.h"

namespace samestate {
namespace {

TensorSpec of_ranks(const Call& call, std::string name, std::string_view size) {
  return of_tokens(call, std::move(name), {call.at("K"), call.at(size)});
}
/// Indices of experts, which fp32 represents exactly and 16 bits may not.
TensorSpec experts_tap(const Call& call) {
  return of_tokens(call, "experts", {call.at("K")}, Content::strength);
}
TensorSpec matrices(const Call& call, std::string name, std::string_view rows, std::string_view columns) {
  return {std::move(name), Axis::whole, {call.at("N"), call.at(rows), call.at(columns)}, Content::weight};
}

double plain(double x) { return x; }
template <class Scalar>
double plain(const Scalar& x) {
  return x.value();
}

/// The experts that a kernel chose. A row that is not a valid selection, which its own stage has reported, is
/// replaced by the first experts.
template <class Scalar>
Matrix<Index> chosen(const Call& call, const Tensors<Scalar>& inputs) {
  const Matrix<Scalar>& x = get(inputs, "experts");
  const Index N = call.at("N");
  Matrix<Index> out(x.rows(), x.cols());
  for (Index t = 0; t < x.rows(); ++t) {
    std::vector<bool> taken(static_cast<std::size_t>(N), false);
    bool selection = true;
    for (Index r = 0; r < x.cols(); ++r) {
      const double number = std::round(plain(x(t, r)));
      selection = selection && number >= 0.0 && number < static_cast<double>(N);
      if (!selection) break;
      out(t, r) = static_cast<Index>(number);
      auto&& before = taken[static_cast<std::size_t>(out(t, r))];
      selection = !before;
      before = true;
    }
    for (Index r = 0; r < x.cols() && !selection; ++r) out(t, r) = r;
  }
  return out;
}

/// True if every kernel puts an expert before the next one, judging by logits, which are its inputs, and by
/// the probabilities that it may have computed from them. Equal logits give equal probabilities, and the tie
/// rule decides.
bool certainly_before(const Matrix<Running>& logits, const Matrix<Running>& p, Index t, Index i, Index j) {
  if (logits(t, i).value() == logits(t, j).value()) return true;
  return p(t, i).value() - p(t, i).error() > p(t, j).value() + p(t, j).error();
}

/// The K largest logits by rank.
struct Selection {
  static Signature signature(const Call& call) {
    return {{of_tokens(call, "logits", {call.at("N")})}, {experts_tap(call)}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>& logits = get(inputs, "logits");
    const Index K = call.at("K");
    const Index N = call.at("N");
    // And the first one that is left out.
    const Matrix<Index> order = top_k(logits, std::min(K + 1, N));
    Matrix<Scalar> experts =
        order.leftCols(K).unaryExpr([](Index i) { return Scalar(static_cast<double>(i)); });
    if constexpr (std::is_same_v<Scalar, Running>) {
      const Matrix<Running> p = softmax(logits);
      for (Index t = 0; t < logits.rows(); ++t) {
        for (Index r = 0; r + 1 < order.cols(); ++r) {
          if (certainly_before(logits, p, t, order(t, r), order(t, r + 1))) continue;
          for (const Index open : {r, r + 1}) {
            if (open < K)
              experts(t, open) =
                  Running::undecided(experts(t, open), std::numeric_limits<double>::infinity());
          }
        }
      }
    }
    return {{"experts", std::move(experts)}};
  }
};

/// Renormalised probabilities of the chosen experts.
struct Weights {
  static Signature signature(const Call& call) {
    return {{of_tokens(call, "logits", {call.at("N")}), experts_tap(call)},
            {of_tokens(call, "weights", {call.at("K")})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return {{"weights", route_to(get(inputs, "logits"), chosen(call, inputs)).weights}};
  }
};

/// y(t K + r) = apply(i, x(t)) for the expert i of rank r; `apply` takes all rows of an expert. x has one row
/// per token, or per token and rank.
template <class Scalar, class Apply>
Matrix<Scalar> by_expert(const Call& call, const Matrix<Index>& experts, const Matrix<Scalar>& x,
                         Index columns, Apply&& apply) {
  const Index K = call.at("K");
  const Index each = x.rows() == experts.rows() * K && K > 1 ? K : 1;
  Matrix<Scalar> y(experts.rows() * K, columns);
  for (Index i = 0; i < call.at("N"); ++i) {
    const std::vector<detail::Assignment> mine = detail::assignments_of(experts, i);
    if (mine.empty()) continue;
    Matrix<Scalar> rows(std::ssize(mine), x.cols());
    for (Index n = 0; n < rows.rows(); ++n) {
      const detail::Assignment& a = mine[static_cast<std::size_t>(n)];
      rows.row(n) = x.row(each == K ? a.token * K + a.rank : a.token);
    }
    const Matrix<Scalar> out = apply(i, rows);
    for (Index n = 0; n < rows.rows(); ++n)
      y.row(mine[static_cast<std::size_t>(n)].token * K + mine[static_cast<std::size_t>(n)].rank) =
          out.row(n);
  }
  return y;
}

struct Hidden {
  static Signature signature(const Call& call) {
    return {{of_tokens(call, "x", {call.at("D")}), experts_tap(call), matrices(call, "gate", "F", "D"),
             matrices(call, "up", "F", "D")},
            {of_ranks(call, "hidden", "F")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index F = call.at("F");
    return {{"hidden", by_expert(call, chosen(call, inputs), get(inputs, "x"), F,
                                 [&](Index i, const Matrix<Scalar>& rows) {
                                   return SwiGluExpert<Scalar>{get(inputs, "gate").middleRows(i * F, F),
                                                               get(inputs, "up").middleRows(i * F, F),
                                                               {}}
                                       .activated(rows, points::expert_stages["hidden"]);
                                 })}};
  }
};

struct Outputs {
  static Signature signature(const Call& call) {
    return {{of_ranks(call, "hidden", "F"), experts_tap(call), matrices(call, "down", "D", "F")},
            {of_ranks(call, "outputs", "D")}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index D = call.at("D");
    return {{"outputs", by_expert(call, chosen(call, inputs), get(inputs, "hidden"), D,
                                  [&](Index i, const Matrix<Scalar>& rows) {
                                    return linear<Scalar>(rows, get(inputs, "down").middleRows(i * D, D),
                                                          points::expert_stages["down"]);
                                  })}};
  }
};

/// The hidden rows of the shared expert.
struct SharedHidden {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    const Index F = call.at("Fs");
    return {{of_tokens(call, "x", {D}),
             {"gate", Axis::whole, {F, D}, Content::weight},
             {"up", Axis::whole, {F, D}, Content::weight}},
            {of_tokens(call, "hidden", {F})}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    return {{"hidden", SwiGluExpert<Scalar>{get(inputs, "gate"), get(inputs, "up"), {}}.activated(
                           get(inputs, "x"), points::expert_stages["shared_hidden"])}};
  }
};

/// sum_r w_r z_r and, if there is a shared expert, its gated output.
template <bool shared>
struct Sum {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    Signature s{{of_tokens(call, "weights", {call.at("K")}), of_ranks(call, "outputs", "D")},
                {of_tokens(call, "y", {D})}};
    if (shared) {
      s.inputs.push_back(of_tokens(call, "shared", {D}));
      s.inputs.push_back(of_tokens(call, "shared_gate_logit", {1}));
    }
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call&, const Tensors<Scalar>& inputs) {
    Matrix<Scalar> y = weighted_sum(get(inputs, "weights"), get(inputs, "outputs"));
    if constexpr (shared)
      y = with_shared(y, get(inputs, "shared"), logistic(get(inputs, "shared_gate_logit")));
    return {{"y", std::move(y)}};
  }
};

/// The same from the weight of that gate, for a kernel that does not hand out its logit.
struct OpenedSum {
  static Signature signature(const Call& call) {
    Signature s = Sum<true>::signature(call);
    s.inputs.back() = of_tokens(call, "x", {call.at("D")});
    s.inputs.push_back({"shared_gate", Axis::whole, {1, call.at("D")}, Content::weight});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    Tensors<Scalar> with_logit = inputs;
    with_logit["shared_gate_logit"] =
        linear(get(inputs, "x"), get(inputs, "shared_gate"), points::expert_stages["shared_gate"]);
    return Sum<true>::evaluate(call, with_logit);
  }
};

/// The stages between logits and the experts' outputs.
void add_routed(const Call& call, LayerStages& to) {
  static const Operator selection =
      stage_operator<Selection>("mixture_of_experts.selection", "the K largest logits");
  static const Operator weights =
      stage_operator<Weights>("mixture_of_experts.weights", "softmax(logits)_i / sum of the chosen");
  static const Operator hidden =
      stage_operator<Hidden>("mixture_of_experts.hidden", "silu(W_gate x) * W_up x");
  static const Operator outputs = stage_operator<Outputs>("mixture_of_experts.outputs", "W_down hidden");
  to.taps.insert(to.taps.end(), {experts_tap(call), of_tokens(call, "weights", {call.at("K")}),
                                 of_ranks(call, "hidden", "F"), of_ranks(call, "outputs", "D")});
  to.stages.push_back(
      stage_of("selection", selection, call, {{"logits", "logits"}}, {{"experts", "experts"}}));
  to.stages.push_back(stage_of("weights", weights, call, {{"logits", "logits"}, {"experts", "experts"}},
                               {{"weights", "weights"}}));
  to.stages.push_back(stage_of("hidden rows", hidden, call,
                               {{"x", "x"}, {"experts", "experts"}, {"gate", "gate"}, {"up", "up"}},
                               {{"hidden", "hidden"}}));
  to.stages.push_back(stage_of("experts", outputs, call,
                               {{"hidden", "hidden"}, {"experts", "experts"}, {"down", "down"}},
                               {{"outputs", "outputs"}}));
}

}  // namespace

LayerStages mixture_of_experts_stages(const Call& call) {
  static const Operator sum = stage_operator<Sum<false>>("mixture_of_experts.sum", "sum_r w_r z_r");
  LayerStages out;
  add_routed(call, out);
  out.stages.push_back(
      stage_of("sum", sum, call, {{"weights", "weights"}, {"outputs", "outputs"}}, {{"y", "y"}}));
  return out;
}

LayerStages qwen3_next_moe_stages(const Call& call) {
  static const Operator hidden =
      stage_operator<SharedHidden>("qwen3_next_moe.shared_hidden", "silu(W_gate x) * W_up x");
  static const Operator sum =
      stage_operator<Sum<true>>("qwen3_next_moe.sum", "sum_r w_r z_r + sigma(gate) shared");
  static const Operator opened =
      stage_operator<OpenedSum>("qwen3_next_moe.opened_sum", "sum_r w_r z_r + sigma(w_sg x) shared");
  const Index D = call.at("D");
  const Index Fs = call.at("Fs");
  LayerStages out;
  out.taps = {of_tokens(call, "logits", {call.at("N")})};
  out.stages = {stage_of("router", linear_map(), call, {{"In", D}, {"Out", call.at("N")}},
                         {{"x", "x"}, {"weight", "router"}}, {{"y", "logits"}})};
  add_routed(call, out);
  out.taps.insert(out.taps.end(), {of_tokens(call, "shared_hidden", {Fs}), of_tokens(call, "shared", {D}),
                                   of_tokens(call, "shared_gate_logit", {1})});
  out.stages.push_back(stage_of("shared hidden rows", hidden, call,
                                {{"x", "x"}, {"gate", "shared_gate_proj"}, {"up", "shared_up"}},
                                {{"hidden", "shared_hidden"}}));
  out.stages.push_back(stage_of("shared expert", linear_map(), call, {{"In", Fs}, {"Out", D}},
                                {{"x", "shared_hidden"}, {"weight", "shared_down"}}, {{"y", "shared"}}));
  out.stages.push_back(stage_of("shared gate", linear_map(), call, {{"In", D}, {"Out", 1}},
                                {{"x", "x"}, {"weight", "shared_gate"}}, {{"y", "shared_gate_logit"}}));
  out.stages.push_back(stage_of("sum", sum, call,
                                {{"weights", "weights"},
                                 {"outputs", "outputs"},
                                 {"shared", "shared"},
                                 {"shared_gate_logit", "shared_gate_logit"}},
                                {{"y", "y"}}));
  out.stages.push_back(stage_of("shared gate and sum", opened, call,
                                {{"weights", "weights"},
                                 {"outputs", "outputs"},
                                 {"shared", "shared"},
                                 {"x", "x"},
                                 {"shared_gate", "shared_gate"}},
                                {{"y", "y"}}));
  return out;
}

}  // namespace samestate
