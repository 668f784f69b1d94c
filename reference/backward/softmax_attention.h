#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reference/softmax_attention.h"

/// The backward pass of softmax attention from the log of its sums, as flash attention computes it, per query
/// head:
///   P_ts = e^{scale q_t . k_s - LSE_t};  delta_t = do_t . o_t - dLSE_t
///   dS = P o (dO V^T - delta);  dQ = scale dS K;  dK = scale dS^T Q;  dV = P^T dO
/// dK and dV of a key head are sums over its query heads. delta_t is sum_s P_ts dP_ts as well. A sink is a score per head that takes part of the
/// softmax and has no value: its weight is p_t = e^{sink - LSE_t}, and dsink = -sum_t p_t delta_t.
namespace samestate {

namespace points {
inline constexpr PointRow kAttentionBackwardRows[] = {
    {"scores", "q k^T, made again.", PointUse::product, {}, "softmax_attention.scores"},
    {"o", "o, as the forward pass stored it, in delta = do . o."},
    {"P", "The weights P, an operand of P^T dO."},
    {"dP", "dO V^T.", PointUse::product},
    {"dS", "dS, an operand of dQ and dK."},
    {"dq", "dS K.", PointUse::product},
    {"dk", "dS^T Q.", PointUse::product},
    {"dv", "P^T dO.", PointUse::product},
    {"dk_of_head", "dk of one query head, before the sum over the heads of its group.", PointUse::stored,
     "group"},
    {"dv_of_head", "dv of one query head, before the sum over the heads of its group.", PointUse::stored,
     "group"},
};
inline constexpr PointTable attention_backward{"attention_backward", PointTier::equation,
                                               kAttentionBackwardRows};
}  // namespace points

/// Outputs of attention with the log of the sum of each row's exponentials, which the backward pass reads.
template <class Scalar>
struct AttentionOutput {
  Matrix<Scalar> o;    ///< [T, heads * dv]
  Matrix<Scalar> lse;  ///< [T, heads] log sum_s e^{scale q_t . k_s}, with the sink if there is one
};

/// The gradients of attention.
template <class Scalar>
struct AttentionGradients {
  Matrix<Scalar> q;      ///< [T, heads * d]
  Matrix<Scalar> k;      ///< [S, key_heads * d]
  Matrix<Scalar> v;      ///< [S, key_heads * dv]
  Vector<Scalar> sinks;  ///< [heads]; empty without sinks
};

namespace detail {

template <class Scalar>
void require_sinks(const AttentionInputs<Scalar>& x, const Vector<Scalar>& sinks) {
  require_consistent(x);
  if (sinks.size() != 0 && sinks.size() != x.heads) {
    throw Error("attention: " + std::to_string(sinks.size()) + " sinks for " + std::to_string(x.heads) +
                " heads; give one a head, or none");
  }
}

/// The queries [first, first + count) of a head, and the number of keys that any of them can see.
struct QueryBlock {
  Index first = 0, count = 0, keys = 0;
};

/// All queries in blocks: all scores of 4,096 tokens at once would take gigabytes.
template <class Scalar>
[[nodiscard]] std::vector<QueryBlock> query_blocks(const AttentionInputs<Scalar>& x) {
  constexpr Index kQueriesOfBlock = 128;
  std::vector<QueryBlock> blocks;
  for (Index first = 0; first < x.tokens(); first += kQueriesOfBlock) {
    const Index count = std::min(kQueriesOfBlock, x.tokens() - first);
    blocks.push_back({first, count, x.causal ? x.keys() - x.tokens() + first + count : x.keys()});
  }
  return blocks;
}

/// Calls each(t, scores, shift, sum) for every token of head h, where row `scores` has the scores of the keys that the token
/// may see, and `sum` is that of e^{score - shift} over those that it sees, with the sink if there is one.
template <class Scalar, class Each>
void each_sum_of_scores(const AttentionInputs<Scalar>& x, const Vector<Scalar>& sinks, Index h, Each&& each) {
  using std::exp;
  const Matrix<Scalar> Q = head_columns(x.q, h, x.width());
  const Matrix<Scalar> K = head_columns(x.k, h / x.group(), x.width());
  for (const QueryBlock& block : query_blocks(x)) {
    const Matrix<Scalar> scores =
        scores_of<Scalar>(Q.middleRows(block.first, block.count), K.topRows(block.keys), x.scale);
    for (Index i = 0; i < block.count; ++i) {
      const Index t = block.first + i;
      std::optional<Scalar> largest = largest_seen(x, t, 0, scores.row(i));
      if (!largest) throw_fully_masked(t);
      if (sinks.size() != 0) take_larger(*largest, Scalar(sinks(h)));
      const Scalar shift = softmax_shift(*largest);
      Scalar sum = sinks.size() != 0 ? Scalar(exp(Scalar(sinks(h) - shift))) : Scalar(0);
      for (Index s = 0; s < block.keys; ++s) {
        if (x.sees(t, s)) sum += Scalar(exp(Scalar(scores(i, s) - shift)));
      }
      each(t, scores.row(i), shift, sum);
    }
  }
}

}  // namespace detail

/// [T, heads], the log of the sum of each row's exponentials, which kernels keep in fp32. With one sink a head if `sinks`
/// is not empty. Throws Error if sizes disagree, or if a token sees no key.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_lse(const AttentionInputs<Scalar>& x,
                                                   const Vector<Scalar>& sinks = {}) {
  using std::log;
  detail::require_sinks(x, sinks);
  Matrix<Scalar> lse(x.tokens(), x.heads);
  for (Index h = 0; h < x.heads; ++h) {
    detail::each_sum_of_scores(x, sinks, h,
                               [&](Index t, const auto&, const Scalar& shift, const Scalar& sum) {
                                 lse(t, h) = shift + Scalar(log(sum));
                               });
  }
  return lse;
}

/// Attention with its LSE and, if `sinks` is not empty, one sink a head; sinks: [heads]. Throws Error if
/// sizes disagree, or if a token sees no key.
template <class Scalar>
[[nodiscard]] AttentionOutput<Scalar> softmax_attention_with_lse(const AttentionInputs<Scalar>& x,
                                                                 const Vector<Scalar>& sinks = {}) {
  using std::exp;
  using std::log;
  detail::require_sinks(x, sinks);
  const Index dv = x.value_width();
  AttentionOutput<Scalar> out{Matrix<Scalar>::Zero(x.tokens(), x.heads * dv),
                              Matrix<Scalar>(x.tokens(), x.heads)};
  for (Index h = 0; h < x.heads; ++h) {
    const Matrix<Scalar> V = detail::head_columns(x.v, h / x.group(), dv);
    detail::each_sum_of_scores(x, sinks, h,
                               [&](Index t, const auto& scores, const Scalar& shift, const Scalar& sum) {
                                 Vector<Scalar> o = Vector<Scalar>::Zero(dv);
                                 for (Index s = 0; s < scores.size(); ++s) {
                                   if (x.sees(t, s))
                                     o += Scalar(exp(Scalar(scores(s) - shift))) * V.row(s).transpose();
                                 }
                                 out.o.row(t).segment(h * dv, dv) = (o / sum).transpose();
                                 out.lse(t, h) = shift + Scalar(log(sum));
                               });
  }
  return out;
}

/// delta of a row, do . o, which is also the sum of p_s dP_s: a kernel that keeps P in place of o computes that sum, as
/// `of_weights` does. A scalar that carries an error has an overload with the errors of both (oracles/bounds/row_delta.h).
template <class Scalar, class OfWeights>
[[nodiscard]] Scalar row_delta(const Scalar& of_outputs, OfWeights&& /*of_weights*/) {
  return of_outputs;
}

namespace detail {

/// P and dS of a block of queries, [count, keys], before anything of them is stored.
template <class Scalar>
struct ReversedScores {
  Matrix<Scalar> P, dS;
  Vector<Scalar> delta;  ///< [count]
};

/// K and V: of the block's keys; dO, o and lse of its queries; d_lse: [count], or empty.
template <class Scalar>
[[nodiscard]] ReversedScores<Scalar> reversed_scores(const AttentionInputs<Scalar>& x,
                                                     const QueryBlock& block, const Matrix<Scalar>& Q,
                                                     const Matrix<Scalar>& K, const Matrix<Scalar>& V,
                                                     const Matrix<Scalar>& dO, const Matrix<Scalar>& o,
                                                     const Vector<Scalar>& lse, const Vector<Scalar>& d_lse) {
  using std::exp;
  constexpr const PointTable& at = points::attention_backward;
  const Matrix<Scalar> scores = scores_of(Q, K, x.scale, at["scores"]);
  // Where a row sees one key, dP is delta, and what a kernel leaves of their difference are the roundings of both sums.
  const Matrix<Scalar> dP = settled(matrix_product(dO, V.transpose(), at["dP"]));
  ReversedScores<Scalar> out{Matrix<Scalar>::Zero(block.count, block.keys),
                             Matrix<Scalar>::Zero(block.count, block.keys),
                             dO.cwiseProduct(o).rowwise().sum()};
  for (Index i = 0; i < block.count; ++i) {
    const auto sees = [&](Index s) { return x.sees(block.first + i, s); };
    for (Index s = 0; s < block.keys; ++s) {
      if (sees(s)) out.P(i, s) = exp(Scalar(scores(i, s) - lse(i)));
    }
    Scalar delta = row_delta(Scalar(out.delta(i)), [&] {
      Scalar sum(0);
      for (Index s = 0; s < block.keys; ++s) {
        if (sees(s)) sum += out.P(i, s) * dP(i, s);
      }
      return sum;
    });
    if (d_lse.size() != 0) delta -= d_lse(i);
    out.delta(i) = delta;
    for (Index s = 0; s < block.keys; ++s) {
      if (sees(s)) out.dS(i, s) = out.P(i, s) * Scalar(dP(i, s) - delta);
    }
  }
  return out;
}

/// The gradient of one query head, as a term of the sum over its group.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> of_group(const AttentionInputs<Scalar>& x, Matrix<Scalar> one, Point point) {
  return x.group() > 1 ? stored(std::move(one), point) : one;
}

}  // namespace detail

/// The gradients from the o and LSE of the forward pass, `forward`. d_o: [T, heads * dv]; d_lse: [T, heads], or 0 x 0 if
/// nothing reads the LSE. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] AttentionGradients<Scalar> softmax_attention_backward(const AttentionInputs<Scalar>& x,
                                                                    const AttentionOutput<Scalar>& forward,
                                                                    const Matrix<Scalar>& d_o,
                                                                    const Matrix<Scalar>& d_lse = {},
                                                                    const Vector<Scalar>& sinks = {}) {
  using std::exp;
  detail::require_sinks(x, sinks);
  const bool lse_fits = d_lse.size() == 0 || (d_lse.rows() == x.tokens() && d_lse.cols() == x.heads);
  if (d_o.rows() != forward.o.rows() || d_o.cols() != forward.o.cols() || !lse_fits) {
    throw Error("attention: the cotangent of o is " + std::to_string(d_o.rows()) + " x " +
                std::to_string(d_o.cols()) + " for an output of " + std::to_string(forward.o.rows()) + " x " +
                std::to_string(forward.o.cols()) + ", that of the LSE " + std::to_string(d_lse.rows()) +
                " x " + std::to_string(d_lse.cols()));
  }
  constexpr const PointTable& at = points::attention_backward;
  const Index d = x.width();
  const Index dv = x.value_width();
  AttentionGradients<Scalar> out{
      Matrix<Scalar>(x.q.rows(), x.q.cols()), Matrix<Scalar>::Zero(x.k.rows(), x.k.cols()),
      Matrix<Scalar>::Zero(x.v.rows(), x.v.cols()), Vector<Scalar>::Zero(sinks.size())};
  for (Index h = 0; h < x.heads; ++h) {
    const Index kh = h / x.group();
    const Matrix<Scalar> o = stored(detail::head_columns(forward.o, h, dv), at["o"]);
    // The scale is applied to the whole sums over queries, so that these are sums in any order.
    Matrix<Scalar> d_keys = Matrix<Scalar>::Zero(x.keys(), d);
    Matrix<Scalar> d_values = Matrix<Scalar>::Zero(x.keys(), dv);
    for (const detail::QueryBlock& block : detail::query_blocks(x)) {
      const Matrix<Scalar> Q = x.q.block(block.first, h * d, block.count, d);
      const Matrix<Scalar> K = x.k.block(0, kh * d, block.keys, d);
      const Matrix<Scalar> V = x.v.block(0, kh * dv, block.keys, dv);
      const Matrix<Scalar> dO = d_o.block(block.first, h * dv, block.count, dv);
      const Vector<Scalar> lse = forward.lse.col(h).segment(block.first, block.count);
      Vector<Scalar> of_lse;
      if (d_lse.size() != 0) of_lse = d_lse.col(h).segment(block.first, block.count);
      detail::ReversedScores<Scalar> scores = detail::reversed_scores<Scalar>(
          x, block, Q, K, V, dO, o.middleRows(block.first, block.count), lse, of_lse);
      for (Index i = 0; i < block.count && sinks.size() != 0; ++i)
        out.sinks(h) -= Scalar(exp(Scalar(sinks(h) - lse(i)))) * scores.delta(i);
      scores.P = stored(std::move(scores.P), at["P"]);
      scores.dS = stored(std::move(scores.dS), at["dS"]);
      out.q.block(block.first, h * d, block.count, d) = x.scale * matrix_product(scores.dS, K, at["dq"]);
      d_keys.topRows(block.keys) += matrix_product(scores.dS.transpose(), Q, at["dk"]);
      d_values.topRows(block.keys) += matrix_product(scores.P.transpose(), dO, at["dv"]);
    }
    out.k.middleCols(kh * d, d) += detail::of_group<Scalar>(x, x.scale * d_keys, at["dk_of_head"]);
    out.v.middleCols(kh * dv, dv) += detail::of_group(x, std::move(d_values), at["dv_of_head"]);
  }
  return out;
}

/// Attention over all tokens of one sequence, forward and back. Callers whose tokens are those of several sequences
/// have another one.
struct WholeAttention {
  template <class Scalar>
  [[nodiscard]] AttentionOutput<Scalar> forward(const AttentionInputs<Scalar>& x) const {
    return {softmax_attention(x), softmax_attention_lse(x)};
  }
  template <class Scalar>
  [[nodiscard]] AttentionGradients<Scalar> backward(const AttentionInputs<Scalar>& x,
                                                    const AttentionOutput<Scalar>& y,
                                                    const Matrix<Scalar>& d_o) const {
    return softmax_attention_backward(x, y, d_o);
  }
};

}  // namespace samestate
