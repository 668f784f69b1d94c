#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "oracles/limits.h"
#include "oracles/numbers.h"
#include "oracles/systems/instances.h"
#include "oracles/systems/routing.h"
#include "oracles/systems/rows.h"
#include "oracles/systems/scalars.h"
#include "reference/costs/mixture_of_experts.h"
#include "reference/layers/qwen3_next_moe.h"

namespace samestate {
namespace {

constexpr Index kMostOfChoices =
    1 << 21;                            // elements that are summed to compare the choices of a call's tokens
constexpr Index kOfOneSum = 64;         // the cost of a sum in elements, besides its own
constexpr int kMostAlone = 4;           // tokens of a call that are evaluated individually
constexpr double kLeastWeight = 1e-30;  // least weights of a choice; below, quotients are NaN in fp32
constexpr double kLeastUnitOfOutputs = 0x1p-7;  // that of bf16, the coarsest rounding of an output

const std::vector<OperatorForm> kForms = {{"loop"}, {"dense"}, {"sorted"}, {"per_token"}};

ExpertForm form_named(std::string_view name) {
  if (name == "dense") return ExpertForm::dense;
  if (name == "sorted") return ExpertForm::sorted;
  return name == "per_token" ? ExpertForm::per_token : ExpertForm::loop;
}

bool chooses_of_experts(const Call& call) { return call.at("K") <= call.at("N"); }

/// x and the weights of the experts, one expert after the other.
Signature with_experts(const Call& call) {
  const Index N = call.at("N");
  if (!chooses_of_experts(call)) {
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

/// The cost for tokens that each use K experts; all may choose the same ones, so no more weights than those
/// need be read.
Cost cost_of(const Call& call, const costs::Parameters& a_token, costs::Count one_expert) {
  const costs::Count idle = call.at("N") - (call.tokens > 0 ? call.at("K") : 0);
  return {costs::product({2, call.tokens, a_token.active}), costs::product({idle, one_expert})};
}

/// The largest value that any expert may compute from a token: by sums of absolute values, which needs no
/// products of the experts.
class Largest {
 public:
  Largest(const Call& call, const Tensors<Running>& inputs) {
    if (call.tokens == 0) return;
    gate_ = most(get(inputs, "gate"));
    up_ = most(get(inputs, "up"));
    down_ = most(get(inputs, "down"));
  }

  /// The largest intermediate value or result of an expert for this row of x.
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

/// If the choice may change, nothing can be said about a token.
void leave_open(const Call& call, const Tensors<Running>& inputs, const Routing<Running>& routing,
                Matrix<Running>& y) {
  std::optional<Largest> largest;  // sums of all weights, which most calls do not need
  for (Index t = 0; t < call.tokens; ++t) {
    if (is_chosen(call, t)) continue;
    if (decided(certain_choice(routing.logits.row(t), routing.probabilities.row(t), call.at("K")))) continue;
    if (!largest) largest.emplace(call, inputs);
    const double size = largest->of(get(inputs, "x").row(t));
    for (Index j = 0; j < y.cols(); ++j) y(t, j) = Running::unknown(y(t, j), size);
  }
}

/// A choice [1, K] in order of descending probability, its distance from the kernel's outputs and the
/// smallest distance that another choice may have. The kernel's weights come from logits that may be stored
/// in 16 bits, where two experts that are almost equal may change places, so that the wrong one's weights
/// come nearer.
struct Nearest {
  Matrix<Index> chosen;
  double distance = kInfinity;
  double next = kInfinity;
};

/// Found from `rest` and the weighted outputs of the experts; a choice of -1 if no weights are finite.
Nearest nearest(const Choices& choices, const Matrix<Running>& logits, const Matrix<Running>& probabilities,
                const Matrix<double>& rest, const Matrix<double>& y, const auto& output_of) {
  std::map<Index, Matrix<double>> outputs;
  for (const Index i : choices.possible()) outputs[i] = output_of(i);
  double least_of_best = kInfinity;
  Nearest best{Matrix<Index>::Constant(1, choices.places(), -1)};
  choices.each([&](std::vector<Index> chosen) {
    double weight = 0.0;
    Matrix<double> sum = Matrix<double>::Zero(1, y.cols());
    for (const Index i : chosen) {
      weight += probabilities(0, i).value();
      sum += probabilities(0, i).value() * outputs[i];
    }
    sum /= weight;
    const double distance = (sum + rest - y).norm();
    if (!(weight > kLeastWeight) || std::isnan(distance)) return;
    double most = 0.0, moved = 0.0;
    for (const Index i : chosen) most = std::max(most, logits(0, i).error());
    for (const Index i : chosen) {
      moved += std::expm1(std::min(logits(0, i).error() + most, 1.0)) * probabilities(0, i).value() / weight *
               (outputs[i] - sum).norm();
    }
    const double least = std::max(distance - moved, 0.0);
    if (!(distance < best.distance)) {
      best.next = std::min(best.next, least);
      return;
    }
    best.next = std::min(best.next, std::exchange(least_of_best, least));
    best.distance = distance;
    std::ranges::stable_sort(chosen, std::greater<>(), [&](Index i) { return probabilities(0, i).value(); });
    for (std::size_t r = 0; r < chosen.size(); ++r) best.chosen(0, static_cast<Index>(r)) = chosen[r];
  });
  return best;
}

/// True if the kernel's outputs for token t are farther from the nearest choice's than its worst case, and
/// than another choice's, which has the same size, may be.
template <class Row>
bool beyond_roundings(const Call& call, const Tensors<double>& inputs, Index t, const Nearest& found) {
  Call one = call;
  one.tokens = 1;
  one.choice = std::make_shared<const Matrix<Index>>(found.chosen);
  Tensors<Running> token = as<Running>(inputs);
  for (const TensorSpec& spec : Row::signature(call).inputs) {
    if (spec.axis == Axis::tokens)
      token[spec.name] = as<Running>(Matrix<double>(get(inputs, spec.name).row(t)));
  }
  const Matrix<Running> y = get(Row::template evaluate<Running>(one, token), "y");
  double most = 0.0;
  for (Index j = 0; j < y.cols(); ++j) {
    const double error = y(0, j).error() + kLeastUnitOfOutputs * std::abs(y(0, j).value());
    most += error * error;
  }
  return found.distance > kChoiceWorstCases * std::sqrt(most);
}

/// Among the open choices, the one whose outputs are nearest to the kernel's, if all others are far away and
/// this is not by chance: with few channels, roundings may come near the outputs of another choice if
/// something is kept in fewer bits than fp32. Also the nearest if it is too far for any rounding: then the
/// kernel made no valid choice. `rest_of(t)` is what is added to the experts' outputs.
template <class Row>
Matrix<Index> choice_by_outputs(const Call& call, const Tensors<double>& inputs,
                                const Tensors<double>& actual, const Matrix<Running>& logits,
                                const std::function<Matrix<double>(Index)>& rest_of) {
  const Index K = call.at("K");
  Matrix<Index> chosen = Matrix<Index>::Constant(call.tokens, K, -1);
  const Matrix<Running> probabilities = softmax(logits);
  const RunningModel& model = detail::running_model();
  const bool few_bits = model.stored_unit > 0.0 || model.operand != Format::none;
  std::optional<std::vector<SwiGluExpert<double>>> experts;
  Index room = kMostOfChoices;
  int alone = 0;
  for (Index t = 0; t < call.tokens; ++t) {
    const Choices choices(certain_choice(logits.row(t), probabilities.row(t), K), K);
    const Matrix<double> y = get(actual, "y").row(t);
    const Index work = choices.count() * K * (y.cols() + kOfOneSum);
    if (choices.count() < 2 || work > room || !y.allFinite()) continue;
    room -= work;
    if (!experts) experts = experts_of(call, inputs);
    const Nearest found = nearest(choices, logits.row(t), probabilities.row(t), rest_of(t), y, [&](Index i) {
      return (*experts)[static_cast<std::size_t>(i)](get(inputs, "x").row(t));
    });
    const bool apart =
        (!few_bits || y.cols() >= kChoiceChannels) && found.next > kChoiceFarther * found.distance;
    if (found.chosen(0, 0) < 0 || (!apart && alone++ >= kMostAlone)) continue;
    if (apart || beyond_roundings<Row>(call, inputs, t, found)) chosen.row(t) = found.chosen;
  }
  return chosen;
}

/// The routing comes from logits that are inputs. A kernel compares them, or the probabilities computed from
/// them, as public routers do: logits that are so close that roundings make their probabilities equal may
/// tie, and either choice is right (EQUATIONS 8.2). The error of the weights is that of softmax over all and
/// renormalisation, which is no less than that of softmax over the selected ones.
struct Experts {
  static Signature signature(const Call& call) {
    Signature s = with_experts(call);
    s.inputs.push_back({"logits", Axis::tokens, {call.tokens, call.at("N")}, Content::activation});
    return s;
  }
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    const Matrix<Scalar>& logits = get(inputs, "logits");
    const Routing<Scalar> routing = route_to(logits, as_chosen(call, top_k(logits, call.at("K"))));
    Matrix<Scalar> y =
        mixture_of_experts(get(inputs, "x"), routing, experts_of(call, inputs), form_named(call.form));
    if constexpr (std::is_same_v<Scalar, Running>) leave_open(call, inputs, routing, y);
    return {{"y", std::move(y)}};
  }
  static Matrix<Index> choice(const Call& call, const Tensors<double>& inputs,
                              const Tensors<double>& actual) {
    return choice_by_outputs<Experts>(call, inputs, actual, as<Running>(get(inputs, "logits")), [&](Index) {
      return Matrix<double>(Matrix<double>::Zero(1, call.at("D")));
    });
  }
};

/// The whole block, including its router.
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
    const Matrix<Scalar> logits = router_logits(get(inputs, "x"), weights.router);
    const Qwen3NextMoe<Scalar> out = qwen3_next_moe_routed(
        get(inputs, "x"), weights, route_to(logits, as_chosen(call, top_k(softmax(logits), K))),
        form_named(call.form));
    Matrix<Scalar> y = out.y;
    if constexpr (std::is_same_v<Scalar, Running>) leave_open(call, inputs, out.routing, y);
    return {{"y", std::move(y)}};
  }

  static Matrix<Index> choice(const Call& call, const Tensors<double>& inputs,
                              const Tensors<double>& actual) {
    return choice_by_outputs<Block>(
        call, inputs, actual,
        router_logits(as<Running>(get(inputs, "x")), as<Running>(get(inputs, "router"))),
        [&](Index t) { return rest_of(inputs, t); });
  }

 private:
  /// The contribution of the shared expert to a token.
  static Matrix<double> rest_of(const Tensors<double>& inputs, Index t) {
    const Matrix<double> x = get(inputs, "x").row(t);
    const SwiGluExpert<double> shared{get(inputs, "shared_gate_proj"), get(inputs, "shared_up"),
                                      get(inputs, "shared_down")};
    return logistic(linear(x, get(inputs, "shared_gate")))(0, 0) * shared(x);
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
  experts.choice = Experts::choice;
  experts.possible = chooses_of_experts;
  experts.token_wise = true;
  experts.cost = [](const Call& call, const Signature&) {
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
  block.choice = Block::choice;
  block.possible = chooses_of_experts;
  block.token_wise = true;
  block.cost = [](const Call& call, const Signature&) {
    const costs::MoEConfig all{call.at("D"), call.at("N"), call.at("K"), call.at("F"), call.at("Fs"), false};
    return cost_of(call, costs::parameters(all), costs::expert_parameters(all));
  };
  return {std::move(experts), std::move(block)};
}

}  // namespace samestate
