#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "reference/norms.h"
#include "reference/recurrence.h"
#include "reference/rotary_embedding.h"

/// RetNet (EQUATIONS 5.11). The core is retention with a constant decay (reference/retention.h). Public code
/// also divides each row by a scale that depends on the form. This scale is positive and the same for a whole
/// row of a head, so it cancels in the norm that follows, up to the epsilon of that norm (EQ-11). Per head:
/// q, k [T, dk], with k already scaled; v [T, dv]; gamma in (0, 1]. All functions throw Error if the rows
/// disagree.
namespace samestate {

namespace points {
inline constexpr PointRow kNormalisedRetentionRows[] = {
    {"whole_scores", "q k^T of a whole sequence.", PointUse::product},
    {"whole_values", "The normalised scores of a whole sequence times v.", PointUse::product},
    {"read", "q times the carried state of a chunk.", PointUse::product},
    {"scores", "q k^T of a chunk.", PointUse::product},
    {"values", "The normalised scores of a chunk times v.", PointUse::product},
    {"state", "k^T times the decayed v of a chunk.", PointUse::product},
};
inline constexpr PointTable normalised_retention{"normalised_retention", PointTier::equation,
                                                 kNormalisedRetentionRows};
}  // namespace points

namespace detail {

template <class Scalar>
void require_retention(const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v) {
  if (q.rows() != k.rows() || v.rows() != k.rows() || q.cols() != k.cols()) {
    throw Error("retention: q is " + std::to_string(q.rows()) + " x " + std::to_string(q.cols()) + ", k " +
                std::to_string(k.rows()) + " x " + std::to_string(k.cols()) + ", v has " +
                std::to_string(v.rows()) + " rows");
  }
}

/// D_ij = gamma^{i-j} for j <= i, else 0.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> constant_decay(Index L, const Scalar& gamma) {
  Matrix<Scalar> D = Matrix<Scalar>::Zero(L, L);
  for (Index i = 0; i < L; ++i) {
    D(i, i) = Scalar(1);
    for (Index j = i - 1; j >= 0; --j) D(i, j) = D(i, j + 1) * gamma;
  }
  return D;
}

template <class Scalar>
[[nodiscard]] Scalar at_least_one(const Scalar& x) {
  return x < Scalar(1) ? Scalar(1) : x;
}

}  // namespace detail

/// The parallel form, normalised: D_ij / sqrt(sum_j D_ij), then each row of Q K^T o D divided by max(|its
/// sum|, 1), from a zero state. [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> normalised_retention_parallel(const Matrix<Scalar>& q, const Matrix<Scalar>& k,
                                                           const Matrix<Scalar>& v, const Scalar& gamma) {
  using std::abs;
  using std::sqrt;
  detail::require_retention(q, k, v);
  const Matrix<Scalar> D = detail::constant_decay(q.rows(), gamma);
  Matrix<Scalar> P =
      matrix_product(q, k.transpose(), points::normalised_retention["whole_scores"]).cwiseProduct(D);
  for (Index i = 0; i < P.rows(); ++i) {
    const Scalar total = D.row(i).sum();
    P.row(i) /= Scalar(sqrt(total));
    const Scalar sum = P.row(i).sum();
    P.row(i) /= detail::at_least_one(Scalar(abs(sum)));
  }
  return matrix_product(P, v, points::normalised_retention["whole_values"]);
}

/// The state of the normalised recurrence: S divided by sqrt(s), and s = 1 + gamma + gamma^2 + ..., which is
/// 0 before the first token.
template <class Scalar>
struct NormalisedRetentionState {
  Matrix<Scalar> S;  ///< [dk, dv]
  Scalar s{0};
};

/// Token by token, normalised: s_t = gamma s_{t-1} + 1, o_t = S_t^T q_t / sqrt(s_t), where S_t is the state
/// of the core. The stored state is already divided. Updates `state`. [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> normalised_retention_recurrent(const Matrix<Scalar>& q, const Matrix<Scalar>& k,
                                                            const Matrix<Scalar>& v, const Scalar& gamma,
                                                            NormalisedRetentionState<Scalar>& state) {
  using std::sqrt;
  detail::require_retention(q, k, v);
  if (state.S.rows() != k.cols() || state.S.cols() != v.cols())
    throw Error("retention: the state must be key width by value width");
  Matrix<Scalar> o(q.rows(), v.cols());
  for (Index t = 0; t < q.rows(); ++t) {
    const Scalar s = gamma * state.s + Scalar(1);
    const Scalar root = sqrt(s);
    if (state.s > Scalar(0)) state.S *= Scalar(gamma * sqrt(state.s) / root);
    state.S += k.row(t).transpose() * v.row(t) / root;
    state.s = s;
    o.row(t) = q.row(t) * state.S;
  }
  return o;
}

/// Chunk by chunk, normalised. Inside a chunk it is the parallel form, but divided by max(sum |.|, 1); the
/// carried state is divided by its largest absolute column sum (at least 1); both are then brought to the
/// larger of the two scales. From a zero state; the last chunk may be shorter. Throws Error for chunk < 1.
/// [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> normalised_retention_chunked(const Matrix<Scalar>& q, const Matrix<Scalar>& k,
                                                          const Matrix<Scalar>& v, const Scalar& gamma,
                                                          Index chunk) {
  using std::abs;
  using std::sqrt;
  detail::require_retention(q, k, v);
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  Matrix<Scalar> o(q.rows(), v.cols());
  // divided by the decay sum of the last row of a chunk
  Matrix<Scalar> S = Matrix<Scalar>::Zero(k.cols(), v.cols());
  Scalar state_scale(1);
  const Index whole = std::min(chunk, q.rows());
  const Matrix<Scalar> D = detail::constant_decay(whole, gamma);
  const Scalar last = whole > 0 ? Scalar(D.row(whole - 1).sum()) : Scalar(1);
  for (Index begin = 0; begin < q.rows(); begin += chunk) {
    const Index L = std::min(chunk, q.rows() - begin);
    const Matrix<Scalar> Q = q.middleRows(begin, L);
    const Matrix<Scalar> K = k.middleRows(begin, L);
    const Matrix<Scalar> V = v.middleRows(begin, L);
    const Matrix<Scalar> carried = S / state_scale;
    const Matrix<Scalar> QS = matrix_product(Q, carried, points::normalised_retention["read"]);
    Matrix<Scalar> P = matrix_product(Q, K.transpose(), points::normalised_retention["scores"]);
    Vector<Scalar> sums = Vector<Scalar>::Zero(L);
    for (Index i = 0; i < L; ++i) {
      const Scalar root = sqrt(Scalar(D.row(i).sum()));
      for (Index j = 0; j < L; ++j) {
        P(i, j) = j <= i ? Scalar(P(i, j) * D(i, j) / root) : Scalar(0);
        sums(i) += Scalar(abs(P(i, j)));
      }
    }
    const Matrix<Scalar> PV = matrix_product(P, V, points::normalised_retention["values"]);
    Scalar from_start = gamma;  // gamma^{i+1}
    for (Index i = 0; i < L; ++i) {
      const Scalar root = sqrt(Scalar(D.row(i).sum()));
      const Scalar inner_scale = detail::at_least_one(sums(i));
      const Scalar scale = inner_scale < state_scale ? state_scale : inner_scale;
      // State and row are both divided by `last`, which is multiplied back here.
      const Scalar cross = from_start * last / root * state_scale / scale;
      o.row(begin + i) = PV.row(i) / scale + cross * QS.row(i);
      from_start *= gamma;
    }
    if (begin + L == q.rows()) break;  // a shorter chunk is the last one, and nothing reads its state
    S *= from_start / gamma;           // gamma^chunk
    const Matrix<Scalar> decayed = (D.row(whole - 1).transpose() / last).asDiagonal() * V;
    S += matrix_product(K.transpose(), decayed, points::normalised_retention["state"]);
    state_scale = Scalar(1);
    for (Index c = 0; c < S.cols(); ++c) {
      Scalar sum(0);
      for (Index l = 0; l < S.rows(); ++l) sum += Scalar(abs(S(l, c)));
      if (state_scale < sum) state_scale = sum;
    }
  }
  return o;
}

/// RetNet's norm of a head: root mean square over the width of the head, without a weight. x: [T, dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> retention_norm(const Matrix<Scalar>& x, const Scalar& epsilon) {
  return rms_norm<Scalar>(x, Vector<Scalar>::Ones(x.cols()), epsilon);
}

/// Rotation of q and k: pair i of a head is rotated by p 10000^{-i / (width/2 - 1)} at position p, with
/// interleaved pairs. The exponent differs from RoPE's 2i / width. A head of width 2 has the single angle p.
/// Throws Error for an odd width.
template <class Scalar>
[[nodiscard]] RotaryTables<Scalar> retention_rotation(Index first, Index tokens, Index width) {
  using std::cos;
  using std::exp;
  using std::log;
  using std::sin;
  if (width < 2 || width % 2 != 0)
    throw Error("retention: a head of " + std::to_string(width) +
                " columns cannot turn in pairs; make it even");
  const Index pairs = width / 2;
  const Scalar log_theta = log(Scalar(10000));
  RotaryTables<Scalar> tables{Matrix<Scalar>(tokens, pairs), Matrix<Scalar>(tokens, pairs)};
  for (Index i = 0; i < pairs; ++i) {
    const Scalar exponent =
        pairs > 1 ? Scalar(Scalar(static_cast<double>(i)) / Scalar(static_cast<double>(pairs - 1)))
                  : Scalar(0);
    const Scalar frequency = exp(Scalar(-(exponent * log_theta)));
    for (Index t = 0; t < tokens; ++t) {
      const Scalar angle = Scalar(static_cast<double>(first + t)) * frequency;
      tables.cos(t, i) = cos(angle);
      tables.sin(t, i) = sin(angle);
    }
  }
  return tables;
}

}  // namespace samestate
