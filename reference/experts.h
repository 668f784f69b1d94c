#pragma once

#include <string>
#include <vector>

#include "reference/mixture_of_experts.h"

/// The experts of a mixture and four ways of evaluating them (MOE-16, EQ-19). An expert is any function that
/// maps [n, D] to [n, D] for n >= 0. An expert that receives no token is legal.
namespace samestate {

namespace points {
inline constexpr PointRow kExpertsRows[] = {
    {"linear", "The output of an expert that is one linear map, after it.", PointUse::both},
    {"down", "The output of an expert, after its projection.", PointUse::both, "output"},
    {"hidden", "The hidden row of an expert, after silu(gate) up.", PointUse::stored, "output"},
    {"gate", "The gate of an expert, after its projection and before silu.", PointUse::both, "hidden"},
    {"up", "What the gate multiplies, after its projection.", PointUse::both, "hidden"},
};
inline constexpr PointTable experts{"experts", PointTier::equation, kExpertsRows};
}  // namespace points

/// E(x) = x W^T + b: the document's stand-in for an MLP (MOE-11).
template <class Scalar>
struct LinearExpert {
  Matrix<Scalar> weight;  ///< [D, D]
  Vector<Scalar> bias;    ///< [D] or empty

  /// [n, D] -> [n, D]. Throws Error if the sizes disagree.
  [[nodiscard]] Matrix<Scalar> operator()(const Matrix<Scalar>& x) const {
    return linear(x, weight, bias, points::experts["linear"]);
  }
};

/// E(x) = W_down (silu(W_gate x) * W_up x): the expert of Qwen3-Next and DeepSeek-V3 (EQUATIONS 5.8). F is
/// the expert's width.
template <class Scalar>
struct SwiGluExpert {
  Matrix<Scalar> gate;  ///< [F, D]
  Matrix<Scalar> up;    ///< [F, D]
  Matrix<Scalar> down;  ///< [D, F]

  /// [n, D] -> [n, D]. Throws Error if the sizes disagree.
  [[nodiscard]] Matrix<Scalar> operator()(const Matrix<Scalar>& x) const {
    return linear(activated(x), down, points::experts["down"]);
  }
  /// silu(W_gate x) * W_up x, [n, D] -> [n, F], stored at `point`, which the caller may choose. Throws Error
  /// as above.
  [[nodiscard]] Matrix<Scalar> activated(const Matrix<Scalar>& x,
                                         Point point = points::experts["hidden"]) const {
    if (gate.rows() != up.rows()) {
      throw Error("SwiGLU expert: the gate is " + std::to_string(gate.rows()) + " wide, up " +
                  std::to_string(up.rows()));
    }
    const Matrix<Scalar> hidden =
        silu(linear(x, gate, points::experts["gate"])).cwiseProduct(linear(x, up, points::experts["up"]));
    return stored(hidden, point);
  }
};

/// How the weighted sum over a token's experts is evaluated; all forms give the same y (EQ-19).
enum class ExpertForm {
  loop,      ///< loop over experts: gather its tokens, apply it, scale, add back (MOE-16)
  dense,     ///< every expert on every token, weight 0 where it is not selected
  sorted,    ///< assignments sorted by expert, one contiguous block per expert (grouped product), scattered
             ///< back
  per_token  ///< loop over tokens, then over ranks
};

/// For each token, the weighted sum of the outputs of its K experts, one output row per rank. weights: [T,
/// K], outputs: [T K, D] -> [T, D].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> weighted_sum(const Matrix<Scalar>& weights, const Matrix<Scalar>& outputs) {
  const Index K = weights.cols();
  Matrix<Scalar> y(weights.rows(), outputs.cols());
  for (Index t = 0; t < y.rows(); ++t) y.row(t) = weights.row(t) * outputs.middleRows(t * K, K);
  return y;
}

namespace detail {

/// E_i applied to the rows, [n, D]. Throws Error if the expert changes the shape.
template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> apply_expert(const std::vector<Expert>& experts, Index i,
                                          const Matrix<Scalar>& rows) {
  Matrix<Scalar> y = experts[static_cast<std::size_t>(i)](rows);
  if (y.rows() != rows.rows() || y.cols() != rows.cols()) {
    throw Error("mixture of experts: expert " + std::to_string(i) + " maps " + std::to_string(rows.rows()) +
                " x " + std::to_string(rows.cols()) + " to " + std::to_string(y.rows()) + " x " +
                std::to_string(y.cols()) + "; it must keep the shape");
  }
  return y;
}

/// One (token, rank) pair of the selection.
struct Assignment {
  Index token;
  Index rank;
};

/// The assignments of expert i, in order of their tokens.
[[nodiscard]] inline std::vector<Assignment> assignments_of(const Matrix<Index>& experts, Index i) {
  std::vector<Assignment> found;
  for (Index t = 0; t < experts.rows(); ++t) {
    for (Index r = 0; r < experts.cols(); ++r) {
      if (experts(t, r) == i) found.push_back({t, r});
    }
  }
  return found;
}

template <class Scalar>
[[nodiscard]] Matrix<Scalar> gather(const Matrix<Scalar>& x, const std::vector<Assignment>& of) {
  Matrix<Scalar> rows(static_cast<Index>(of.size()), x.cols());
  for (std::size_t n = 0; n < of.size(); ++n) rows.row(static_cast<Index>(n)) = x.row(of[n].token);
  return rows;
}

template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> experts_loop(const Matrix<Scalar>& x, const Routing<Scalar>& routing,
                                          const std::vector<Expert>& experts) {
  Matrix<Scalar> y = Matrix<Scalar>::Constant(x.rows(), x.cols(), Scalar(0));
  for (Index i = 0; i < static_cast<Index>(experts.size()); ++i) {
    const std::vector<Assignment> mine = assignments_of(routing.experts, i);
    if (mine.empty()) continue;
    const Matrix<Scalar> z = apply_expert(experts, i, gather(x, mine));
    for (std::size_t n = 0; n < mine.size(); ++n) {
      y.row(mine[n].token) += routing.weights(mine[n].token, mine[n].rank) * z.row(static_cast<Index>(n));
    }
  }
  return y;
}

template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> experts_dense(const Matrix<Scalar>& x, const Routing<Scalar>& routing,
                                           const std::vector<Expert>& experts) {
  const Index N = static_cast<Index>(experts.size());
  // w_{t,i}, 0 for experts that are not selected
  Matrix<Scalar> masked = Matrix<Scalar>::Constant(x.rows(), N, Scalar(0));
  for (Index t = 0; t < x.rows(); ++t) {
    for (Index r = 0; r < routing.experts.cols(); ++r) {
      masked(t, routing.experts(t, r)) = routing.weights(t, r);
    }
  }
  Matrix<Scalar> y = Matrix<Scalar>::Constant(x.rows(), x.cols(), Scalar(0));
  for (Index i = 0; i < N; ++i) y += masked.col(i).asDiagonal() * apply_expert(experts, i, x);
  return y;
}

template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> experts_sorted(const Matrix<Scalar>& x, const Routing<Scalar>& routing,
                                            const std::vector<Expert>& experts) {
  const Index K = routing.experts.cols();
  std::vector<Assignment> sorted;  // all T K assignments, by expert, then by token
  std::vector<Index> block_begin;
  for (Index i = 0; i < static_cast<Index>(experts.size()); ++i) {
    block_begin.push_back(static_cast<Index>(sorted.size()));
    for (const Assignment& a : assignments_of(routing.experts, i)) sorted.push_back(a);
  }
  block_begin.push_back(static_cast<Index>(sorted.size()));
  const Matrix<Scalar> permuted = gather(x, sorted);
  Matrix<Scalar> z(x.rows() * K, x.cols());  // row t K + r: expert of rank r on token t
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const Index begin = block_begin[i];
    const Index size = block_begin[i + 1] - begin;
    if (size == 0) continue;
    const Matrix<Scalar> block = permuted.middleRows(begin, size);
    const Matrix<Scalar> out = apply_expert(experts, static_cast<Index>(i), block);
    for (Index n = 0; n < size; ++n) {
      const Assignment& a = sorted[static_cast<std::size_t>(begin + n)];
      z.row(a.token * K + a.rank) = out.row(n);
    }
  }
  return weighted_sum(routing.weights, z);
}

template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> experts_per_token(const Matrix<Scalar>& x, const Routing<Scalar>& routing,
                                               const std::vector<Expert>& experts) {
  Matrix<Scalar> y = Matrix<Scalar>::Constant(x.rows(), x.cols(), Scalar(0));
  for (Index t = 0; t < x.rows(); ++t) {
    const Matrix<Scalar> token = x.row(t);
    for (Index r = 0; r < routing.experts.cols(); ++r) {
      y.row(t) += routing.weights(t, r) * apply_expert(experts, routing.experts(t, r), token);
    }
  }
  return y;
}

}  // namespace detail

/// y_t = sum over ranks r of w_{t,r} E_{i_{t,r}}(x_t) (MOE-4 with the weights of the routing). x: [T, D] ->
/// [T, D]. Only `experts` and `weights` of the routing are read, so both may be injected. Throws Error if
/// there are no experts, the selection is invalid (require_selection), the weights have another shape, or an
/// expert changes the shape.
template <class Scalar, class Expert>
[[nodiscard]] Matrix<Scalar> mixture_of_experts(const Matrix<Scalar>& x, const Routing<Scalar>& routing,
                                                const std::vector<Expert>& experts,
                                                ExpertForm form = ExpertForm::loop) {
  if (experts.empty()) throw Error("mixture of experts: 0 experts; at least 1 is needed");
  require_selection(routing.experts, x.rows(), static_cast<Index>(experts.size()));
  if (routing.weights.rows() != routing.experts.rows() || routing.weights.cols() != routing.experts.cols()) {
    throw Error("routing: " + std::to_string(routing.weights.rows()) + " x " +
                std::to_string(routing.weights.cols()) + " weights for a selection of " +
                std::to_string(routing.experts.rows()) + " x " + std::to_string(routing.experts.cols()));
  }
  switch (form) {
    case ExpertForm::dense:
      return detail::experts_dense(x, routing, experts);
    case ExpertForm::sorted:
      return detail::experts_sorted(x, routing, experts);
    case ExpertForm::per_token:
      return detail::experts_per_token(x, routing, experts);
    case ExpertForm::loop:
      break;
  }
  return detail::experts_loop(x, routing, experts);
}

}  // namespace samestate
