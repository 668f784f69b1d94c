#pragma once

#include <cmath>
#include <string>

#include "reference/softmax_attention.h"

/// The backward pass of softmax attention from the log of its sums, as flash attention computes it, per query
/// head:
///   P_ts = e^{scale q_t . k_s - LSE_t};  delta_t = do_t . o_t - dLSE_t
///   dS = P o (dO V^T - delta);  dQ = scale dS K;  dK = scale dS^T Q;  dV = P^T dO
/// dK and dV of a key head are sums over its query heads. A sink is a score per head that takes part of the
/// softmax and has no value: its weight is p_t = e^{sink - LSE_t}, and dsink = -sum_t p_t delta_t.
namespace samestate {

namespace points {
inline constexpr PointRow kAttentionBackwardRows[] = {
    {"scores", "q k^T, made again.", PointUse::product, {}, "softmax_attention.scores"},
    {"P", "The weights P, an operand of P^T dO."},
    {"dP", "dO V^T.", PointUse::product},
    {"dS", "dS, an operand of dQ and dK."},
    {"dq", "dS K.", PointUse::product},
    {"dk", "dS^T Q.", PointUse::product},
    {"dv", "P^T dO.", PointUse::product},
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

}  // namespace detail

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
    const Matrix<Scalar> scores =
        detail::scores_of(detail::head_columns(x.q, h, x.width()),
                          detail::head_columns(x.k, h / x.group(), x.width()), x.scale);
    for (Index t = 0; t < x.tokens(); ++t) {
      std::optional<Scalar> largest = detail::largest_seen(x, t, 0, scores.row(t));
      if (!largest) detail::throw_fully_masked(t);
      if (sinks.size() != 0) take_larger(*largest, Scalar(sinks(h)));
      const Scalar shift = softmax_shift(*largest);
      Scalar sum = sinks.size() != 0 ? Scalar(exp(Scalar(sinks(h) - shift))) : Scalar(0);
      Vector<Scalar> o = Vector<Scalar>::Zero(dv);
      for (Index s = 0; s < x.keys(); ++s) {
        if (!x.sees(t, s)) continue;
        const Scalar weight = exp(Scalar(scores(t, s) - shift));
        sum += weight;
        o += weight * V.row(s).transpose();
      }
      out.o.row(t).segment(h * dv, dv) = (o / sum).transpose();
      out.lse(t, h) = shift + Scalar(log(sum));
    }
  }
  return out;
}

/// The gradients from what softmax_attention_with_lse returned, `forward`. d_o: [T, heads * dv]; d_lse: [T,
/// heads], or 0 x 0 if nothing reads the LSE. Throws Error if sizes disagree.
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
    const Matrix<Scalar> Q = detail::head_columns(x.q, h, d);
    const Matrix<Scalar> K = detail::head_columns(x.k, kh, d);
    const Matrix<Scalar> V = detail::head_columns(x.v, kh, dv);
    const Matrix<Scalar> dO = detail::head_columns(d_o, h, dv);
    Vector<Scalar> delta = dO.cwiseProduct(detail::head_columns(forward.o, h, dv)).rowwise().sum();
    if (d_lse.size() != 0) delta -= d_lse.col(h);
    const Matrix<Scalar> scores = x.scale * matrix_product(Q, K.transpose(), at["scores"]);
    const Matrix<Scalar> dP = matrix_product(dO, V.transpose(), at["dP"]);
    Matrix<Scalar> P = Matrix<Scalar>::Zero(x.tokens(), x.keys());
    Matrix<Scalar> dS = P;
    for (Index t = 0; t < x.tokens(); ++t) {
      for (Index s = 0; s < x.keys(); ++s) {
        if (!x.sees(t, s)) continue;
        P(t, s) = exp(Scalar(scores(t, s) - forward.lse(t, h)));
        dS(t, s) = P(t, s) * (dP(t, s) - delta(t));
      }
      if (sinks.size() != 0) out.sinks(h) -= Scalar(exp(Scalar(sinks(h) - forward.lse(t, h)))) * delta(t);
    }
    P = stored(std::move(P), at["P"]);
    dS = stored(std::move(dS), at["dS"]);
    out.q.middleCols(h * d, d) = x.scale * matrix_product(dS, K, at["dq"]);
    out.k.middleCols(kh * d, d) += x.scale * matrix_product(dS.transpose(), Q, at["dk"]);
    out.v.middleCols(kh * dv, dv) += matrix_product(P.transpose(), dO, at["dv"]);
  }
  return out;
}

}  // namespace samestate
