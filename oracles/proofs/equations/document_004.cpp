#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "oracles/proofs/equations/rearrange.h"
#include "reference/backward/mixture_of_experts.h"
#include "reference/costs.h"
#include "reference/experts.h"
#include "reference/load_balance.h"

/// Document 004: mixtures of experts.
namespace samestate::document_004_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;
using Vec = Vector<double>;

/// The layer of L70-133 at a small size: 6 tokens of width 4, 5 experts with bias, top 2.
struct SmallMixture {
  M x, gate;
  Vec bias;
  std::vector<LinearExpert<double>> experts;
  Routing<double> routing;
  M y;
  SmallMixture() {
    IdentityDraw<double> draw(1);
    x = draw.normal(6, 4);
    gate = draw.normal(5, 4);
    bias = draw.normal_vector(5);
    for (int i = 0; i < 5; ++i) experts.push_back({draw.normal(4, 4), draw.normal_vector(4)});
    routing = route(router_logits(x, gate, bias), 2);
    y = mixture_of_experts(x, routing, experts);
  }
};

M softmax_rows(const M& logits) {
  M p = logits.array().exp().matrix();
  for (Index t = 0; t < p.rows(); ++t) p.row(t) /= p.row(t).sum();
  return p;
}

Finding unnormalised_weights() {
  const M logits = row_of({1, 0, -1});
  const M literal = route(logits, 2, TopKWeights::literal).weights;
  const M code = route(logits, 2).weights;
  return Computation()
      .rounds_to("logits (1, 0, -1), k = 2, formula: first weight", literal(0, 0), 0.6652, 4)
      .rounds_to("second", literal(0, 1), 0.2447, 4)
      .rounds_to("their sum", literal.sum(), 0.9100, 4)
      .rounds_to("code: first weight", code(0, 0), 0.7311, 4)
      .rounds_to("second", code(0, 1), 0.2689, 4)
      .contrast("sum of the weights", literal.sum(), code.sum())
      .remark("resolution: divide by the sum, as the code does")
      .identity("moe_unnormalised_top_k")
      .resolved();
}

Finding load_fractions() {
  // 4 experts, top 2, balanced: every expert gets two of the four tokens.
  Matrix<Index> experts(4, 2);
  experts << 0, 1, 1, 2, 2, 3, 3, 0;
  const M balanced = M::Constant(4, 4, 0.25);
  const Vec by_token = load<double>(experts, 4, LoadFraction::token);
  const Vec by_assignment = load<double>(experts, 4, LoadFraction::assignment);
  return Computation()
      .equal("sum f, of tokens", by_token.sum(), 2.0)
      .equal("sum f, of assignments", by_assignment.sum(), 1.0)
      .equal("balanced loss at alpha = 0.01, of tokens: alpha k",
             auxiliary_loss(balanced, experts, 0.01, LoadFraction::token), 0.02)
      .equal("of assignments: alpha", auxiliary_loss(balanced, experts, 0.01), 0.01)
      .contrast("balanced loss", auxiliary_loss(balanced, experts, 0.01, LoadFraction::token),
                auxiliary_loss(balanced, experts, 0.01))
      .remark("resolution: of assignments")
      .identity("aux_token_fractions")
      .resolved();
}

Finding selection_probability() {
  M p(2, 3);
  p << 0.4, 0.3, 0.3, 0.0, 0.55, 0.45;
  const Matrix<Index> chosen = top_k(p, 1);
  const Vec correct = mean_probability(p);
  const Vec printed = load<double>(chosen, 3);  // how often an expert is selected
  return Computation()
      .agree("mean router probability", correct.transpose().eval(), row_of({0.2, 0.425, 0.375}))
      .agree("frequency of being selected", printed.transpose().eval(), row_of({0.5, 0.5, 0.0}))
      .contrast_all("P, as worded and as meant", printed, correct)
      .equal("sum P", correct.sum(), 1.0)
      .identity("aux_selection_probability")
      .erratum();
}

Finding balance_bound() {
  M p(2, 3);
  p << 0.4, 0.3, 0.3, 0.0, 0.55, 0.45;
  const M balanced = M::Constant(3, 3, 1.0 / 3.0);
  Matrix<Index> each(3, 1);
  each << 0, 1, 2;
  return Computation()
      .equal("balanced, k = 1: loss / alpha", auxiliary_loss(balanced, each, 1.0), 1.0)
      .equal("p = (0.4, 0.3, 0.3), (0, 0.55, 0.45): loss / alpha", auxiliary_loss(p, top_k(p, 1), 1.0),
             0.9375)
      .remark("alpha is no lower bound")
      .holds();
}

Finding gate_bias() {
  const SmallMixture layer;
  return Computation()
      .contrast_all("logits with the bias of nn.Linear, and of x W_g",
                    router_logits(layer.x, layer.gate, layer.bias), router_logits(layer.x, layer.gate))
      .agree("x W_g + b", router_logits(layer.x, layer.gate, layer.bias),
             ((layer.x * layer.gate.transpose()).rowwise() + layer.bias.transpose()).eval())
      .remark("resolution: an optional bias")
      .resolved();
}

Finding expert_loop() {
  const SmallMixture layer;
  M y = M::Zero(6, 4);
  for (Index t = 0; t < 6; ++t) {
    for (Index r = 0; r < 2; ++r) {
      const auto& expert = layer.experts[static_cast<std::size_t>(layer.routing.experts(t, r))];
      y.row(t) += layer.routing.weights(t, r) *
                  (layer.x.row(t) * expert.weight.transpose() + expert.bias.transpose());
    }
  }
  return Computation()
      .agree("the loop over experts, and plain sums", layer.y, y)
      .agree("the dense masked sum",
             mixture_of_experts(layer.x, layer.routing, layer.experts, ExpertForm::dense), y)
      .relation("no expert twice in a token",
                (layer.routing.experts.col(0).array() != layer.routing.experts.col(1).array()).all())
      .identity("moe_idle_experts")
      .holds();
}

Finding toy_layer() {
  const SmallMixture layer;
  const costs::Parameters p = costs::parameters(costs::MoEConfig{128, 8, 2, 0, 0, true});
  return Computation()
      .count("parameters", p.total, 133128)
      .count("active a token", p.active, 34056)
      .shape("x [2, 10, 128] flattened", Rearrangement("b s d -> (b s) d", {2, 10, 128}).shape(), {20, 128})
      .shape("and back", Rearrangement("(b s) d -> b s d", {20, 128}, {{"b", 2}}).shape(), {2, 10, 128})
      .shape("output of the small layer", {layer.y.rows(), layer.y.cols()}, {6, 4})
      .holds();
}

const Equation kRows[] = {
    {"MOE-1", "004", "L30-33", "mixture_of_experts", "N experts, each token activates k (2 of 8)", V::ok,
     [] {
       IdentityDraw<double> draw(1);
       const Routing<double> routing = route(draw.normal(9, 8), 2);
       return Computation()
           .shape("selection of 9 tokens", {routing.experts.rows(), routing.experts.cols()}, {9, 2})
           .relation("all among 8", routing.experts.minCoeff() >= 0 && routing.experts.maxCoeff() < 8)
           .holds();
     }},
    {"COST-32", "004", "L36", "costs", "training and inference cost depends only on active parameters",
     V::ok_qualified,
     [] {
       const costs::MoEConfig eight{4096, 8, 2, 14336, 0, false};
       costs::MoEConfig sixty_four = eight;
       sixty_four.experts = 64;
       const costs::Count router = costs::linear_parameters(4096, 64 - 8);
       return Computation()
           .count("active parameters, 64 experts for 8, less the wider router",
                  costs::parameters(sixty_four).active - router, costs::parameters(eight).active)
           .relation("total parameters, which memory follows, grow more than sevenfold",
                     costs::parameters(sixty_four).total > 7 * costs::parameters(eight).total)
           .holds();
     }},
    {"COST-33", "004", "L38", "costs", "compute of a 7B model, capacity of a 50B model", V::untestable,
     [] {
       const costs::Parameters p = costs::parameters(costs::MoEDecoderConfig{});
       return Computation()
           .rounds_to("an 8 x 7B top-2 decoder, billions", static_cast<double>(p.total) / 1e9, 47, 0)
           .rounds_to("active", static_cast<double>(p.active) / 1e9, 13, 0)
           .untestable("illustrative, no model is named");
     }},
    {"MOE-2", "004", "L45", "mixture_of_experts", "h(x) = Softmax(x W_g)", V::ok,
     [] {
       const SmallMixture layer;
       const Routing<double> routing = route(router_logits(layer.x, layer.gate), 2);
       return Computation()
           .agree("h", routing.probabilities, softmax_rows(layer.x * layer.gate.transpose()))
           .holds();
     }},
    {"MOE-3", "004", "L48", "mixture_of_experts", "Gate(x) = TopK(h(x), k)", V::ok,
     [] {
       const Matrix<Index> chosen = top_k(row_of({0.1, 0.4, 0.2, 0.3}), 3);
       const Matrix<Index> tied = top_k(row_of({0.25, 0.25, 0.25, 0.25}), 2);
       return Computation()
           .shape("top 3 of (0.1, 0.4, 0.2, 0.3)", {chosen(0, 0), chosen(0, 1), chosen(0, 2)}, {1, 3, 2})
           .shape("of a tie, the lower first", {tied(0, 0), tied(0, 1)}, {0, 1})
           .holds();
     }},
    {"MOE-4", "004", "L53", "mixture_of_experts", "y = sum_{i in TopK} h(x)_i E_i(x)", V::inconsistent,
     unnormalised_weights},
    {"MOE-5", "004", "L58", "mixture_of_experts", "router collapse", V::untestable,
     [] {
       M p = M::Zero(4, 4);
       p.col(2).setOnes();
       return Computation()
           .equal("loss / alpha of a collapsed router of 4 experts", auxiliary_loss(p, top_k(p, 1), 1.0), 4.0)
           .untestable("whether training collapses has to be observed");
     }},
    {"MOE-6", "004", "L61", "mixture_of_experts", "L_aux = alpha N sum_i f_i P_i", V::ok,
     [] {
       M p(2, 2);
       p << 0.9, 0.1, 0.6, 0.4;
       return Computation()
           .equal("p = (0.9, 0.1), (0.6, 0.4), top 1: alpha 2 (1 x 0.75 + 0 x 0.25)",
                  auxiliary_loss(p, top_k(p, 1), 0.01), 0.015)
           .holds();
     }},
    {"MOE-6a", "004", "L61", "mixture_of_experts",
     "implied: dL_aux/dh(x_t)_i = alpha N f_i / T, with constant counts", V::ok,
     [] {
       M p(2, 2);
       p << 0.9, 0.1, 0.6, 0.4;
       M expected(2, 2);
       expected << 0.01, 0.0, 0.01, 0.0;
       return Computation()
           .agree("p = (0.9, 0.1), (0.6, 0.4), top 1: alpha 2 (1, 0) / 2 at each token",
                  auxiliary_loss_backward(p, top_k(p, 1), 0.01, 1.0), expected)
           .identity("backward_auxiliary_loss")
           .holds();
     }},
    {"MOE-7", "004", "L62", "mixture_of_experts", "f_i = fraction of tokens dispatched to expert i",
     V::ambiguous, load_fractions},
    {"MOE-8", "004", "L63", "mixture_of_experts", "P_i = mean probability that expert i is selected",
     V::erratum, selection_probability},
    {"MOE-9", "004", "L64", "mixture_of_experts", "goal: equal load", V::ok_qualified, balance_bound},
    {"MOE-10", "004", "L80", "mixture_of_experts", "gate = Linear(hidden, N)", V::inconsistent, gate_bias},
    {"MOE-11", "004", "L83-85", "mixture_of_experts",
     "experts = N x Linear(hidden, hidden), standing for an MLP", V::ok,
     [] {
       const SmallMixture layer;
       const LinearExpert<double>& expert = layer.experts[3];
       return Computation()
           .agree("E_3(x) = x W^T + b", expert(layer.x),
                  ((layer.x * expert.weight.transpose()).rowwise() + expert.bias.transpose()).eval())
           .count("parameters of one, 128 wide", costs::expert_parameters(costs::MoEConfig{}),
                  128 * 128 + 128)
           .holds();
     }},
    {"MOE-12", "004", "L88-90", "mixture_of_experts", "flatten [b, s, D] to [b s, D]", V::ok,
     [] {
       const SmallMixture layer;
       const M last = mixture_of_experts<double>(
           layer.x.bottomRows(2),
           route(router_logits<double>(layer.x.bottomRows(2), layer.gate, layer.bias), 2), layer.experts);
       return Computation()
           .shape("b s d -> (b s) d", Rearrangement("b s d -> (b s) d", {3, 2, 4}).shape(), {6, 4})
           .agree("the last of three rows of the batch, alone and among the others", last,
                  layer.y.bottomRows(2).eval())
           .identity("moe_toy_layer")
           .holds();
     }},
    {"MOE-13", "004", "L93-94", "mixture_of_experts", "probs = softmax(gate(x))", V::ok,
     [] {
       const SmallMixture layer;
       const M logits = (layer.x * layer.gate.transpose()).rowwise() + layer.bias.transpose();
       return Computation().agree("probs", layer.routing.probabilities, softmax_rows(logits)).holds();
     }},
    {"MOE-14", "004", "L99", "mixture_of_experts", "weights, indices = topk(probs, k)", V::ok,
     [] {
       const SmallMixture layer;
       const Routing<double> literal = route(layer.routing.logits, 2, TopKWeights::literal);
       bool largest = true;
       for (Index t = 0; t < 6; ++t) {
         largest = largest && literal.weights(t, 0) == literal.probabilities.row(t).maxCoeff() &&
                   literal.weights(t, 1) <= literal.weights(t, 0);
       }
       return Computation()
           .relation("the first weight is the largest probability, the second no larger", largest)
           .holds();
     }},
    {"MOE-15", "004", "L102", "mixture_of_experts", "weights /= sum(weights)", V::ok,
     [] {
       const SmallMixture layer;
       return Computation()
           .agree("sums of the weights", layer.routing.weights.rowwise().sum().eval(), Vec::Ones(6).eval())
           .agree("softmax over the selected logits", layer.routing.weights,
                  route_by_logits(layer.routing.logits, 2).weights)
           .identity("moe_top_k_of_logits")
           .holds();
     }},
    {"MOE-15a", "004", "L102", "mixture_of_experts",
     "implied: dl_i = w_i (dw_i - <w, dw>) of the selected experts, 0 of the others, 0 at all for k = 1",
     V::ok,
     [] {
       const Routing<double> one = route(M{{1.0, 0.0, -1.0}}, 2);
       const M d = route_backward(one, TopKWeights::renormalised, M{{1.0, 0.0}});
       const double w = one.weights(0, 0);
       return Computation()
           .equal("logits (1, 0, -1), k = 2, dw = (1, 0): dl of the first = w (1 - w)", d(0, 0),
                  w * (1.0 - w))
           .equal("dl of the second, its opposite", d(0, 1), -d(0, 0))
           .equal("dl of the third", d(0, 2), 0.0)
           .identity("backward_renormalised_router")
           .identity("backward_router_of_one")
           .identity("backward_router_softmax_of_all")
           .holds();
     }},
    {"MOE-16", "004", "L105-125", "mixture_of_experts",
     "loop over experts: gather tokens, apply, scale, index_add", V::ok, expert_loop},
    {"MOE-17", "004", "L127-133", "mixture_of_experts",
     "128 wide, 8 experts, top 2, x [2, 10, 128] -> same shape", V::ok, toy_layer},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_004_equations
