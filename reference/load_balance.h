#pragma once

#include <string>

#include "reference/mixture_of_experts.h"

/// The auxiliary loss of a router, alpha N sum_i f_i P_i (class C-AUX). `mask` [T] is true for the tokens
/// that count; padding is left out of both means; empty: all count. T tokens, N experts, K of them a token.
namespace samestate {

/// What f_i is a fraction of (MOE-7 leaves it open for K > 1).
enum class LoadFraction {
  assignment,  ///< of the T K assignments: sum f = 1, a balanced router costs alpha for every K
  token        ///< of the T tokens, summed over ranks: sum f = K, as public Qwen and Mixtral code counts
};

namespace detail {

/// How many tokens count. Throws Error where the mask has another length, or nothing counts.
inline Index counted_tokens(Index T, const Vector<bool>& mask) {
  if (mask.size() != 0 && mask.size() != T) {
    throw Error("load balance: a mask of " + std::to_string(mask.size()) + " for " + std::to_string(T) +
                " tokens");
  }
  const Index counted = mask.size() == 0 ? T : mask.count();
  if (counted == 0) {
    throw Error("load balance: 0 tokens count; a mean needs at least 1");
  }
  return counted;
}

}  // namespace detail

/// Fraction of the counted tokens whose r-th choice is expert i. experts: [T, K] -> [K, N]; each row sums
/// to 1. Throws Error for a selection that is none, a mask of another length, no token that counts.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> load_by_rank(const Matrix<Index>& experts, Index N,
                                          const Vector<bool>& mask = {}) {
  require_selection(experts, experts.rows(), N);
  const Index counted = detail::counted_tokens(experts.rows(), mask);
  Matrix<Scalar> f = Matrix<Scalar>::Constant(experts.cols(), N, Scalar(0));
  for (Index t = 0; t < experts.rows(); ++t) {
    if (mask.size() != 0 && !mask(t)) continue;
    for (Index r = 0; r < experts.cols(); ++r) f(r, experts(t, r)) += Scalar(1);
  }
  return f / Scalar(static_cast<double>(counted));
}

/// f_i, the load of expert i (MOE-7). [T, K] -> [N]. Throws Error as load_by_rank.
template <class Scalar>
[[nodiscard]] Vector<Scalar> load(const Matrix<Index>& experts, Index N,
                                  LoadFraction fraction = LoadFraction::assignment,
                                  const Vector<bool>& mask = {}) {
  const Matrix<Scalar> by_rank = load_by_rank<Scalar>(experts, N, mask);
  Vector<Scalar> f = by_rank.colwise().sum().transpose();
  if (fraction == LoadFraction::assignment) f /= Scalar(static_cast<double>(experts.cols()));
  return f;
}

/// P_i, the mean ROUTER probability of expert i over the counted tokens, before the selection (MOE-8
/// corrected). [T, N] -> [N]; sums to 1. Throws Error for a mask of another length, no token that counts.
template <class Scalar>
[[nodiscard]] Vector<Scalar> mean_probability(const Matrix<Scalar>& probabilities,
                                              const Vector<bool>& mask = {}) {
  const Index counted = detail::counted_tokens(probabilities.rows(), mask);
  Vector<Scalar> sum = Vector<Scalar>::Constant(probabilities.cols(), Scalar(0));
  for (Index t = 0; t < probabilities.rows(); ++t) {
    if (mask.size() == 0 || mask(t)) sum += probabilities.row(t).transpose();
  }
  return sum / Scalar(static_cast<double>(counted));
}

/// alpha N sum_i f_i P_i (MOE-6). Balanced: alpha (token fractions: alpha K); not a lower bound (MOE-9,
/// E-33). Throws Error as load_by_rank and where experts and probabilities differ in tokens.
template <class Scalar>
[[nodiscard]] Scalar auxiliary_loss(const Matrix<Scalar>& probabilities, const Matrix<Index>& experts,
                                    const Scalar& alpha, LoadFraction fraction = LoadFraction::assignment,
                                    const Vector<bool>& mask = {}) {
  if (probabilities.rows() != experts.rows()) {
    throw Error("load balance: probabilities of " + std::to_string(probabilities.rows()) +
                " tokens, a selection of " + std::to_string(experts.rows()));
  }
  const Index N = probabilities.cols();
  const Vector<Scalar> f = load<Scalar>(experts, N, fraction, mask);
  const Vector<Scalar> P = mean_probability(probabilities, mask);
  const Scalar overlap = f.cwiseProduct(P).sum();
  return alpha * Scalar(static_cast<double>(N)) * overlap;
}

}  // namespace samestate
