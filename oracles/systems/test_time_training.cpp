#include "reference/test_time_training.h"

#include "oracles/systems/instances.h"
#include "oracles/systems/row_costs.h"
#include "oracles/systems/rows.h"
#include "reference/delta_rule.h"

namespace samestate {
namespace {

const std::vector<Parameter> kWidths = {{"dk", 16, 1, 512, "key width"}, {"dv", 16, 1, 512, "value width"}};

/// One learning step for each token, each from a separate state: steps do not follow one another, so an error
/// in one cannot grow in the next.
Signature step_signature(const Call& call) {
  const Index dk = call.at("dk");
  const Index dv = call.at("dv");
  return {{{"S", Axis::tokens, {call.tokens, dk, dv}, Content::activation},
           {"k", Axis::tokens, {call.tokens, dk}, Content::activation},
           {"v", Axis::tokens, {call.tokens, dv}, Content::activation},
           {"eta", Axis::tokens, {call.tokens, 1}, Content::strength}},
          {{"S_next", Axis::tokens, {call.tokens, dk, dv}}}};
}

/// S' = step(S, k, v, eta) for every token.
template <class Scalar, class Step>
Tensors<Scalar> steps(const Call& call, const Tensors<Scalar>& inputs, const Step& step) {
  const Index dk = call.at("dk");
  Matrix<Scalar> S = get(inputs, "S");
  for (Index t = 0; t < call.tokens; ++t) {
    const Vector<Scalar> k = get(inputs, "k").row(t).transpose();
    const Vector<Scalar> v = get(inputs, "v").row(t).transpose();
    const Matrix<Scalar> before = S.middleRows(t * dk, dk);
    S.middleRows(t * dk, dk) = step(before, k, v, get(inputs, "eta")(t, 0));
  }
  return {{"S_next", std::move(S)}};
}

/// One token of the delta rule with write strength beta.
template <class Scalar>
Matrix<Scalar> delta_step(const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                          const Scalar& beta) {
  const Sequence<Scalar> x{Matrix<Scalar>::Zero(1, k.size()),
                           k.transpose(),
                           v.transpose(),
                           Vector<Scalar>::Zero(1),
                           Vector<Scalar>::Constant(1, beta),
                           Scalar(1),
                           S};
  return recurrent<DeltaRule>(x).state;
}

struct Gradient {
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return steps<Scalar>(call, inputs, [&](const auto& S, const auto& k, const auto& v, const Scalar& eta) {
      return call.form == "delta_rule" ? delta_step<Scalar>(S, k, v, eta)
                                       : gradient_step<Scalar>(S, squared_gradient<Scalar>(S, k, v), eta);
    });
  }
};

struct Proximal {
  template <class Scalar>
  static Tensors<Scalar> evaluate(const Call& call, const Tensors<Scalar>& inputs) {
    return steps<Scalar>(call, inputs, [&](const auto& S, const auto& k, const auto& v, const Scalar& eta) {
      return call.form == "delta_rule" ? delta_step<Scalar>(S, k, v, proximal_write_strength<Scalar>(k, eta))
                                       : proximal_step<Scalar>(S, k, v, eta);
    });
  }
};

}  // namespace

std::vector<Operator> test_time_training_operators() {
  Operator gradient{
      "gradient_step", "S' = S - eta k (S^T k - v)^T, the step of 1/2 |S^T k - v|^2 (DELTA-1, EQ-05)",
      kWidths,         {{"gradient"}, {"delta_rule"}},
      false,           step_signature};
  evaluate_with<Gradient>(gradient);
  gradient.token_wise = true;
  Operator proximal{"proximal_step", "S' = argmin 1/2 |X^T k - v|^2 + 1/(2 eta) |X - S|^2 (EQ-06)",
                    kWidths,         {{"normal_equations"}, {"delta_rule"}},
                    false,           step_signature};
  evaluate_with<Proximal>(proximal);
  // Elimination in float64 loses the condition of I + eta k k^T, up to 2^44 for long keys; by EQ-06 both
  // forms are equal, which its identity shows in 50 digits.
  proximal.exact = [](const Call& call, const Tensors<double>& inputs) {
    Call explicit_form = call;
    explicit_form.form = "delta_rule";
    return Proximal::evaluate<double>(explicit_form, inputs);
  };
  proximal.token_wise = true;
  // Elimination in I + eta k k^T with dv right-hand sides.
  proximal.cost = [](const Call& call, const Signature&) {
    if (call.form != "normal_equations") return Cost{};
    const costs::Count dk = call.at("dk");
    return Cost{costs::product({call.tokens, dk, dk, costs::sum({2 * dk / 3, 2 * call.at("dv")})})};
  };
  return {std::move(gradient), std::move(proximal)};
}

}  // namespace samestate
