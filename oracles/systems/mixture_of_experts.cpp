#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <utility>

#include "oracles/systems/routing.h"
#include "oracles/systems/rows.h"
#include "reference/costs/mixture_of_experts.h"
#include "reference/layers/qwen3_next_moe.h"

namespace samestate {
namespace {

const std::vector<OperatorForm> kForms = {{"loop"}, {"dense"}, {"sorted"}, {"per_token"}};

ExpertForm form_named(std::string_view name) {
  if (name == "dense") return ExpertForm::dense;
  if (name == "sorted") return ExpertForm::sorted;
  return name == "per_token" ? ExpertForm::per_token : ExpertForm::loop;
}

/// x and the weights of the experts, an expert after the other.
Signature with_experts(const Call& call) {
  const Index N = call.at("N");
  if (call.at("K") > N) {
    throw Error("K=" + std::to_string(call.at("K")) + ": there are only N=" + std::to_string(N) +
                " experts to choose from; write K=" + std::to_string(N) + " or less, or a larger N");
  }
  const Index D = call.at("D");
  const Index F = call.at("F");
  return {{{"x", Axis::tokens, {call.tokens, D}, Content::activation},
           {"gate", Axis::whole, {N, F, D}, Content::weight},
           {"up", Axis::whole, {N, F, D}, Content::weight},
           {"down", Axis::whole, {N, D, F}, Content::weight}},
          {{"y", Axis::tokens, {call.tokens, D}}}};
}

template <class Scalar>
std::vector<SwiGluExpert<Scalar>> experts_of(const Call& call, const Tensors<Scalar>& inputs) {
  const Index D = call.at("D");
  const Index F = call.at("F");
  std::vector<SwiGluExpert<Scalar>> experts;
  for (Index i = 0; i < call.at("N"); ++i) {
    experts.push_back({get(inputs, "gate").middleRows(i * F, F), get(inputs, "up").middleRows(i * F, F),
                       get(inputs, "down").middleRows(i * D, D)});
  }
  return experts;
}

/// Of tokens that each pass K experts; all may choose the same ones, so that no more need be read.
Cost cost_of(const Call& call, const costs::Parameters& a_token, costs::Count one_expert) {
  const costs::Count idle = call.at("N") - (call.tokens > 0 ? call.at("K") : 0);
  return {costs::product({2, call.tokens, a_token.active}), costs::product({idle, one_expert})};
}

/// The routing comes from logits that are inputs: comparing them takes no arithmetic, so every kernel chooses
/// alike, ties by the rule. The weights' error is that of softmax over all and renormalisation, which is no
/// less than that of softmax over the selected.
struct Experts {
  static Signature signature(const Call& call) {
    Signature s = with_experts(call);
    s.inputs.push_back({"logits", Axis::tokens, {call.tokens, call.at("N")}, Content::activation});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>& logits = get(inputs, "logits");
    const Routing<Scalar> routing = route_to(logits, top_k(logits, call.at("K")));
    return {{"y",
             mixture_of_experts(get(inputs, "x"), routing, experts_of(call, inputs), form_named(call.form))}};
  }
};

/// What any expert may make of a token, at most: by sums of absolute values, so that it takes no expert's products.
class Largest {
 public:
  Largest(const Call& call, const Tensors<Running>& inputs) {
    if (call.tokens == 0) return;
    gate_ = most(get(inputs, "gate"));
    up_ = most(get(inputs, "up"));
    down_ = most(get(inputs, "down"));
  }

  /// The largest of what an expert keeps on its way from this row of x, and of what it returns.
  template <class Row>
  [[nodiscard]] double of(const Row& x) const {
    double size = 0.0;
    for (Index j = 0; j < x.size(); ++j) size = std::max(size, std::abs(x(j).value()));
    const double hidden = size * gate_ * size * up_;
    return std::max({size * gate_, size * up_, hidden, hidden * down_});
  }

 private:
  [[nodiscard]] static double most(const Matrix<Running>& weight) {
    return weight.unaryExpr([](const Running& w) { return std::abs(w.value()); }).rowwise().sum().maxCoeff();
  }

  double gate_ = 0.0, up_ = 0.0, down_ = 0.0;
};

/// The whole block, its own router included.
struct Block {
  static Signature signature(const Call& call) {
    const Index D = call.at("D");
    const Index shared = call.at("Fs");
    Signature s = with_experts(call);
    s.inputs.push_back({"router", Axis::whole, {call.at("N"), D}, Content::weight});
    s.inputs.push_back({"shared_gate_proj", Axis::whole, {shared, D}, Content::weight});
    s.inputs.push_back({"shared_up", Axis::whole, {shared, D}, Content::weight});
    s.inputs.push_back({"shared_down", Axis::whole, {D, shared}, Content::weight});
    s.inputs.push_back({"shared_gate", Axis::whole, {1, D}, Content::weight});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Index K = call.at("K");
    const Qwen3NextMoeWeights<Scalar> weights{
        get(inputs, "router"),
        experts_of(call, inputs),
        {get(inputs, "shared_gate_proj"), get(inputs, "shared_up"), get(inputs, "shared_down")},
        get(inputs, "shared_gate")};
    const Qwen3NextMoe<Scalar> out = qwen3_next_moe(get(inputs, "x"), weights, K, form_named(call.form));
    Matrix<Scalar> y = out.y;
    if constexpr (std::is_same_v<Scalar, Running>) {
      // Where the choice may turn, nothing can be said of the token.
      const Largest largest(call, inputs);
      for (Index t = 0; t < call.tokens; ++t) {
        if (decided(certain_choice(out.routing.logits.row(t), out.routing.probabilities.row(t), K))) continue;
        const double size = largest.of(get(inputs, "x").row(t));
        for (Index j = 0; j < y.cols(); ++j) y(t, j) = Running::unknown(y(t, j), size);
      }
    }
    return {{"y", std::move(y)}};
  }
};

}  // namespace

std::vector<Operator> mixture_of_experts_operators() {
  const std::vector<Parameter> sizes = {{"D", 20, 1, 16384, "model width"},
                                        {"N", 5, 1, 1024, "experts"},
                                        {"K", 2, 1, 64, "experts a token"},
                                        {"F", 12, 1, 16384, "width of an expert"}};
  Operator experts{
      "mixture_of_experts",
      "y = sum over the K largest logits of w_i W_down (silu(W_gate x) * W_up x), w = softmax over those K "
      "(MOE-15, MOE-16, EQ-19)",
      sizes,
      kForms,
      false,
      Experts::signature};
  evaluate_with<Experts>(experts);
  experts.token_wise = true;
  experts.cost = [](const Call& call) {
    const costs::Count one = costs::product({3, call.at("D"), call.at("F")});
    return cost_of(call, {0, costs::product({call.at("K"), one})}, one);
  };
  Operator block{"qwen3_next_moe",
                 "renormalised top-K experts of the block's own router, plus sigma(x w_sg) shared expert "
                 "(EQUATIONS 5.8, CFG-12)",
                 sizes,
                 kForms,
                 false,
                 Block::signature};
  block.parameters.push_back({"Fs", 9, 1, 16384, "width of the shared expert"});
  evaluate_with<Block>(block);
  block.token_wise = true;
  block.cost = [](const Call& call) {
    const costs::MoEConfig all{call.at("D"), call.at("N"), call.at("K"), call.at("F"), call.at("Fs"), false};
    return cost_of(call, costs::parameters(all), costs::expert_parameters(all));
  };
  return {std::move(experts), std::move(block)};
}

}  // namespace samestate
