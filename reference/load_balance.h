#pragma once

#include <string>

#include "reference/mixture_of_experts.h"

/// The auxiliary loss of a router, alpha N sum_i f_i P_i (class C-AUX), for T tokens, N experts, and K
/// experts per token. `mask` [T] is true for the tokens that count: padding is left out of both means. An
/// empty mask counts all tokens.
namespace samestate {

/// The total of which f_i is a fraction (MOE-7 leaves it open for K > 1).
enum class LoadFraction {
  assignment,  ///< the T K assignments: sum f = 1, and a balanced router costs alpha for every K
  token        ///< the T tokens, summed over ranks: sum f = K, as public Qwen and Mixtral code counts
};

namespace detail {

/// The number of tokens that count. Throws Error if the mask has another length, or no token counts.
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

/// The fraction of counted tokens whose r-th choice is expert i. experts: [T, K] -> [K, N]; each row sums to
/// 1. Throws Error if the selection is invalid, the mask has another length, or no token counts.
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

/// f_i, the load of expert i (MOE-7). [T, K] -> [N]. Throws Error as load_by_rank does.
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
/// corrected). [T, N] -> [N]; sums to 1. Throws Error if the mask has another length or no token counts.
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

/// alpha N sum_i f_i P_i (MOE-6). A balanced router gets alpha (alpha K with token fractions), which is not a
/// lower bound (MOE-9, E-33). Throws Error as load_by_rank does, and if experts and probabilities differ in
/// their number of tokens.
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
