#include "reference/test_time_training.h"

#include <algorithm>
#include <cmath>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/recurrent_draw.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/scalars.h"

namespace samestate::test_time_training_identities {
namespace {

using identity_draws::draw_head;

/// One token and a state, the key of no particular length; the hyperparameters are exact in every scalar.
template <class Scalar>
struct Token {
  Matrix<Scalar> S;
  Vector<Scalar> k, v;
  Scalar eta{0.375};
  Scalar gamma{0.875};
  explicit Token(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    S = draw.normal(4, 3);
    k = draw.normal_vector(4);
    v = draw.normal_vector(3);
  }
};

enum class Loss { inner_product, ridge, squared };

/// The loss as a function of the state, in any scalar.
template <Loss loss, class Scalar>
auto loss_of(const Token<Scalar>& token) {
  return [&token]<class Any>(const Matrix<Any>& S) -> Any {
    const Vector<Any> k = token.k.template cast<Any>();
    const Vector<Any> v = token.v.template cast<Any>();
    if constexpr (loss == Loss::inner_product) return inner_product_loss(S, k, v);
    if constexpr (loss == Loss::ridge) return ridge_loss(S, k, v, Any(token.gamma));
    if constexpr (loss == Loss::squared) return squared_loss(S, k, v);
  };
}

template <Loss loss, class Scalar>
Matrix<Scalar> gradient_of(const Token<Scalar>& token) {
  if constexpr (loss == Loss::inner_product) return inner_product_gradient(token.S, token.k, token.v);
  if constexpr (loss == Loss::ridge) return ridge_gradient(token.S, token.k, token.v, token.gamma);
  if constexpr (loss == Loss::squared) return squared_gradient(token.S, token.k, token.v);
}

template <Loss loss, class Scalar>
double dual_numbers(std::uint64_t seed) {
  const Token<Scalar> token(seed);
  return relative_difference(gradient_of<loss>(token),
                             gradient_by_dual_numbers(loss_of<loss>(token), token.S));
}

/// Exact up to rounding at the step 1: the losses are of second degree in S.
template <Loss loss, class Scalar>
double central_differences(std::uint64_t seed) {
  const Token<Scalar> token(seed);
  return relative_difference(gradient_by_central_differences(loss_of<loss>(token), token.S, Scalar(1)),
                             gradient_of<loss>(token));
}

/// The delta rule's step on the token, write strength beta.
template <class Scalar>
Matrix<Scalar> delta_step(const Token<Scalar>& token, const Scalar& beta) {
  Sequence<Scalar> x;
  x.q = token.k.transpose();
  x.k = token.k.transpose();
  x.v = token.v.transpose();
  x.g = Vector<Scalar>::Zero(1);
  x.beta = Vector<Scalar>::Constant(1, beta);
  x.initial_state = token.S;
  return recurrent<DeltaRule>(x).state;
}

/// (I - eta k k^T) S + eta k v^T (DELTA-9 corrected, DELTA-4, DELTA-7).
template <class Scalar>
Matrix<Scalar> closed_form(const Token<Scalar>& token, const Scalar& write) {
  const Matrix<Scalar> keep = Matrix<Scalar>::Identity(4, 4) - token.eta * token.k * token.k.transpose();
  return keep * token.S + write * token.k * token.v.transpose();
}

/// Outputs and state of a learned sequence against a system of the family.
template <class Scalar>
double learned(const Trajectory<Scalar>& a, const Trajectory<Scalar>& b) {
  return std::max(relative_difference(a.o, b.o), relative_difference(a.state, b.state));
}

/// Squared loss, step beta_t from the decayed state: the gated delta rule (EQ-27).
template <class Scalar>
Trajectory<Scalar> learn_gated(const Sequence<Scalar>& x) {
  const auto step = [&](const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v, Index t) {
    using std::exp;
    const Matrix<Scalar> decayed = Scalar(exp(x.g(t))) * S;
    return gradient_step(decayed, squared_gradient(decayed, k, v), x.beta(t));
  };
  return test_time_training(x, step);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "test_time_training";
  return {
      {"TTT-4", "ttt_inner_product_gradient", kSystem, "-k v^T = dual numbers through the inner-product loss",
       equal,
       []<class Scalar>(std::uint64_t seed) { return dual_numbers<Loss::inner_product, Scalar>(seed); }},
      {"TTT-4", "ttt_inner_product_differences", kSystem, "-k v^T = central differences", equal,
       []<class Scalar>(std::uint64_t seed) {
         return central_differences<Loss::inner_product, Scalar>(seed);
       }},
      {"TTT-5", "ttt_ridge_gradient", kSystem, "-k v^T + (1 - gamma) S = dual numbers through the ridge loss",
       equal, []<class Scalar>(std::uint64_t seed) { return dual_numbers<Loss::ridge, Scalar>(seed); }},
      {"TTT-5", "ttt_ridge_differences", kSystem, "-k v^T + (1 - gamma) S = central differences", equal,
       []<class Scalar>(std::uint64_t seed) { return central_differences<Loss::ridge, Scalar>(seed); }},
      {"EQ-05", "ttt_squared_gradient", kSystem,
       "k (S^T k - v)^T = dual numbers through the squared loss (DELTA-1)", equal,
       []<class Scalar>(std::uint64_t seed) { return dual_numbers<Loss::squared, Scalar>(seed); }},
      {"EQ-05", "ttt_squared_differences", kSystem,
       "k (S^T k - v)^T = central differences, exact for a quadratic loss at any step", equal,
       []<class Scalar>(std::uint64_t seed) { return central_differences<Loss::squared, Scalar>(seed); }},
      {"EQ-05", "delta_rule_gradient_step", kSystem, "delta rule = step eta down the squared loss (DELTA-2)",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         const Matrix<Scalar> gradient = gradient_by_dual_numbers(loss_of<Loss::squared>(token), token.S);
         return relative_difference(gradient_step(token.S, gradient, token.eta),
                                    delta_step(token, token.eta));
       }},
      // S - (S k) k^T + (eta v + (1 - eta) S k) k^T: the old value out, a mixture in (DELTA-8; here transposed).
      {"EQ-05", "delta_rule_old_and_new_value", kSystem, "delta rule = old value out, mixture in (DELTA-8)",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         const Vector<Scalar> old = token.S.transpose() * token.k;
         const Vector<Scalar> mixed = token.eta * token.v + Scalar(Scalar(1) - token.eta) * old;
         const Matrix<Scalar> S = token.S - token.k * old.transpose() + token.k * mixed.transpose();
         return relative_difference(S, delta_step(token, token.eta));
       }},
      {"EQ-05", "delta_rule_closed_form", kSystem,
       "delta rule = (I - b k k^T) S + b k v^T (DELTA-7, DELTA-9 corrected)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         return relative_difference(closed_form(token, token.eta), delta_step(token, token.eta));
       }},
      {"EQ-05", "delta_rule_absorbed_root", kSystem,
       "delta rule = step 1 with sqrt(eta) k, sqrt(eta) v (DELTA-3)", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::sqrt;
         const Token<Scalar> token(seed);
         Token<Scalar> scaled = token;
         const Scalar root = sqrt(token.eta);
         scaled.k *= root;
         scaled.v *= root;
         const Matrix<Scalar> S =
             gradient_step(scaled.S, squared_gradient(scaled.S, scaled.k, scaled.v), Scalar(1));
         return relative_difference(S, delta_step(token, token.eta));
       }},
      {"EQ-06", "delta_rule_proximal", kSystem,
       "argmin by linear solve = delta rule with b = eta / (1 + eta |k|^2)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         return relative_difference(proximal_step(token.S, token.k, token.v, token.eta),
                                    delta_step(token, proximal_write_strength(token.k, token.eta)));
       }},
      // At the proximal point the gradient of the objective vanishes: squared gradient = (S_0 - S) / eta.
      {"EQ-06", "ttt_proximal_stationary", kSystem, "at the argmin the gradient is (S_0 - S) / eta", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         const Matrix<Scalar> S = proximal_step(token.S, token.k, token.v, token.eta);
         const Matrix<Scalar> pull = (token.S - S) / token.eta;
         return relative_difference(squared_gradient(S, token.k, token.v), pull);
       }},
      {"EQ-27", "ttt_learns_gated_delta_rule", kSystem, "gated delta rule = squared-loss step b from a S",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         return learned(learn_gated(x), recurrent<GatedDeltaRule>(x));
       }},
      // Inner-product loss, step eta: linear attention of eta v; eta = 1 is TTT-4.
      {"C-TTT", "ttt_learns_linear_attention", kSystem,
       "steps down the inner product = linear attention of eta v (TTT-4)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         double worst = 0.0;
         for (const double eta : {1.0, 0.375}) {
           Sequence<Scalar> scaled = x;
           scaled.v *= Scalar(eta);
           const auto step = [&](const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                                 Index) {
             return gradient_step(S, inner_product_gradient(S, k, v), Scalar(eta));
           };
           worst = std::max(worst, learned(test_time_training(x, step), recurrent<LinearAttention>(scaled)));
         }
         return worst;
       }},
      // Ridge loss, step eta: retention of eta v with the decay 1 - eta (1 - gamma); eta = 1 is TTT-5.
      {"C-TTT", "ttt_learns_retention", kSystem,
       "steps down the ridge loss = retention, decay 1 - eta (1 - gamma) (TTT-5)", equal,
       []<class Scalar>(std::uint64_t seed) {
         using std::log;
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const Scalar gamma(0.875);
         double worst = 0.0;
         for (const double eta : {1.0, 0.375}) {
           Sequence<Scalar> scaled = x;
           scaled.v *= Scalar(eta);
           scaled.g.setConstant(Scalar(log(Scalar(Scalar(1) - Scalar(eta) * (Scalar(1) - gamma)))));
           const auto step = [&](const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                                 Index) {
             return gradient_step(S, ridge_gradient(S, k, v, gamma), Scalar(eta));
           };
           worst = std::max(worst, learned(test_time_training(x, step), recurrent<Retention>(scaled)));
         }
         return worst;
       }},
      // Squared loss, step beta_t: the delta rule (DELTA-2).
      {"C-TTT", "ttt_learns_delta_rule", kSystem, "steps beta down the squared loss = delta rule (DELTA-2)",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const auto step = [&](const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                               Index t) { return gradient_step(S, squared_gradient(S, k, v), x.beta(t)); };
         return learned(test_time_training(x, step), recurrent<DeltaRule>(x));
       }},
      {"NC-beta-missing", "delta_rule_beta_missing", kSystem,
       "(I - b k k^T) S + k v^T as printed (DELTA-9, E-03)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         return relative_difference(closed_form(token, Scalar(1)), delta_step(token, token.eta));
       }},
      // The explicit step where the implicit one is meant: beta = eta.
      {"NC-explicit-for-proximal", "delta_rule_explicit_for_proximal", kSystem,
       "b = eta in place of eta / (1 + eta |k|^2)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         return relative_difference(delta_step(token, token.eta),
                                    proximal_step(token.S, token.k, token.v, token.eta));
       }},
      // TTT-5 as printed, decay gamma, at a step that is not 1.
      {"NC-ridge-step-of-one", "ttt_ridge_step_of_one", kSystem,
       "gamma S + k v^T at a step that is not 1 (TTT-5, E-28)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Token<Scalar> token(seed);
         const Matrix<Scalar> printed = token.gamma * token.S + token.k * token.v.transpose();
         return relative_difference(printed,
                                    gradient_step(token.S, gradient_of<Loss::ridge>(token), token.eta));
       }},
      {"NC-gradient-before-decay", "ttt_gradient_before_decay", kSystem,
       "gradient at S in place of a S (EQ-27)", differs,
       []<class Scalar>(std::uint64_t seed) {
         using std::exp;
         const Sequence<Scalar> x = draw_head<Scalar>(seed);
         const auto step = [&](const Matrix<Scalar>& S, const Vector<Scalar>& k, const Vector<Scalar>& v,
                               Index t) {
           const Matrix<Scalar> decayed = Scalar(exp(x.g(t))) * S;
           return gradient_step(decayed, squared_gradient(S, k, v), x.beta(t));
         };
         return learned(test_time_training(x, step), recurrent<GatedDeltaRule>(x));
       }},
  };
}

}  // namespace samestate::test_time_training_identities
