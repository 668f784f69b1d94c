#include "reference/group_limited_router.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "oracles/systems/group_routing.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/scalars.h"

namespace samestate {
namespace {

/// x -> logits, scores, and weights by expert, 0 for those that are not selected.
struct GroupRouter {
  static Signature signature(const Call& call) {
    const Index N = call.at("N");
    require_groups(N, call.at("G"), call.at("M"), call.at("K"));
    Signature s{{{"x", Axis::tokens, {call.tokens, call.at("D")}, Content::activation},
                 {"router", Axis::whole, {N, call.at("D")}, Content::weight},
                 {"scaling", Axis::whole, {1}, Content::scale}},
                {{"logits", Axis::tokens, {call.tokens, N}},
                 {"probabilities", Axis::tokens, {call.tokens, N}},
                 {"weights", Axis::tokens, {call.tokens, N}}}};
    if (call.at("bias") == 1) s.inputs.push_back({"selection_bias", Axis::whole, {N}, Content::offset});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar> logits = router_logits(get(inputs, "x"), get(inputs, "router"));
    const GroupLimitedRouter<Scalar> router = router_of(call, inputs);
    Routing<Scalar> routing = call.form == "ordered" ? route_group_limited_in_order(logits, router)
                                                     : route_group_limited(logits, router);
    if (call.choice != nullptr) {
      routing.experts = as_chosen(call, std::move(routing.experts));
      weigh_chosen(routing, router.scaling);
    }
    Matrix<Scalar> weights = Matrix<Scalar>::Constant(call.tokens, logits.cols(), Scalar(0));
    for (Index t = 0; t < call.tokens; ++t) {
      for (Index r = 0; r < call.at("K"); ++r) weights(t, routing.experts(t, r)) = routing.weights(t, r);
      if constexpr (std::is_same_v<Scalar, Running>) open(call, weights, t, routing, router);
    }
    return {{"logits", logits}, {"probabilities", routing.probabilities}, {"weights", std::move(weights)}};
  }

  static Matrix<Index> choice(const Call& call, const Tensors<double>& inputs,
                              const Tensors<double>& actual) {
    const Tensors<Running> read = as<Running>(inputs);
    const GroupLimitedRouter<Running> router = router_of(call, read);
    Matrix<Running> sums;
    const Routing<Running> routing = scored(router_logits(get(read, "x"), get(read, "router")), router, sums);
    Matrix<Index> chosen(call.tokens, call.at("K"));
    for (Index t = 0; t < call.tokens; ++t) {
      chosen.row(t) =
          choice_of_weights(choice_of(t, routing, router), get(actual, "weights").row(t), call.at("K"));
    }
    return chosen;
  }

 private:
  template <class Scalar>
  static GroupLimitedRouter<Scalar> router_of(const Call& call, const Tensors<Scalar>& inputs) {
    return {call.at("bias") == 1 ? get_vector(inputs, "selection_bias") : Vector<Scalar>(), call.at("G"),
            call.at("M"), call.at("K"), get(inputs, "scaling")(0, 0)};
  }

  static std::vector<Chosen> choice_of(Index t, const Routing<Running>& routing,
                                       const GroupLimitedRouter<Running>& router) {
    return certain_group_choice(routing.logits.row(t), routing.probabilities.row(t), router.selection_bias,
                                {router.groups, router.groups_kept, router.experts_per_token});
  }

  /// The relative error of a weight due to what public code adds to the sum of the scores; 0 if fp32 does not
  /// notice it.
  static double share_added(const Routing<Running>& routing, Index t) {
    constexpr double kAdded = 1e-20;
    double sum = 0.0;
    for (Index r = 0; r < routing.experts.cols(); ++r)
      sum += routing.probabilities(t, routing.experts(t, r)).value();
    return sum * detail::running_model().unit > kAdded ? 0.0 : std::min(1.0, kAdded / sum);
  }

  /// Marks the weights of a token for which a correct kernel may choose differently, or whose scores may all
  /// have underflowed, so that nothing is known about their quotients: 0 / 0, or 0 in public code, which adds
  /// 1e-20 to the sum.
  static void open(const Call& call, Matrix<Running>& weights, Index t, const Routing<Running>& routing,
                   const GroupLimitedRouter<Running>& router) {
    const Matrix<Running> s = routing.probabilities.row(t);
    const std::vector<Chosen> choice = choice_of(t, routing, router);
    Matrix<Running> w = weights.row(t);
    const double added = share_added(routing, t);
    if (!is_chosen(call, t) && !decided(choice)) {
      std::vector<bool> exactly(choice.size(), false);
      for (Index r = 0; r < routing.experts.cols(); ++r)
        exactly[static_cast<std::size_t>(routing.experts(t, r))] = true;
      w = certain_weights(s, choice, exactly, router.scaling);
    } else if (added == 0.0 && std::all_of(w.data(), w.data() + w.size(),
                                           [](const Running& x) { return std::isfinite(x.error()); })) {
      return;
    }
    const auto may_vanish = [&](Index expert) { return !(s(0, expert).value() > s(0, expert).error()); };
    const bool vanish = std::all_of(routing.experts.row(t).begin(), routing.experts.row(t).end(), may_vanish);
    for (Index i = 0; i < w.cols(); ++i) {
      weights(t, i) = vanish && !std::isfinite(w(0, i).error())
                          ? Running::unknown(w(0, i), kUnlimited)
                          : Running::undecided(w(0, i), w(0, i).error() + added * std::abs(w(0, i).value()));
    }
  }
};

}  // namespace

Operator group_limited_router_operator() {
  Operator row{
      "group_limited_router",
      "s = sigma(x W_g), c = s + b; w = scaling s / sum s over the K largest c of the M groups whose two "
      "largest c sum to the most, else 0 (DeepSeek-V3's; EQUATIONS 5.8)",
      {{"D", 32, 1, 16384, "model width"},
       {"G", 4, 1, 64, "groups of neighbours"},
       {"N", 16, 1, 1024, "experts", "G"},
       {"M", 2, 1, 64, "groups kept"},
       {"K", 2, 1, 64, "experts a token"},
       {"bias", 0, 0, 1, "1: with b, which chooses and does not weigh"}},
      {{"gathered"}, {"ordered"}},
      false,
      GroupRouter::signature};
  evaluate_with<GroupRouter>(row);
  row.choice = GroupRouter::choice;
  row.token_wise = true;
  row.cost = [](const Call& call, const Signature& signature) { return row_costs::maps(call, signature); };
  return row;
}

}  // namespace samestate
