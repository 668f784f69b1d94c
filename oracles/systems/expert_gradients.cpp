#include "oracles/systems/expert_gradients.h"

#include <algorithm>
#include <utility>

#include "oracles/systems/gradient_rows.h"
#include "oracles/systems/rows.h"
#include "reference/backward/mixture_of_experts.h"
#include "reference/costs/mixture_of_experts.h"

namespace samestate {
namespace {

/// The tensors of the forward row's gradients, with the chosen experts behind its inputs.
template <std::vector<Operator> (*rows)()>
Signature reversed_for_chosen(const Call& call, std::string_view forward) {
  Signature s = reversed<rows>(call, forward);
  const auto first =
      std::ranges::find_if(s.inputs, [](const TensorSpec& input) { return input.name.starts_with("d."); });
  s.inputs.insert(
      first,
      {std::string(kChosenExperts), Axis::tokens, {call.tokens, call.at("K")}, Content::slot, call.at("N")});
  return s;
}

/// The experts of the call, of which a number that is no place becomes one that no expert has.
template <class Scalar>
Matrix<Index> chosen_in(const Call& call, const Tensors<Scalar>& inputs) {
  const Index N = call.at("N");
  return get(inputs, kChosenExperts).unaryExpr([N](const Scalar& given) {
    Index expert = 0;
    while (expert < N && given != Scalar(static_cast<double>(expert))) ++expert;
    return expert;
  });
}

/// The bias of a router's logits, empty if the call has none.
template <class Scalar>
Vector<Scalar> router_bias(const Tensors<Scalar>& inputs) {
  return inputs.contains("bias") ? get_vector(inputs, "bias") : Vector<Scalar>();
}

/// Gradients of x, of the router and of its bias, from the cotangents of the logits, of the probabilities and of the
/// weights [T, N] by expert. Weights of experts that are not chosen are the constant 0, so their cotangents count for
/// nothing. With K = 1 the weight is the constant 1, and only the other two cotangents count.
struct RouterBackward {
  static Signature signature(const Call& call) {
    return reversed_for_chosen<expert_router_operators>(call, "expert_router");
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>&x = get(inputs, "x"), &router = get(inputs, "router");
    const Matrix<Index> experts = chosen_in(call, inputs);
    const Matrix<Scalar> logits = router_logits(x, router, router_bias(inputs));
    const Routing<Scalar> routing =
        call.form == "logits_first" ? route_by_logits_to(logits, experts) : route_to(logits, experts);
    Matrix<Scalar> d_weights(experts.rows(), experts.cols());
    for (Index t = 0; t < experts.rows(); ++t) {
      for (Index r = 0; r < experts.cols(); ++r) d_weights(t, r) = get(inputs, "d.weights")(t, experts(t, r));
    }
    LinearGradients<Scalar> out = router_logits_backward<Scalar>(
        x, router,
        get(inputs, "d.logits") +
            route_backward(routing, TopKWeights::renormalised, d_weights, get(inputs, "d.probabilities")));
    Tensors<Scalar> gradients{{"d.x", std::move(out.x)}, {"d.router", std::move(out.weight)}};
    if (inputs.contains("bias")) gradients.emplace("d.bias", as_row(out.bias));
    return gradients;
  }
};

/// Gradients of the tokens, of all experts' matrices and of the logits. The gradient of an expert's matrices is a sum over
/// the tokens of the call that went there, and exactly 0 if there are none.
struct ExpertsBackward {
  static Signature signature(const Call& call) {
    return reversed_for_chosen<mixture_of_experts_operators>(call, "mixture_of_experts");
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index N = call.at("N"), D = call.at("D"), F = call.at("F");
    std::vector<SwiGluExpert<Scalar>> experts;
    for (Index i = 0; i < N; ++i) {
      experts.push_back({get(inputs, "gate").middleRows(i * F, F), get(inputs, "up").middleRows(i * F, F),
                         get(inputs, "down").middleRows(i * D, D)});
    }
    const Routing<Scalar> routing = route_to(get(inputs, "logits"), chosen_in(call, inputs));
    MixtureGradients<SwiGluExpert<Scalar>, Scalar> out =
        mixture_of_experts_backward(get(inputs, "x"), routing, experts, get(inputs, "d.y"));
    Matrix<Scalar> gate(N * F, D), up(N * F, D), down(N * D, F);
    for (Index i = 0; i < N; ++i) {
      const SwiGluExpert<Scalar>& expert = out.experts[static_cast<std::size_t>(i)];
      gate.middleRows(i * F, F) = expert.gate;
      up.middleRows(i * F, F) = expert.up;
      down.middleRows(i * D, D) = expert.down;
    }
    Matrix<Scalar> logits = route_backward(routing, TopKWeights::renormalised, out.weights);
    return {{"d.x", std::move(out.x)},
            {"d.gate", std::move(gate)},
            {"d.up", std::move(up)},
            {"d.down", std::move(down)},
            {"d.logits", std::move(logits)}};
  }
};

/// Three times the operations of the forward row: each of its products is made again and has two in its reverse.
template <std::vector<Operator> (*rows)()>
Cost thrice(const Call& call, const Signature& signature, std::string_view forward) {
  static const std::vector<Operator> all = rows();
  Cost cost = std::ranges::find(all, forward, &Operator::name)->cost(call, signature);
  cost.operations = costs::product({3, cost.operations});
  return cost;
}

}  // namespace

Matrix<double> experts_chosen(const Call& call, const Tensors<double>& inputs) {
  const Matrix<double> logits =
      inputs.contains("logits") ? get(inputs, "logits")
                                : router_logits(get(inputs, "x"), get(inputs, "router"), router_bias(inputs));
  return top_k(logits, call.at("K")).cast<double>();
}

std::vector<Operator> expert_gradient_operators() {
  Operator router =
      reverse_of<RouterBackward>(expert_router_operators(), "expert_router", "expert_router.backward",
                                 "with the chosen experts given: d.l = d.logits + p (d.p - <p, d.p>), plus w "
                                 "(d.w - <w, d.w>) at those chosen; d.x = d.l "
                                 "W_g, d.W_g = sum of d.l x^T, d.b = sum of d.l");
  router.cost = [](const Call& call, const Signature& signature) {
    return thrice<expert_router_operators>(call, signature, "expert_router");
  };
  Operator experts = reverse_of<ExpertsBackward>(
      mixture_of_experts_operators(), "mixture_of_experts", "mixture_of_experts.backward",
      "with the chosen experts given, h = silu(g) u and dh = w W_down^T d.y: d.u = dh silu(g), d.g = dh u "
      "silu'(g); d.W are "
      "sums over an expert's tokens, d.x over a token's experts; d.logits = w (d.w - <w, d.w>) with d.w = "
      "<d.y, E(x)>");
  experts.cost = [](const Call& call, const Signature& signature) {
    return thrice<mixture_of_experts_operators>(call, signature, "mixture_of_experts");
  };
  return {std::move(router), std::move(experts)};
}

}  // namespace samestate
