#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/backward/gates.h"
#include "reference/backward/linear.h"
#include "reference/experts.h"
#include "reference/load_balance.h"

/// The backward pass of a mixture of experts: of the router's weights, of the auxiliary loss and of the
/// experts. The selection is a constant.
namespace samestate {

/// The gradient of the logits [T, N] through the softmax over all experts: dl = p (dp - <p, dp>), row by row.
/// p, dp: [T, N].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_backward(const Matrix<Scalar>& p, const Matrix<Scalar>& dp) {
  Matrix<Scalar> dl(p.rows(), p.cols());
  for (Index t = 0; t < p.rows(); ++t) {
    const Scalar along = p.row(t).cwiseProduct(dp.row(t)).sum();
    for (Index i = 0; i < p.cols(); ++i) dl(t, i) = p(t, i) * (dp(t, i) - along);
  }
  return dl;
}

namespace points {
inline constexpr PointRow kRouterBackwardRows[] = {
    {"d_logits",
     "The gradient of a router's logits, before its products with the weight and with the tokens."},
};
inline constexpr PointTable router_backward{"router_backward", PointTier::equation, kRouterBackwardRows};
}  // namespace points

/// The gradients of a router's projection from those of its logits [T, N]. x: [T, D], weight: [N, D]. Throws Error if
/// the sizes disagree.
template <class Scalar>
[[nodiscard]] LinearGradients<Scalar> router_logits_backward(const Matrix<Scalar>& x,
                                                             const Matrix<Scalar>& weight,
                                                             Matrix<Scalar> d_logits) {
  return linear_backward(x, weight, stored(std::move(d_logits), points::router_backward["d_logits"]));
}

namespace detail {

/// The cotangent of a router's probabilities, [T, N], zeros if nothing reads them. Throws Error unless it and
/// d_weights, [T, K], fit the routing.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> router_cotangent(const Routing<Scalar>& routing, const Matrix<Scalar>& d_weights,
                                              const Matrix<Scalar>& d_probabilities) {
  const Index T = routing.probabilities.rows();
  const Index N = routing.probabilities.cols();
  const Index K = routing.experts.cols();
  require_selection(routing.experts, T, N);
  const bool fits =
      d_probabilities.size() == 0 || (d_probabilities.rows() == T && d_probabilities.cols() == N);
  if (d_weights.rows() != T || d_weights.cols() != K || !fits) {
    throw Error("router: the cotangent of the weights is " + std::to_string(d_weights.rows()) + " x " +
                std::to_string(d_weights.cols()) + " for " + std::to_string(T) + " x " + std::to_string(K) +
                ", that of the probabilities " + std::to_string(d_probabilities.rows()) + " x " +
                std::to_string(d_probabilities.cols()) + " for " + std::to_string(T) + " x " +
                std::to_string(N));
  }
  if (d_probabilities.size() != 0) return d_probabilities;
  return Matrix<Scalar>::Zero(T, N);
}

}  // namespace detail

/// The gradient of the logits. d_weights: [T, K] of the chosen experts' weights; d_probabilities: [T, N] of
/// the router's probabilities, or 0 x 0 if nothing reads them (the auxiliary loss does). Renormalised weights
/// are a softmax of the chosen logits, since the softmax over all experts cancels: dl = w (dw - <w, dw>)
/// there and 0 elsewhere, which for K = 1 is exactly 0. Literal weights send gradients to all logits. Throws
/// Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> route_backward(const Routing<Scalar>& routing, TopKWeights mode,
                                            const Matrix<Scalar>& d_weights,
                                            const Matrix<Scalar>& d_probabilities = {}) {
  const Index T = routing.probabilities.rows();
  const Index K = routing.experts.cols();
  Matrix<Scalar> dp = detail::router_cotangent(routing, d_weights, d_probabilities);
  const bool literal = mode == TopKWeights::literal;
  for (Index t = 0; literal && t < T; ++t) {
    for (Index r = 0; r < K; ++r) dp(t, routing.experts(t, r)) += d_weights(t, r);
  }
  Matrix<Scalar> dl = softmax_backward(routing.probabilities, dp);
  if (literal) return dl;
  const Matrix<Scalar> chosen = softmax_backward(routing.weights, d_weights);
  for (Index t = 0; t < T; ++t) {
    for (Index r = 0; r < K; ++r) dl(t, routing.experts(t, r)) += chosen(t, r);
  }
  return dl;
}

/// The gradient of the logits for DeepSeek-V3's router: with s = sigma(logits) and w = scaling s / sum s over
/// the chosen, ds = scaling (dw - <w, dw> / scaling) / sum s there, plus d_scores, and dl = ds s (1 - s). The
/// bias of the choice has no gradient. d_scores: [T, N] of s, or 0 x 0. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> route_group_limited_backward(const Routing<Scalar>& routing,
                                                          const Scalar& scaling,
                                                          const Matrix<Scalar>& d_weights,
                                                          const Matrix<Scalar>& d_scores = {}) {
  const Matrix<Scalar>& s = routing.probabilities;
  Matrix<Scalar> ds = detail::router_cotangent(routing, d_weights, d_scores);
  for (Index t = 0; t < s.rows(); ++t) {
    Scalar sum(0);
    for (Index r = 0; r < d_weights.cols(); ++r) sum += s(t, routing.experts(t, r));
    const Scalar along = routing.weights.row(t).cwiseProduct(d_weights.row(t)).sum();
    for (Index r = 0; r < d_weights.cols(); ++r)
      ds(t, routing.experts(t, r)) += (scaling * d_weights(t, r) - along) / sum;
  }
  return ds.cwiseProduct(logistic_slope(routing.logits));
}

/// The gradient of the router's probabilities for auxiliary_loss, whose own cotangent is d_loss: alpha N f_i
/// d_loss over the number of counted tokens, and 0 for tokens that do not count. The counts f are constants.
/// -> [T, N]. Throws Error as auxiliary_loss does.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> auxiliary_loss_backward(const Matrix<Scalar>& probabilities,
                                                     const Matrix<Index>& experts, const Scalar& alpha,
                                                     const Scalar& d_loss,
                                                     LoadFraction fraction = LoadFraction::assignment,
                                                     const Vector<bool>& mask = {}) {
  if (probabilities.rows() != experts.rows()) {
    throw Error("load balance: probabilities of " + std::to_string(probabilities.rows()) +
                " tokens, a selection of " + std::to_string(experts.rows()));
  }
  const Index N = probabilities.cols();
  const Vector<Scalar> f = load<Scalar>(experts, N, fraction, mask);
  const Scalar counted(static_cast<double>(detail::counted_tokens(experts.rows(), mask)));
  const Scalar factor = d_loss * alpha * Scalar(static_cast<double>(N)) / counted;
  Matrix<Scalar> dp = Matrix<Scalar>::Zero(experts.rows(), N);
  for (Index t = 0; t < experts.rows(); ++t) {
    if (mask.size() == 0 || mask(t)) dp.row(t) = (factor * f).transpose();
  }
  return dp;
}

/// The gradients of one expert on some rows: its weights, and the rows [n, D].
template <class Expert, class Scalar>
struct ExpertGradients {
  Expert weights;
  Matrix<Scalar> x;
};

/// Returns the gradients of E(x) = x W^T + b; dy: [n, D]. The bias has a gradient if it exists.
template <class Scalar>
[[nodiscard]] ExpertGradients<LinearExpert<Scalar>, Scalar> expert_backward(
    const LinearExpert<Scalar>& expert, const Matrix<Scalar>& x, const Matrix<Scalar>& dy) {
  LinearGradients<Scalar> d = linear_backward(x, expert.weight, dy);
  if (expert.bias.size() == 0) d.bias.resize(0);
  return {{std::move(d.weight), std::move(d.bias)}, std::move(d.x)};
}

namespace points {
inline constexpr PointRow kExpertsBackwardRows[] = {
    {"d_up", "The cotangent of what the gate multiplies, dh silu(gate)."},
    {"d_gate", "The cotangent of the gate before silu, dh up silu'(gate)."},
    {"d_output", "The cotangent of an expert's output, the weight times dy."},
};
inline constexpr PointTable experts_backward{"experts_backward", PointTier::equation, kExpertsBackwardRows};
}  // namespace points

/// Returns the gradients of E(x) = W_down (silu(W_gate x) * W_up x): with h the hidden row, dh = dy W_down, dup = dh silu(gate),
/// dgate = dh up silu'(gate), dx = dgate W_gate + dup W_up. dy: [n, D].
template <class Scalar>
[[nodiscard]] ExpertGradients<SwiGluExpert<Scalar>, Scalar> expert_backward(
    const SwiGluExpert<Scalar>& expert, const Matrix<Scalar>& x, const Matrix<Scalar>& dy) {
  const Matrix<Scalar> gate = linear(x, expert.gate, points::experts["gate"]);
  const Matrix<Scalar> up = linear(x, expert.up, points::experts["up"]);
  const LinearGradients<Scalar> down = linear_backward(expert.activated(x), expert.down, dy);
  const Matrix<Scalar> d_up =
      stored<Scalar>(down.x.cwiseProduct(silu(gate)), points::experts_backward["d_up"]);
  const Matrix<Scalar> d_gate = stored<Scalar>(down.x.cwiseProduct(up).cwiseProduct(silu_slope(gate)),
                                               points::experts_backward["d_gate"]);
  const LinearGradients<Scalar> of_gate = linear_backward(x, expert.gate, d_gate);
  const LinearGradients<Scalar> of_up = linear_backward(x, expert.up, d_up);
  return {{of_gate.weight, of_up.weight, down.weight}, of_gate.x + of_up.x};
}

/// The gradients of a mixture of experts. An expert without a token has the gradient 0.
template <class Expert, class Scalar>
struct MixtureGradients {
  Matrix<Scalar> x;             ///< [T, D] through the experts, without the router's part
  Matrix<Scalar> weights;       ///< [T, K]
  std::vector<Expert> experts;  ///< [N]
};

/// For y_t = sum_r w_tr E_r(x_t): dw_tr = <dy_t, E_r(x_t)>, and expert r sees the cotangent w_tr dy_t. dy:
/// [T, D]. Throws Error as mixture_of_experts does, and if dy has another shape than x.
template <class Scalar, class Expert>
[[nodiscard]] MixtureGradients<Expert, Scalar> mixture_of_experts_backward(const Matrix<Scalar>& x,
                                                                           const Routing<Scalar>& routing,
                                                                           const std::vector<Expert>& experts,
                                                                           const Matrix<Scalar>& dy) {
  if (experts.empty()) throw Error("mixture of experts: 0 experts; at least 1 is needed");
  require_selection(routing.experts, x.rows(), static_cast<Index>(experts.size()));
  if (dy.rows() != x.rows() || dy.cols() != x.cols() || routing.weights.rows() != x.rows() ||
      routing.weights.cols() != routing.experts.cols()) {
    throw Error("mixture of experts: x is " + std::to_string(x.rows()) + " x " + std::to_string(x.cols()) +
                ", the cotangent " + std::to_string(dy.rows()) + " x " + std::to_string(dy.cols()) +
                ", the weights " + std::to_string(routing.weights.rows()) + " x " +
                std::to_string(routing.weights.cols()));
  }
  MixtureGradients<Expert, Scalar> out{Matrix<Scalar>::Zero(x.rows(), x.cols()),
                                       Matrix<Scalar>(routing.weights.rows(), routing.weights.cols()),
                                       {}};
  for (Index i = 0; i < static_cast<Index>(experts.size()); ++i) {
    const Expert& expert = experts[static_cast<std::size_t>(i)];
    const std::vector<detail::Assignment> mine = detail::assignments_of(routing.experts, i);
    const Matrix<Scalar> rows = detail::gather(x, mine);
    const Matrix<Scalar> y = detail::apply_expert(experts, i, rows);
    Matrix<Scalar> d = detail::gather(dy, mine);
    for (std::size_t n = 0; n < mine.size(); ++n) {
      const Index row = static_cast<Index>(n);
      const auto [t, r] = mine[n];
      out.weights(t, r) = d.row(row).cwiseProduct(y.row(row)).sum();
      d.row(row) *= routing.weights(t, r);
    }
    d = stored(std::move(d), points::experts_backward["d_output"]);
    ExpertGradients<Expert, Scalar> back = expert_backward(expert, rows, d);
    for (std::size_t n = 0; n < mine.size(); ++n)
      out.x.row(mine[n].token) += back.x.row(static_cast<Index>(n));
    out.experts.push_back(std::move(back.weights));
  }
  return out;
}

}  // namespace samestate
