#include <string>
#include <type_traits>
#include <utility>

#include "oracles/systems/group_routing.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/routing.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/scalars.h"
#include "reference/load_balance.h"
#include "reference/mixture_of_experts.h"

namespace samestate {
namespace {

bool has_choice(const Call& call) { return call.at("K") <= call.at("N"); }

void require_choice(const Call& call) {
  if (!has_choice(call)) {
    const std::string N = "N=" + std::to_string(call.at("N"));
    throw Error("K=" + std::to_string(call.at("K")) + ": there are only " + N +
                " experts to choose from; write K=" + std::to_string(call.at("N")) +
                " or less, or a larger N");
  }
}

/// x -> logits, probabilities, and weights by expert, 0 for those that are not selected.
struct ExpertRouter {
  static Signature signature(const Call& call) {
    require_choice(call);
    const Index N = call.at("N");
    Signature s{{{"x", Axis::tokens, {call.tokens, call.at("D")}, Content::activation},
                 {"router", Axis::whole, {N, call.at("D")}, Content::weight}},
                {{"logits", Axis::tokens, {call.tokens, N}},
                 {"probabilities", Axis::tokens, {call.tokens, N}},
                 {"weights", Axis::tokens, {call.tokens, N}}}};
    if (call.at("bias") == 1) s.inputs.push_back({"bias", Axis::whole, {N}, Content::offset});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index K = call.at("K");
    const bool biased = call.at("bias") == 1;
    const Matrix<Scalar> logits = router_logits(get(inputs, "x"), get(inputs, "router"),
                                                biased ? get_vector(inputs, "bias") : Vector<Scalar>());
    const bool by_logits = call.form == "logits_first";
    const Routing<Scalar> routing = by_logits ? route_by_logits_to(logits, as_chosen(call, top_k(logits, K)))
                                              : route_to(logits, as_chosen(call, top_k(softmax(logits), K)));
    Matrix<Scalar> weights = Matrix<Scalar>::Constant(call.tokens, logits.cols(), Scalar(0));
    for (Index t = 0; t < call.tokens; ++t) {
      for (Index r = 0; r < K; ++r) weights(t, routing.experts(t, r)) = routing.weights(t, r);
      if constexpr (std::is_same_v<Scalar, Running>) {
        if (is_chosen(call, t)) continue;
        const Matrix<Running> l = logits.row(t);
        const Matrix<Running> p = routing.probabilities.row(t);
        const std::vector<Chosen> choice = choice_of(call, l, p);
        if (decided(choice)) continue;
        const Matrix<Running> certain = certain_weights(p, choice, K);
        for (Index i = 0; i < certain.cols(); ++i)
          weights(t, i) = Running::undecided(certain(0, i), certain(0, i).error());
      }
    }
    return {{"logits", logits}, {"probabilities", routing.probabilities}, {"weights", std::move(weights)}};
  }

  static Matrix<Index> choice(const Call& call, const Tensors<double>& inputs,
                              const Tensors<double>& actual) {
    const Tensors<Running> read = as<Running>(inputs);
    const Matrix<Running> logits =
        router_logits(get(read, "x"), get(read, "router"),
                      call.at("bias") == 1 ? get_vector(read, "bias") : Vector<Running>());
    const Matrix<Running> probabilities = softmax(logits);
    Matrix<Index> chosen(call.tokens, call.at("K"));
    for (Index t = 0; t < call.tokens; ++t) {
      chosen.row(t) = choice_of_weights(choice_of(call, logits.row(t), probabilities.row(t)),
                                        get(actual, "weights").row(t), call.at("K"));
    }
    return chosen;
  }

 private:
  static std::vector<Chosen> choice_of(const Call& call, const Matrix<Running>& logits,
                                       const Matrix<Running>& probabilities) {
    return certain_choice(logits, call.form == "logits_first" ? logits : probabilities, call.at("K"));
  }
};

/// Logits are inputs, so that the choice is exact; ties follow the rule, lower index first.
struct LoadBalance {
  static Signature signature(const Call& call) {
    require_choice(call);
    if (call.tokens < 1) throw Error("T=0: a mean over tokens needs at least 1");
    const Index N = call.at("N");
    return {{{"logits", Axis::tokens, {call.tokens, N}, Content::activation},
             {"mask", Axis::tokens, {call.tokens, 1}, Content::mask},
             {"alpha", Axis::whole, {1}, Content::strength}},
            {{"load", Axis::request, {N}}, {"mean", Axis::request, {N}}, {"loss", Axis::request, {1}}}};
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>& logits = get(inputs, "logits");
    const Matrix<Scalar>& counts = get(inputs, "mask");
    Vector<bool> mask(call.tokens);
    for (Index t = 0; t < call.tokens; ++t) mask(t) = counts(t, 0) != Scalar(0);
    const LoadFraction fraction = call.at("per_token") == 1 ? LoadFraction::token : LoadFraction::assignment;
    const Matrix<Scalar> probabilities = softmax(logits);
    const Matrix<Index> experts = top_k(logits, call.at("K"));
    const Matrix<Scalar> loss = Matrix<Scalar>::Constant(
        1, 1, auxiliary_loss(probabilities, experts, get(inputs, "alpha")(0, 0), fraction, mask));
    return {{"load", load<Scalar>(experts, logits.cols(), fraction, mask).transpose()},
            {"mean", mean_probability(probabilities, mask).transpose()},
            {"loss", loss}};
  }
};

}  // namespace

std::vector<Operator> expert_router_operators() {
  const Parameter experts{"N", 8, 1, 1024, "experts"};
  const Parameter chosen{"K", 2, 1, 64, "experts a token"};
  Operator router{"expert_router",
                  "p = softmax(x W_g + b), w = p / sum p over the K largest, else 0 (MOE-13..15, EQ-20)",
                  {{"D", 32, 1, 16384, "model width"}, experts, chosen, {"bias", 0, 0, 1, "1: with b"}},
                  {{"probabilities_first"}, {"logits_first"}},
                  false,
                  ExpertRouter::signature};
  evaluate_with<ExpertRouter>(router);
  router.choice = ExpertRouter::choice;
  router.possible = has_choice;
  router.token_wise = true;
  router.cost = [](const Call& call, const Signature& signature) { return row_costs::maps(call, signature); };
  Operator balance{"load_balance",
                   "L = alpha N sum_i f_i P_i over the tokens of the mask (MOE-6, C-AUX)",
                   {experts, chosen, {"per_token", 0, 0, 1, "1: f counts tokens, sum f = K; 0: sum f = 1"}},
                   {{"direct"}},
                   false,
                   LoadBalance::signature};
  evaluate_with<LoadBalance>(balance);
  return {std::move(router), group_limited_router_operator(), std::move(balance)};
}

}  // namespace samestate
