#include <cmath>

#include "oracles/proofs/equations/computation.h"
#include "oracles/proofs/equations/data.h"
#include "oracles/proofs/equations/groups.h"
#include "reference/backward/recurrence.h"
#include "reference/costs.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/linear_attention.h"
#include "reference/retention.h"
#include "reference/softmax_attention.h"
#include "reference/test_time_training.h"

/// Document 002: RetNet, test-time training, DeltaNet. The document writes states [dv, dk]; the references
/// hold the transposes.
namespace samestate::document_002_memory_equations {
namespace {

using V = LedgerVerdict;
using M = Matrix<double>;
using Vec = Vector<double>;

/// A state, a token, and what the losses give for them.
struct Learning {
  M S;  ///< [dk, dv]
  Vec k, v;
  double eta = 0.37;
  double gamma = 0.9;
  Learning() {
    IdentityDraw<double> draw(1);
    S = draw.normal(4, 3);
    k = draw.normal_vector(4);
    v = draw.normal_vector(3);
  }
  [[nodiscard]] M written() const { return k * v.transpose(); }
  [[nodiscard]] M delta(double beta) const { return S + beta * k * (v.transpose() - k.transpose() * S); }
};

Finding decay_matrix() {
  const Sequence<double> x = from_zero_state(drawn_sequence(9, 4, 3));
  Sequence<double> constant = x;
  constant.g.setConstant(std::log(0.9));
  const M gamma = decay_between(x.g);
  const M transposed = (x.q * x.k.transpose()).cwiseProduct(gamma.transpose()) * x.v * x.scale;
  return Computation()
      .agree("time-varying gamma_t: Gamma and the recurrence", retention_parallel(x),
             recurrent<Retention>(x).o)
      .agree("constant gamma: Gamma_ij = gamma^(i-j)", retention_parallel_constant(constant, 0.9),
             recurrent<Retention>(constant).o)
      .equal("Gamma(i, i)", gamma(3, 3), 1.0)
      .equal("Gamma(3, 1), steps 2 and 3", gamma(3, 1), std::exp(x.g(2)) * std::exp(x.g(3)))
      .contrast_all("Gamma transposed, and the recurrence", transposed, recurrent<Retention>(x).o)
      .remark("resolution: lambda of L66 is gamma_t")
      .identity("retention_transposed_mask")
      .identity("retention_own_step_decayed")
      .resolved();
}

/// The reverse of one token: what D, the gradient of the state after it, gives for the state before it and
/// for the token. Nothing reads the output.
template <class System>
HeadGradients<double> reverse_of(const Learning& x, const M& D, double eta, double decay) {
  const Sequence<double> token{M::Zero(1, 4),
                               x.k.transpose(),
                               x.v.transpose(),
                               Vec::Constant(1, std::log(decay)),
                               Vec::Constant(1, eta),
                               1.0,
                               x.S};
  return recurrent_backward<System>(token, {M::Zero(1, 3), D});
}

Finding reverse_of_inner_product() {
  const Learning x;
  const M D = IdentityDraw<double>(2).normal(4, 3);
  const HeadGradients<double> g = reverse_of<LinearAttention>(x, D, 1.0, 1.0);
  return Computation()
      .agree("dS", g.initial_state, D)
      .agree("dk = D v", g.k.transpose().eval(), (D * x.v).eval())
      .agree("dv = D^T k", g.v.transpose().eval(), (D.transpose() * x.k).eval())
      .identity("backward_inner_product_step")
      .identity("backward_linear_attention")
      .holds();
}

Finding reverse_of_ridge() {
  const Learning x;
  const M D = IdentityDraw<double>(2).normal(4, 3);
  return Computation()
      .agree("dS = lambda D", reverse_of<Retention>(x, D, 1.0, x.gamma).initial_state, (x.gamma * D).eval())
      .identity("backward_ridge_step")
      .identity("backward_retention")
      .holds();
}

Finding reverse_of_squared() {
  const Learning x;
  const M D = IdentityDraw<double>(2).normal(4, 3);
  const HeadGradients<double> g = reverse_of<DeltaRule>(x, D, x.eta, 1.0);
  const Vec error = x.v - x.S.transpose() * x.k;
  return Computation()
      .agree("dS = D - eta k k^T D", g.initial_state, (D - x.eta * x.k * (x.k.transpose() * D)).eval())
      .equal("d eta = <D^T k, v - S^T k>", g.beta(0), (D.transpose() * x.k).dot(error))
      .identity("backward_squared_step")
      .identity("backward_delta_rule")
      .holds();
}

Finding inner_product_name() {
  const Learning x;
  const double loss = inner_product_loss(x.S, x.k, x.v);
  const double twice = inner_product_loss<double>(x.S, 2.0 * x.k, x.v);
  const Vec read = x.S.transpose() * x.k;
  const double cosine = -read.dot(x.v) / (read.norm() * x.v.norm());
  return Computation()
      .equal("the loss at twice the key, over the loss", twice / loss, 2.0)
      .relation("a cosine would not change", std::abs(twice / loss - 1.0) > 0.5)
      .contrast("-v . (S k), and the negative cosine", loss, cosine)
      .erratum();
}

Finding loss_and_gradient() {
  const Learning x;
  const M printed = x.k * (x.S.transpose() * x.k - x.v).transpose();
  const auto loss = [&](const auto& S) {
    using Scalar = typename std::decay_t<decltype(S)>::Scalar;
    return squared_loss<Scalar>(S, x.k.cast<Scalar>(), x.v.cast<Scalar>());
  };
  return Computation()
      .agree("gradient of 1/2 |S k - v|^2 by automatic differentiation, and (S k - v) k^T",
             gradient_by_dual_numbers<double>(loss, x.S), printed)
      .contrast("the left side is a number, the right side", "4 x 3 entries", "1 entry")
      .contrast("1/2 |S k - v|^2, and the largest entry of its gradient", printed.cwiseAbs().maxCoeff(),
                loss(x.S))
      .identity("ttt_squared_gradient")
      .identity("ttt_squared_differences")
      .erratum();
}

Finding standard_attention_label() {
  const Sequence<double> x = from_zero_state(drawn_sequence(6, 4, 3));
  AttentionInputs<double> attention;
  attention.q = x.q;
  attention.k = x.k;
  attention.v = x.v;
  attention.scale = x.scale;
  const costs::Count cache = costs::product({6, 4 + 3});
  return Computation()
      .contrast_all("softmax attention, and the recurrence S + v k^T", softmax_attention(attention),
                    recurrent<LinearAttention>(x).o)
      .agree("linear attention, and the same recurrence", linear_attention_parallel(x),
             recurrent<LinearAttention>(x).o)
      .relation("6 tokens of keys and values outgrow a state of 4 x 3", cache > 4 * 3)
      .erratum();
}

Finding recall() {
  Learning x;
  x.k /= x.k.norm();
  const M unit = x.delta(1.0);
  const double root = std::sqrt(2.0);
  const Vec k = root * x.k;
  const M twice = x.S + k * (x.v.transpose() - k.transpose() * x.S);
  return Computation()
      .agree("|k| = 1: S_t k = v", (unit.transpose() * x.k).eval(), x.v)
      .agree("|k|^2 = 2: S_t k = 2 v - S k", (twice.transpose() * k).eval(),
             (2.0 * x.v - x.S.transpose() * k).eval())
      .holds();
}

Finding missing_write_strength() {
  const Sequence<double> half = scalar_sequence({1}, {1}, {0.5}, {0});
  const double correct = recurrent<DeltaRule>(half).state(0, 0);
  const double printed = 0.0 * (1.0 - 0.5) + 1.0;  // S (I - beta k k^T) + v k^T
  const Learning x;
  const double beta = 0.4;
  const M keep = M::Identity(4, 4) - beta * x.k * x.k.transpose();
  return Computation()
      .equal("S = 0, k = v = 1, beta = 1/2: line L109", correct, 0.5)
      .equal("line L110", printed, 1.0)
      .contrast("S_t", printed, correct)
      .contrast_all("random token", (keep * x.S + x.written()).eval(), x.delta(beta))
      .agree("with beta v k^T", (keep * x.S + beta * x.written()).eval(), x.delta(beta))
      .identity("delta_rule_beta_missing")
      .erratum();
}

Finding two_forms_of_the_rule() {
  const Sequence<double> x = drawn_sequence(9, 4, 3);
  const Trajectory<double> row = recurrent<GatedDeltaRule>(x);
  return Computation()
      .agree("first line, column convention: o", gated_delta_rule_column(x).o, row.o)
      .agree("its state", gated_delta_rule_column(x).state, row.state)
      .agree("second line: o", gated_delta_rule_expanded(x).o, row.o)
      .agree("its state", gated_delta_rule_expanded(x).state, row.state)
      .identity("ttt_learns_gated_delta_rule")
      .holds();
}

const Equation kRows[] = {
    {"RET-1", "002", "L64-66", "retention", "S_t = lambda S_{t-1} + v_t k_t^T", V::ok_qualified,
     [] {
       Sequence<double> x = drawn_sequence(5, 4, 3);
       x.g.setConstant(retention_log_decay<double>(0));
       M S = x.initial_state;
       for (Index t = 0; t < 5; ++t) S = (31.0 / 32.0) * S + x.k.row(t).transpose() * x.v.row(t);
       return Computation()
           .equal("gamma of head 0, 1 - 2^-5", std::exp(retention_log_decay<double>(0)), 0.96875)
           .equal("gamma of head 3, 1 - 2^-8", std::exp(retention_log_decay<double>(3)), 0.99609375)
           .agree("the state of 5 tokens at lambda = 31/32", recurrent<Retention>(x).state, S)
           .holds();
     }},
    {"RET-2", "002", "L66", "retention", "O = (Q K^T o Gamma) V", V::ok,
     [] {
       const Sequence<double> x = from_zero_state(drawn_sequence(9, 4, 3));
       return Computation()
           .agree("parallel, and the recurrence", retention_parallel(x), recurrent<Retention>(x).o)
           .agree("chunks of 4, and the recurrence", chunked<Retention>(x, 4).o, recurrent<Retention>(x).o)
           .identity("retention_mask")
           .identity("retention_chunked")
           .holds();
     }},
    {"RET-3", "002", "L66", "retention",
     "Gamma_ij = 0 (i < j), 1 (i = j), prod_{tau = j+1}^i gamma_tau (i > j)", V::inconsistent, decay_matrix},
    {"TTT-1", "002", "L70", "test_time_training", "o_t = S_t q_t, S_t = S_{t-1} + v_t k_t^T", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       const auto step = [](const M& S, const Vec& k, const Vec& v, Index) {
         return gradient_step<double>(S, inner_product_gradient(S, k, v), 1.0);
       };
       return Computation()
           .agree("steps of learning, and linear attention", test_time_training(x, step).o,
                  recurrent<LinearAttention>(x).o)
           .identity("ttt_learns_linear_attention")
           .holds();
     }},
    {"TTT-2", "002", "L74", "test_time_training", "f(S; k) = S k", V::ok,
     [] {
       const Learning x;
       Vec projected(3);
       for (Index j = 0; j < 3; ++j) projected(j) = -inner_product_loss<double>(x.S, x.k, Vec::Unit(3, j));
       return Computation()
           .agree("v . (S k) for v = e_0, e_1, e_2, and S k", projected, (x.S.transpose() * x.k).eval())
           .holds();
     }},
    {"TTT-3", "002", "L76-78", "test_time_training", "loss -v . (S k), called cosine distance", V::erratum,
     inner_product_name},
    {"TTT-4", "002", "L78", "test_time_training", "S_t = S_{t-1} - eta grad L = S_{t-1} + v_t k_t^T",
     V::ok_qualified,
     [] {
       const Learning x;
       const M gradient = inner_product_gradient(x.S, x.k, x.v);
       return Computation()
           .agree("eta = 1", gradient_step(x.S, gradient, 1.0), (x.S + x.written()).eval())
           .agree("eta = 0.37: S + eta v k^T", gradient_step(x.S, gradient, x.eta),
                  (x.S + x.eta * x.written()).eval())
           .identity("ttt_inner_product_gradient")
           .holds();
     }},
    {"TTT-4a", "002", "L78", "test_time_training",
     "implied: dS_{t-1} = D, dk_t = D^T v_t, dv_t = D k_t for the gradient D of S_t", V::ok,
     reverse_of_inner_product},
    {"TTT-5", "002", "L80-82", "test_time_training",
     "S_t = lambda S_{t-1} + v_t k_t^T from -v . (S k) + (1 - gamma)/2 |S|_F^2", V::ok_qualified,
     [] {
       const Learning x;
       const M gradient = ridge_gradient(x.S, x.k, x.v, x.gamma);
       return Computation()
           .agree("eta = 1: lambda = gamma", gradient_step(x.S, gradient, 1.0),
                  (x.gamma * x.S + x.written()).eval())
           .agree("eta = 0.37: (1 - eta (1 - gamma)) S + eta v k^T", gradient_step(x.S, gradient, x.eta),
                  ((1.0 - x.eta * (1.0 - x.gamma)) * x.S + x.eta * x.written()).eval())
           .identity("ttt_ridge_gradient")
           .identity("ttt_learns_retention")
           .identity("ttt_ridge_step_of_one")
           .holds();
     }},
    {"TTT-5a", "002", "L80-82", "test_time_training",
     "implied: dS_{t-1} = lambda D for the gradient D of S_t", V::ok, reverse_of_ridge},
    {"DELTA-1", "002", "L88", "test_time_training", "L = grad 1/2 |S k - v|^2 = (S k - v) k^T", V::erratum,
     loss_and_gradient},
    {"DELTA-2", "002", "L88", "delta_rule", "S_t = S_{t-1} - eta_t (S_{t-1} k_t - v_t) k_t^T", V::ok,
     [] {
       const Sequence<double> x = drawn_sequence(9, 4, 3);
       const auto step = [&](const M& S, const Vec& k, const Vec& v, Index t) {
         return gradient_step<double>(S, squared_gradient(S, k, v), x.beta(t));
       };
       return Computation()
           .agree("steps of learning with eta = beta, and the delta rule", test_time_training(x, step).o,
                  recurrent<DeltaRule>(x).o)
           .identity("delta_rule_gradient_step")
           .holds();
     }},
    {"DELTA-2a", "002", "L88", "delta_rule",
     "implied: dS_{t-1} = D - eta D k k^T for the gradient D of S_t, a step of the same loss with the target "
     "0",
     V::ok, reverse_of_squared},
    {"DELTA-3", "002", "L92", "delta_rule",
     "eta (S k - v) k^T = (S sqrt(eta) k - sqrt(eta) v) (sqrt(eta) k)^T", V::ok,
     [] {
       const Learning x;
       const double root = std::sqrt(x.eta);
       const Vec k = root * x.k;
       const Vec v = root * x.v;
       return Computation()
           .agree("both sides at eta = 0.37", (x.eta * squared_gradient(x.S, x.k, x.v)).eval(),
                  squared_gradient(x.S, k, v))
           .identity("delta_rule_absorbed_root")
           .holds();
     }},
    {"DELTA-4", "002", "L94-96", "delta_rule",
     "eta = 1: S - (S k - v) k^T = S - S k k^T + v k^T = S (I - k k^T) + v k^T", V::ok,
     [] {
       const Learning x;
       const M first = gradient_step<double>(x.S, squared_gradient(x.S, x.k, x.v), 1.0);
       const M second = x.S - x.k * (x.k.transpose() * x.S) + x.written();
       const M third = (M::Identity(4, 4) - x.k * x.k.transpose()) * x.S + x.written();
       return Computation()
           .agree("first and second form", second, first)
           .agree("first and third form", third, first)
           .identity("delta_rule_closed_form")
           .holds();
     }},
    {"DELTA-5", "002", "L96", "linear_attention", "S_t^standard_attn = S_{t-1} + v_t k_t^T", V::erratum,
     standard_attention_label},
    {"DELTA-6", "002", "L98", "delta_rule", "first removes the old memory of k_t, then writes (k_t, v_t)",
     V::ok_qualified, recall},
    {"DELTA-7", "002", "L104", "delta_rule",
     "S_t = S_{t-1} + (v_t - S_{t-1} k_t) k_t^T = S_{t-1} (I - k k^T) + v k^T", V::ok,
     [] {
       Sequence<double> x = drawn_sequence(1, 4, 3);
       x.beta.setOnes();
       const M keep = M::Identity(4, 4) - x.k.transpose() * x.k;
       return Computation()
           .agree("the delta rule at beta = 1, and the second form", recurrent<DeltaRule>(x).state,
                  (keep * x.initial_state + x.k.transpose() * x.v).eval())
           .holds();
     }},
    {"DELTA-8", "002", "L109", "delta_rule", "S_t = S - (S k) k^T + (beta v + (1 - beta) S k) k^T",
     V::ok_qualified,
     [] {
       const Sequence<double> x = drawn_sequence(1, 4, 3);
       const M old = x.k * x.initial_state;
       const M updated = x.beta(0) * x.v + (1.0 - x.beta(0)) * old;
       return Computation()
           .agree("state, and the delta rule",
                  (x.initial_state - x.k.transpose() * old + x.k.transpose() * updated).eval(),
                  recurrent<DeltaRule>(x).state)
           .identity("delta_rule_old_and_new_value")
           .holds();
     }},
    {"DELTA-9", "002", "L110", "delta_rule", ".. = S_{t-1} (I - beta_t k_t k_t^T) + v_t k_t^T", V::erratum,
     missing_write_strength},
    {"GDN-52", "002", "L116-117", "gated_delta_rule", "both forms of GDN-49 and GDN-50 again", V::ok,
     two_forms_of_the_rule},
};

}  // namespace

std::span<const Equation> rows() { return kRows; }

}  // namespace samestate::document_002_memory_equations
