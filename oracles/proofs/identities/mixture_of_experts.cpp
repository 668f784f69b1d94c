#include "reference/mixture_of_experts.h"

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/group_limited_router.h"
#include "reference/layers/qwen3_next_moe.h"
#include "reference/load_balance.h"
#include "reference/scalars.h"

namespace samestate::mixture_of_experts_identities {
namespace {

constexpr Index kTokens = 9;
constexpr Index kWidth = 5;    // D
constexpr Index kExperts = 6;  // N
constexpr Index kChosen = 3;   // K: sums of two commute, sums of three do not

template <class Scalar>
SwiGluExpert<Scalar> draw_expert(IdentityDraw<Scalar>& random, Index width) {
  return {random.normal(width, kWidth), random.normal(width, kWidth), random.normal(kWidth, width)};
}

template <class Scalar>
struct Drawn {
  Matrix<Scalar> x;
  Qwen3NextMoeWeights<Scalar> weights;
  std::vector<LinearExpert<Scalar>> toys;
  Vector<Scalar> router_bias;

  [[nodiscard]] Matrix<Scalar> logits() const { return router_logits(x, weights.router); }
};

template <class Scalar>
Drawn<Scalar> draw(std::uint64_t seed) {
  IdentityDraw<Scalar> random(seed);
  Drawn<Scalar> out;
  out.x = random.normal(kTokens, kWidth);
  out.weights.router = random.normal(kExperts, kWidth);
  for (Index i = 0; i < kExperts; ++i) out.weights.experts.push_back(draw_expert(random, 4));
  out.weights.shared = draw_expert(random, 3);
  out.weights.shared_gate = random.normal(1, kWidth);
  for (Index i = 0; i < kExperts; ++i) {
    out.toys.push_back({random.normal(kWidth, kWidth), random.normal_vector(kWidth)});
  }
  out.router_bias = random.normal_vector(kExperts);
  return out;
}

constexpr ExpertForm kOtherForms[] = {ExpertForm::dense, ExpertForm::sorted, ExpertForm::per_token};

template <class Scalar, ExpertForm form>
double loop_is(std::uint64_t seed) {
  const Drawn<Scalar> in = draw<Scalar>(seed);
  const Routing<Scalar> routing = route(in.logits(), kChosen);
  return relative_difference(mixture_of_experts(in.x, routing, in.weights.experts, form),
                             mixture_of_experts(in.x, routing, in.weights.experts));
}
template <class Scalar>
double dense(std::uint64_t seed) {
  return loop_is<Scalar, ExpertForm::dense>(seed);
}
template <class Scalar>
double sorted(std::uint64_t seed) {
  return loop_is<Scalar, ExpertForm::sorted>(seed);
}
template <class Scalar>
double per_token(std::uint64_t seed) {
  return loop_is<Scalar, ExpertForm::per_token>(seed);
}

/// Weights of all experts, 0 where not chosen.
template <class Scalar>
Matrix<Scalar> by_expert(const Routing<Scalar>& routing) {
  Matrix<Scalar> all = Matrix<Scalar>::Zero(routing.logits.rows(), routing.logits.cols());
  for (Index t = 0; t < routing.experts.rows(); ++t) {
    for (Index r = 0; r < routing.experts.cols(); ++r) all(t, routing.experts(t, r)) = routing.weights(t, r);
  }
  return all;
}

template <class Scalar>
Matrix<Scalar> limited(const Drawn<Scalar>& in, Index G, Index M, Index K) {
  return by_expert(route_group_limited(in.logits(), {in.router_bias, G, M, K, Scalar(2.5)}));
}

// Negative controls.

template <class Scalar>
Matrix<Scalar> one(const Scalar& value) {
  return Matrix<Scalar>::Constant(1, 1, value);
}

}  // namespace

std::vector<Identity> rows() {
  constexpr Expectation equal = Expectation::equal;
  constexpr Expectation differs = Expectation::differs;
  constexpr std::string_view kMoe = "mixture_of_experts";
  constexpr std::string_view kGroups = "group_limited_router";
  return {
      {"EQ-19", "moe_dense", kMoe, "expert loop with gather and index_add = dense masked sum", equal,
       []<class Scalar>(std::uint64_t seed) { return dense<Scalar>(seed); }},
      {"EQ-19", "moe_sorted", kMoe, "expert loop = assignments sorted by expert, grouped product", equal,
       []<class Scalar>(std::uint64_t seed) { return sorted<Scalar>(seed); }},
      {"EQ-19", "moe_per_token", kMoe, "expert loop = loop over tokens and ranks", equal,
       []<class Scalar>(std::uint64_t seed) { return per_token<Scalar>(seed); }},
      // The document's layer: biased router, linear experts with bias, every K from 1 to N.
      {"EQ-19", "moe_toy_layer", kMoe,
       "the document's layer (biased router, linear experts), K = 1..N: all four forms", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Matrix<Scalar> logits = router_logits(in.x, in.weights.router, in.router_bias);
         double worst = 0.0;
         for (Index K = 1; K <= kExperts; ++K) {
           const Routing<Scalar> routing = route(logits, K);
           const Matrix<Scalar> loop = mixture_of_experts(in.x, routing, in.toys);
           for (ExpertForm form : kOtherForms) {
             worst =
                 std::max(worst, relative_difference(mixture_of_experts(in.x, routing, in.toys, form), loop));
           }
         }
         return worst;
       }},
      // Every token to experts 1 and 4: the others have none.
      {"EQ-19", "moe_idle_experts", kMoe, "all four forms where four of six experts have no token", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Matrix<Index> experts(kTokens, 2);
         experts.col(0).setConstant(4);
         experts.col(1).setConstant(1);
         const Routing<Scalar> routing = route_to(in.logits(), experts);
         const Matrix<Scalar> loop = mixture_of_experts(in.x, routing, in.weights.experts);
         double worst = 0.0;
         for (ExpertForm form : kOtherForms) {
           worst = std::max(
               worst, relative_difference(mixture_of_experts(in.x, routing, in.weights.experts, form), loop));
         }
         return worst;
       }},
      {"EQ-19", "moe_qwen3_next_block", kMoe, "Qwen3-Next block: all four forms", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Matrix<Scalar> loop = qwen3_next_moe(in.x, in.weights, kChosen).y;
         double worst = 0.0;
         for (ExpertForm form : kOtherForms) {
           worst =
               std::max(worst, relative_difference(qwen3_next_moe(in.x, in.weights, kChosen, form).y, loop));
         }
         return worst;
       }},
      {"EQ-19", "moe_injected_routing", kMoe, "own routing = the same routing injected", Expectation::exact,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Qwen3NextMoe<Scalar> own = qwen3_next_moe(in.x, in.weights, kChosen);
         const Routing<Scalar> again = route_to(own.routing.logits, own.routing.experts);
         return relative_difference(qwen3_next_moe_routed(in.x, in.weights, again).y, own.y);
       }},
      // K = N, literal weights: the soft mixture sum_i p_i E_i(x), written out.
      {"EQ-19", "moe_all_experts", kMoe, "K = N with literal weights = soft mixture sum p_i E_i", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Routing<Scalar> routing = route(in.logits(), kExperts, TopKWeights::literal);
         Matrix<Scalar> soft = Matrix<Scalar>::Zero(kTokens, kWidth);
         for (Index i = 0; i < kExperts; ++i) {
           const Matrix<Scalar> y = in.weights.experts[static_cast<std::size_t>(i)](in.x);
           soft += routing.probabilities.col(i).asDiagonal() * y;
         }
         return relative_difference(mixture_of_experts(in.x, routing, in.weights.experts), soft);
       }},
      {"EQ-19", "moe_renumbered_experts", kMoe, "experts and router rows renumbered: same output", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         Qwen3NextMoeWeights<Scalar> turned = in.weights;
         turned.router = in.weights.router.colwise().reverse();
         std::reverse(turned.experts.begin(), turned.experts.end());
         return relative_difference(qwen3_next_moe(in.x, turned, kChosen).y,
                                    qwen3_next_moe(in.x, in.weights, kChosen).y);
       }},
      {"EQ-20", "moe_top_k_of_logits", kMoe,
       "softmax, top-k, renormalise = top-k of the logits, softmax; K = 1..N", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Matrix<Scalar> logits = draw<Scalar>(seed).logits();
         double worst = 0.0;
         for (Index K = 1; K <= kExperts; ++K) {
           const Routing<Scalar> a = route(logits, K);
           const Routing<Scalar> b = route_by_logits(logits, K);
           if (a.experts != b.experts) return std::numeric_limits<double>::infinity();
           worst = std::max(worst, relative_difference(a.weights, b.weights));
         }
         return worst;
       }},
      {"EQ-20", "moe_weights_sum_to_one", kMoe, "renormalised weights sum to 1 (E-11)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Routing<Scalar> routing = route(draw<Scalar>(seed).logits(), kChosen);
         const Vector<Scalar> sums = routing.weights.rowwise().sum();
         const Vector<Scalar> ones = Vector<Scalar>::Ones(kTokens);
         return relative_difference(sums, ones);
       }},
      {"EQ-28", "group_limited_in_order", kGroups,
       "experts gathered from the best groups = one descending order of all; every G, M, K",
       Expectation::exact,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         double worst = 0.0;
         for (const Index G : {1, 2, 3, 6}) {
           for (Index M = 1; M <= G; ++M) {
             for (Index K = 1; K <= M * (kExperts / G); ++K) {
               const GroupLimitedRouter<Scalar> router{in.router_bias, G, M, K, Scalar(2.5)};
               const Routing<Scalar> a = route_group_limited(in.logits(), router);
               const Routing<Scalar> b = route_group_limited_in_order(in.logits(), router);
               if (a.experts != b.experts) return std::numeric_limits<double>::infinity();
               worst = std::max(worst, relative_difference(b.weights, a.weights));
             }
           }
         }
         return worst;
       }},
      {"EQ-28", "group_limited_by_all_groups", kGroups, "all groups kept = one group; G = 2, 3, 6",
       Expectation::exact,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         double worst = 0.0;
         for (const Index G : {2, 3, 6}) {
           worst = std::max(worst, relative_difference(limited(in, G, G, kChosen),
                                                       limited(in, Index{1}, Index{1}, kChosen)));
         }
         return worst;
       }},
      // sigma(l_i) / sum sigma(l_j) = softmax of the logarithms of the scores.
      {"EQ-28", "group_limited_weights", kGroups,
       "weights = scaling times the softmax of -log(1 + e^-l) over the chosen", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Matrix<Scalar> logits = in.logits();
         const Routing<Scalar> routing =
             route_group_limited(logits, {in.router_bias, 3, 2, kChosen, Scalar(2.5)});
         Matrix<Scalar> logarithms(kTokens, kChosen);
         for (Index t = 0; t < kTokens; ++t) {
           for (Index r = 0; r < kChosen; ++r)
             logarithms(t, r) = -softplus(Scalar(-logits(t, routing.experts(t, r))));
         }
         return relative_difference(Matrix<Scalar>(Scalar(2.5) * softmax(logarithms)), routing.weights);
       }},
      {"NC-router-groups-not-limited", "router_groups_not_limited", kGroups,
       "the K largest of all groups against those of the best two of three", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         return relative_difference(limited(in, 3, 3, kChosen), limited(in, 3, 2, kChosen));
       }},
      {"NC-router-bias-in-the-weight", "router_bias_in_the_weight", kGroups,
       "weights of s + bias against weights of s", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Routing<Scalar> routing =
             route_group_limited(in.logits(), {in.router_bias, 3, 2, kChosen, Scalar(1)});
         Matrix<Scalar> biased = routing.weights;
         for (Index t = 0; t < kTokens; ++t) {
           for (Index r = 0; r < kChosen; ++r) {
             const Index expert = routing.experts(t, r);
             biased(t, r) = routing.probabilities(t, expert) + in.router_bias(expert);
           }
           biased.row(t) /= biased.row(t).sum();
         }
         return relative_difference(biased, routing.weights);
       }},
      {"NC-moe-unnormalised-top-k", "moe_unnormalised_top_k", kMoe,
       "unnormalised weights (MOE-4) against renormalised (MOE-15)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Matrix<Scalar> logits = in.logits();
         return relative_difference(
             mixture_of_experts(in.x, route(logits, kChosen, TopKWeights::literal), in.weights.experts),
             mixture_of_experts(in.x, route(logits, kChosen), in.weights.experts));
       }},
      {"NC-moe-flipped-selection", "moe_flipped_selection", kMoe,
       "each token's K-th expert replaced by its (K+1)-th (EQUATIONS 8.2)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Routing<Scalar> own = route(in.logits(), kChosen);
         Matrix<Index> experts = own.experts;
         experts.col(kChosen - 1) = top_k(own.probabilities, kChosen + 1).col(kChosen);
         return relative_difference(
             mixture_of_experts(in.x, route_to(own.logits, experts), in.weights.experts),
             mixture_of_experts(in.x, own, in.weights.experts));
       }},
      {"NC-moe-no-shared-gate", "moe_no_shared_gate", kMoe, "shared expert without its gate against with it",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         const Qwen3NextMoe<Scalar> out = qwen3_next_moe(in.x, in.weights, kChosen);
         const Matrix<Scalar> ungated = out.routed + out.shared;
         return relative_difference(ungated, out.y);
       }},
      {"NC-moe-swapped-gate-up", "moe_swapped_gate_and_up", kMoe,
       "silu on the up projection against silu on the gate", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Drawn<Scalar> in = draw<Scalar>(seed);
         SwiGluExpert<Scalar> swapped = in.weights.shared;
         std::swap(swapped.gate, swapped.up);
         return relative_difference(swapped(in.x), in.weights.shared(in.x));
       }},
      {"NC-aux-token-fractions", "aux_token_fractions", kMoe,
       "f by token against f by assignment, K = 3 (MOE-7)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Routing<Scalar> r = route(draw<Scalar>(seed).logits(), kChosen);
         return relative_difference(
             one(auxiliary_loss(r.probabilities, r.experts, Scalar(1), LoadFraction::token)),
             one(auxiliary_loss(r.probabilities, r.experts, Scalar(1))));
       }},
      // P_i as the fraction of selections, f_i itself: MOE-8's wording (E-33).
      {"NC-aux-selection-probability", "aux_selection_probability", kMoe,
       "P as selection frequency (MOE-8's wording, E-33) against mean router probability", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Routing<Scalar> r = route(draw<Scalar>(seed).logits(), kChosen);
         const Vector<Scalar> f = load<Scalar>(r.experts, kExperts);
         const Scalar literal = Scalar(static_cast<double>(kExperts)) * f.squaredNorm();
         return relative_difference(one(literal), one(auxiliary_loss(r.probabilities, r.experts, Scalar(1))));
       }},
      // The mean over all tokens where the last third is padding.
      {"NC-aux-padding-counted", "aux_padding_counted", kMoe,
       "padding tokens counted against left out of both means", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Routing<Scalar> r = route(draw<Scalar>(seed).logits(), kChosen);
         Vector<bool> mask = Vector<bool>::Constant(kTokens, true);
         mask.tail(kTokens / 3).setConstant(false);
         return relative_difference(
             one(auxiliary_loss(r.probabilities, r.experts, Scalar(1))),
             one(auxiliary_loss(r.probabilities, r.experts, Scalar(1), LoadFraction::assignment, mask)));
       }},
  };
}

}  // namespace samestate::mixture_of_experts_identities
