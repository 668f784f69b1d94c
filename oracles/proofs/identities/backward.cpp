#include <algorithm>
#include <limits>
#include <vector>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/recurrent_draw.h"
#include "reference/backward/chunk.h"
#include "reference/backward/mixture_of_experts.h"
#include "reference/backward/recurrence.h"
#include "reference/delta_rule.h"
#include "reference/dual_number.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/test_time_training.h"

namespace samestate::backward_identities {
namespace {

using identity_draws::draw_head;

/// A head, the cotangents of its outputs, its outputs and its gradients.
template <class System, class Scalar>
struct Differentiated {
  Sequence<Scalar> x;
  HeadCotangents<Scalar> d;
  Trajectory<Scalar> y;
  HeadGradients<Scalar> g;
  explicit Differentiated(std::uint64_t seed) : x(draw_head<Scalar>(seed)) {
    IdentityDraw<Scalar> draw(seed + 1000);
    d = {draw.normal(x.tokens(), x.value_width()), draw.normal(x.key_width(), x.value_width())};
    y = recurrent<System>(x);
    g = recurrent_backward<System>(x, d);
  }
  /// <do, o> + <dS, S> of the outputs for other inputs.
  [[nodiscard]] Scalar loss(const Sequence<Scalar>& inputs) const {
    const Trajectory<Scalar> out = recurrent<System>(inputs);
    return d.o.cwiseProduct(out.o).sum() + d.state.cwiseProduct(out.state).sum();
  }
};

/// |a - b| over |b|, or over `size` where b may cancel.
template <class Scalar>
double scalar_difference(const Scalar& a, const Scalar& b, const Scalar& size) {
  using std::abs;
  return static_cast<double>(Scalar(abs(Scalar(a - b)) / size));
}

/// The adjoint identity along one direction of all inputs, J by dual numbers through the forward template.
template <class System, class Scalar>
double adjoint(std::uint64_t seed) {
  using Dual = DualNumber<Scalar>;
  const Differentiated<System, Scalar> of(seed);
  IdentityDraw<Scalar> draw(seed + 2000);
  Sequence<Dual> x = of.x.template cast<Dual>();
  Scalar inner(0), size(0);
  const auto move = [&](auto& into, const auto& gradient) {
    using std::abs;
    for (Index i = 0; i < gradient.size(); ++i) {
      const Scalar along = draw.normal(1, 1)(0, 0);
      into.data()[i] = Dual(into.data()[i].value(), along);
      const Scalar term = along * gradient.data()[i];
      inner += term;
      size += Scalar(abs(term));
    }
  };
  move(x.q, of.g.q);
  move(x.k, of.g.k);
  move(x.v, of.g.v);
  move(x.g, of.g.g);
  move(x.beta, of.g.beta);
  move(x.initial_state, of.g.initial_state);
  const Trajectory<Dual> y = recurrent<System>(x);
  Scalar derivative(0);
  for (Index i = 0; i < y.o.size(); ++i) derivative += of.d.o.data()[i] * y.o.data()[i].derivative();
  for (Index i = 0; i < y.state.size(); ++i)
    derivative += of.d.state.data()[i] * y.state.data()[i].derivative();
  return scalar_difference(inner, derivative, size);
}

template <class Scalar>
double gradient_difference(const HeadGradients<Scalar>& a, const HeadGradients<Scalar>& b) {
  return std::max({relative_difference(a.q, b.q), relative_difference(a.k, b.k),
                   relative_difference(a.v, b.v), relative_difference(a.g, b.g),
                   relative_difference(a.beta, b.beta),
                   relative_difference(a.initial_state, b.initial_state)});
}

template <class System, class Scalar>
double reverse_in_chunks(std::uint64_t seed) {
  const Differentiated<System, Scalar> of(seed);
  double worst = 0.0;
  for (const Index chunk : {1, 4, 11, 64})
    worst = std::max(worst, gradient_difference(chunked_backward<System>(of.x, of.d, chunk), of.g));
  return worst;
}

/// Row by row: q . dq and do . o.
template <class Scalar>
double query_sums(std::uint64_t seed) {
  const Differentiated<GatedDeltaRule, Scalar> of(seed);
  return relative_difference(detail::row_products(of.x.q, of.g.q), detail::row_products(of.d.o, of.y.o));
}

/// k . dk + v . dv and 2 beta dbeta.
template <class Scalar>
double key_value_sums(std::uint64_t seed) {
  const Differentiated<GatedDeltaRule, Scalar> of(seed);
  const Vector<Scalar> left = detail::row_products(of.x.k, of.g.k) + detail::row_products(of.x.v, of.g.v);
  const Vector<Scalar> right = Scalar(2) * of.x.beta.cwiseProduct(of.g.beta);
  return relative_difference(left, right);
}

/// dg_t and <dS_T, S_T> + sum_{i >= t} (do . o - v . dv).
template <class Scalar>
double decay_sums(std::uint64_t seed) {
  const Differentiated<GatedDeltaRule, Scalar> of(seed);
  Vector<Scalar> sums = detail::row_products(of.d.o, of.y.o) - detail::row_products(of.x.v, of.g.v);
  sums = detail::reverse_sums(std::move(sums));
  sums.array() += Scalar(of.d.state.cwiseProduct(of.y.state).sum());
  return std::max(relative_difference(sums, of.g.g),
                  scalar_difference(Scalar(of.g.initial_state.cwiseProduct(of.x.initial_state).sum()),
                                    of.g.g(0), Scalar(of.g.g.cwiseAbs().maxCoeff())));
}

/// The forward pass alone, without truncation error: L is affine in e^{g_t} and beta_t, quadratic in k_t.
template <class Scalar>
double forward_differences(std::uint64_t seed) {
  const Differentiated<GatedDeltaRule, Scalar> of(seed);
  const Index t = 20;
  const Scalar whole = of.loss(of.x);
  Sequence<Scalar> reset = of.x, unwritten = of.x, above = of.x, below = of.x;
  reset.g(t) = -std::numeric_limits<Scalar>::infinity();
  unwritten.beta(t) = Scalar(0);
  const Matrix<Scalar> along = IdentityDraw<Scalar>(seed + 3000).normal(1, of.x.key_width());
  above.k.row(t) += along;
  below.k.row(t) -= along;
  using std::abs;
  const Scalar size = abs(whole);
  const Scalar plus = of.loss(above), minus = of.loss(below);
  return std::max(
      {scalar_difference(of.g.g(t), Scalar(whole - of.loss(reset)), size),
       scalar_difference(Scalar(of.x.beta(t) * of.g.beta(t)), Scalar(whole - of.loss(unwritten)), size),
       scalar_difference(Scalar(of.g.k.row(t).cwiseProduct(along).sum()), Scalar((plus - minus) / Scalar(2)),
                         Scalar(abs(plus) + abs(minus)))});
}

/// The gradient of the logits [T, N] by dual numbers through route_to, and by hand, which may be wrong.
template <class Scalar>
double router_gradient(std::uint64_t seed, TopKWeights mode, TopKWeights used, Index K) {
  using Dual = DualNumber<Scalar>;
  IdentityDraw<Scalar> draw(seed);
  const Matrix<Scalar> logits = draw.normal(5, 7);
  const Routing<Scalar> routing = route(logits, K, mode);
  const Matrix<Scalar> d = draw.normal(5, K);
  Matrix<Scalar> by_dual(5, 7);
  for (Index i = 0; i < logits.size(); ++i) {
    Matrix<Dual> moved = logits.template cast<Dual>();
    moved.data()[i] = Dual(logits.data()[i], Scalar(1));
    const Matrix<Dual> w = route_to(moved, routing.experts, mode).weights;
    by_dual.data()[i] = Scalar(0);
    for (Index j = 0; j < w.size(); ++j) by_dual.data()[i] += d.data()[j] * w.data()[j].derivative();
  }
  return relative_difference(route_backward(routing, used, d), by_dual);
}

/// The auxiliary loss by the logits, with the counts as constants.
template <class Scalar>
double auxiliary_gradient(std::uint64_t seed) {
  using Dual = DualNumber<Scalar>;
  IdentityDraw<Scalar> draw(seed);
  const Matrix<Scalar> logits = draw.normal(5, 7);
  const Routing<Scalar> routing = route(logits, 2);
  const Scalar alpha(0.125);
  Matrix<Scalar> by_dual(5, 7);
  for (Index i = 0; i < logits.size(); ++i) {
    Matrix<Dual> moved = logits.template cast<Dual>();
    moved.data()[i] = Dual(logits.data()[i], Scalar(1));
    by_dual.data()[i] = auxiliary_loss(softmax(moved), routing.experts, Dual(alpha)).derivative();
  }
  const Matrix<Scalar> dp = auxiliary_loss_backward(routing.probabilities, routing.experts, alpha, Scalar(1));
  return relative_difference(softmax_backward(routing.probabilities, dp), by_dual);
}

/// One token and the gradient D of the state after it. Nothing reads its output.
template <class Scalar>
struct LearnedToken {
  Sequence<Scalar> x;
  Matrix<Scalar> D;
  explicit LearnedToken(std::uint64_t seed, double write, double decay) {
    IdentityDraw<Scalar> draw(seed);
    x = {draw.normal(1, 4),
         draw.normal(1, 4),
         draw.normal(1, 3),
         Vector<Scalar>::Zero(1),
         Vector<Scalar>::Constant(1, Scalar(write)),
         Scalar(1),
         draw.normal(4, 3)};
    using std::log;
    x.g(0) = log(Scalar(decay));
    D = draw.normal(4, 3);
  }
  [[nodiscard]] HeadCotangents<Scalar> cotangents() const { return {Matrix<Scalar>::Zero(1, 3), D}; }
  [[nodiscard]] Vector<Scalar> k() const { return x.k.row(0).transpose(); }
};

/// A step S - eta grad of the squared loss, reversed: D loses eta times the second derivative applied to D,
/// which is the gradient of the same loss at D with the target 0.
template <class Scalar>
double reverse_of_squared_step(std::uint64_t seed) {
  const LearnedToken<Scalar> of(seed, 0.375, 1.0);
  const Vector<Scalar> no_target = Vector<Scalar>::Zero(3);
  const Matrix<Scalar> expected =
      gradient_step(of.D, squared_gradient(of.D, of.k(), no_target), of.x.beta(0));
  return relative_difference(recurrent_backward<DeltaRule>(of.x, of.cotangents()).initial_state, expected);
}

/// The same of the ridge loss at the step 1: its second derivative is (1 - gamma) times the identity.
template <class Scalar>
double reverse_of_ridge_step(std::uint64_t seed) {
  const LearnedToken<Scalar> of(seed, 1.0, 0.875);
  const Vector<Scalar> no_target = Vector<Scalar>::Zero(3);
  const Matrix<Scalar> expected =
      gradient_step(of.D, ridge_gradient(of.D, of.k(), no_target, Scalar(0.875)), Scalar(1));
  return relative_difference(recurrent_backward<Retention>(of.x, of.cotangents()).initial_state, expected);
}

/// The inner-product loss has no second derivative: D passes, and key and value receive D v and D^T k.
template <class Scalar>
double reverse_of_inner_product_step(std::uint64_t seed) {
  const LearnedToken<Scalar> of(seed, 1.0, 1.0);
  const HeadGradients<Scalar> g = recurrent_backward<LinearAttention>(of.x, of.cotangents());
  const Matrix<Scalar> dk = (of.D * of.x.v.transpose()).transpose();
  const Matrix<Scalar> dv = of.x.k * of.D;
  return std::max({relative_difference(g.initial_state, of.D), relative_difference(g.k, dk),
                   relative_difference(g.v, dv)});
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  using enum TopKWeights;
  return {
      {"EQ-29", "backward_gated_delta_rule", "gated_delta_rule",
       "gradients . dx = cotangents . J dx, J by dual numbers through the recurrence", equal,
       []<class Scalar>(std::uint64_t seed) { return adjoint<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-29", "backward_delta_rule", "delta_rule", "the same of the delta rule", equal,
       []<class Scalar>(std::uint64_t seed) { return adjoint<DeltaRule, Scalar>(seed); }},
      {"EQ-29", "backward_retention", "retention", "the same of retention", equal,
       []<class Scalar>(std::uint64_t seed) { return adjoint<Retention, Scalar>(seed); }},
      {"EQ-29", "backward_linear_attention", "linear_attention", "the same of linear attention", equal,
       []<class Scalar>(std::uint64_t seed) { return adjoint<LinearAttention, Scalar>(seed); }},
      {"EQ-30", "backward_chunks_gated_delta_rule", "gated_delta_rule",
       "reverse recurrence = reverse of the WY form, C = 1, 4, 11, 64", equal,
       []<class Scalar>(std::uint64_t seed) { return reverse_in_chunks<GatedDeltaRule, Scalar>(seed); }},
      {"EQ-30", "backward_chunks_delta_rule", "delta_rule", "the same of the delta rule", equal,
       []<class Scalar>(std::uint64_t seed) { return reverse_in_chunks<DeltaRule, Scalar>(seed); }},
      {"EQ-30", "backward_chunks_retention", "retention", "the same of retention", equal,
       []<class Scalar>(std::uint64_t seed) { return reverse_in_chunks<Retention, Scalar>(seed); }},
      {"EQ-30", "backward_chunks_linear_attention", "linear_attention", "the same of linear attention", equal,
       []<class Scalar>(std::uint64_t seed) { return reverse_in_chunks<LinearAttention, Scalar>(seed); }},
      {"EQ-31", "backward_query_sums", "gated_delta_rule", "q . dq = do . o at every token", equal,
       []<class Scalar>(std::uint64_t seed) { return query_sums<Scalar>(seed); }},
      {"EQ-31", "backward_key_value_sums", "gated_delta_rule",
       "k . dk + v . dv = 2 beta dbeta at every token", equal,
       []<class Scalar>(std::uint64_t seed) { return key_value_sums<Scalar>(seed); }},
      {"EQ-31", "backward_decay_sums", "gated_delta_rule",
       "dg_t = <dS_T, S_T> + sum_{i >= t} (do . o - v . dv), and dg_1 = <dS_0, S_0>", equal,
       []<class Scalar>(std::uint64_t seed) { return decay_sums<Scalar>(seed); }},
      {"EQ-32", "backward_forward_differences", "gated_delta_rule",
       "dg_t = L - L(reset at t), beta dbeta = L - L(beta_t = 0), <dk_t, d> = (L(k_t + d) - L(k_t - d)) / 2",
       equal, []<class Scalar>(std::uint64_t seed) { return forward_differences<Scalar>(seed); }},
      {"EQ-33 MOE-15a", "backward_renormalised_router", "mixture_of_experts",
       "dl_i = w_i (dw_i - <w, dw>) of the chosen = dual numbers through softmax, top-k and division", equal,
       []<class Scalar>(std::uint64_t seed) {
         return router_gradient<Scalar>(seed, renormalised, renormalised, 3);
       }},
      {"EQ-33", "backward_literal_router", "mixture_of_experts", "the same of weights as they are", equal,
       []<class Scalar>(std::uint64_t seed) { return router_gradient<Scalar>(seed, literal, literal, 3); }},
      {"MOE-15a", "backward_router_of_one", "mixture_of_experts",
       "the renormalised weight of a single expert has no gradient", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Routing<Scalar> routing = route(IdentityDraw<Scalar>(seed).normal(5, 7), 1);
         const Matrix<Scalar> d = IdentityDraw<Scalar>(seed + 1).normal(5, 1);
         return static_cast<double>(Scalar(route_backward(routing, renormalised, d).cwiseAbs().maxCoeff()));
       }},
      {"MOE-6a", "backward_auxiliary_loss", "mixture_of_experts",
       "alpha N f_i / T through the probabilities alone = dual numbers with constant counts", equal,
       []<class Scalar>(std::uint64_t seed) { return auxiliary_gradient<Scalar>(seed); }},
      {"NC-router-of-all", "backward_router_softmax_of_all", "mixture_of_experts",
       "the gradient of weights as they are, for renormalised ones", differs,
       []<class Scalar>(std::uint64_t seed) {
         return router_gradient<Scalar>(seed, renormalised, literal, 3);
       }},
      {"NC-final-cotangent", "backward_without_final_cotangent", "gated_delta_rule",
       "the gradients without the cotangent of the final state", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Differentiated<GatedDeltaRule, Scalar> of(seed);
         return gradient_difference(recurrent_backward<GatedDeltaRule>(of.x, {of.d.o, {}}), of.g);
       }},
      {"TTT-4a", "backward_inner_product_step", "test_time_training",
       "reverse of linear attention = reverse of a step on the inner-product loss: dS = D, dk = D v, dv = "
       "D^T k",
       equal, []<class Scalar>(std::uint64_t seed) { return reverse_of_inner_product_step<Scalar>(seed); }},
      {"TTT-5a", "backward_ridge_step", "test_time_training",
       "reverse of retention = a step on the ridge loss from D with the target 0: dS = gamma D", equal,
       []<class Scalar>(std::uint64_t seed) { return reverse_of_ridge_step<Scalar>(seed); }},
      {"DELTA-2a", "backward_squared_step", "test_time_training",
       "reverse of the delta rule = a step on the squared loss from D with the target 0: dS = D - eta k k^T "
       "D",
       equal, []<class Scalar>(std::uint64_t seed) { return reverse_of_squared_step<Scalar>(seed); }},
  };
}

}  // namespace samestate::backward_identities
