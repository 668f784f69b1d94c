#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "reference/backward/head_gradients.h"
#include "reference/backward/reverse_sweep.h"
#include "reference/recurrence.h"

/// The backward pass in chunks (WY form; EQUATIONS 5.5 differentiated), as public kernels compute it. Per
/// chunk, with G the sums of g, E_ij = e^{G_i - G_j} for j <= i, A = strict(beta K K^T o E), T = (I + A)^-1,
/// W = T beta e^G K, U = T beta V, N = U - W S, P = scale Q K^T o E, and D the cotangent of the state that
/// the chunk leaves:
///   dN = P^T dO + e^{G_C - G} (K D);  dW = -dN S^T
///   D of the chunk before = e^{G_C} D + scale (e^G Q)^T dO - W^T dN
///   dP = scale (dO N^T) o E;  dQ = scale e^G (dO S^T) + dP K;  dK' = e^{G_C - G} (N D^T) + dP^T Q
///   dT = strict(dN (beta V)^T + dW (beta e^G K)^T);  dM = -strict(T^T dT T^T) o E
///   dV = beta T^T dN;  dK = dK' + beta e^G (T^T dW) + beta dM K + dM^T (beta K)
///   dbeta = (T^T dN) . V + e^G (T^T dW) . K + (dM K) . K, row by row
///   dG = Q . dQ - K . dK' + (row - column sums of dM o beta K K^T) + beta e^G (T^T dW) . K; at the last
///        token also e^{G_C} <S, D> and the sum of e^{G_C - G} K . (N D^T);  dg_t = sum_{i >= t} dG_i.
/// Only dT below the diagonal is needed, because T is lower triangular. Without a delta term N = V, dV = dN,
/// and nothing goes through T.
namespace samestate {

namespace points {
inline constexpr PointRow kChunkBackwardRows[] = {
    {"key_products", "k k^T of a chunk, made again.", PointUse::product, {}, "explicit_chunk.key_products"},
    {"T",
     "T = (I + A)^-1 of a chunk, as the forward pass saved it.",
     PointUse::stored,
     {},
     "explicit_chunk.T"},
    {"beta_v", "beta V of a chunk.", PointUse::stored, {}, "explicit_chunk.beta_v"},
    {"beta_k", "beta e^G K of a chunk.", PointUse::stored, {}, "explicit_chunk.beta_k"},
    {"U", "U = T beta V, made again.", PointUse::both, {}, "explicit_chunk.U"},
    {"W", "W = T beta e^G K, made again.", PointUse::both, {}, "explicit_chunk.W"},
    {"state_operand",
     "S as an operand, also of dQ, dW and <S, dS>.",
     PointUse::stored,
     {},
     "explicit_chunk.state_operand"},
    {"read_by_W", "W S, made again.", PointUse::product, {}, "explicit_chunk.read_by_W"},
    {"v_new", "N = U - W S as an operand.", PointUse::stored, {}, "explicit_chunk.v_new"},
    {"v_decayed",
     "N after its decay to the end of the chunk.",
     PointUse::stored,
     {},
     "explicit_chunk.v_decayed"},
    {"state", "k^T times the decayed N, made again.", PointUse::product, {}, "explicit_chunk.state"},
    {"scores", "q k^T of a chunk, made again.", PointUse::product, {}, "explicit_chunk.scores"},
    {"P", "The decayed scores with their scale, an operand of P^T dO."},
    {"dv_local", "P^T dO.", PointUse::both},
    {"dh_operand", "D as an operand of K D and N D^T, and in <S, D>."},
    {"dv_carried", "K D.", PointUse::product},
    {"dv_new", "dN, the sum of both."},
    {"q_scaled", "scale Q, an operand of (e^G Q)^T dO.", PointUse::stored, {}, {}, true},
    {"q_scaled_decayed", "scale e^G Q, an operand of (e^G Q)^T dO.", PointUse::stored, {}, {}, true},
    {"q_decayed", "(e^G Q)^T dO of the recurrence of D.", PointUse::product},
    {"dh_of_W", "W^T dN of the recurrence of D.", PointUse::product},
    {"dw", "dW = -dN S^T.", PointUse::both},
    {"dS_unscaled",
     "(dO N^T) o E, the operand of kernels that multiply its products by the scale; they keep dS_score in "
     "fp32.",
     PointUse::stored,
     {},
     {},
     true},
    {"dS_score", "dP = scale (dO N^T) o E.", PointUse::both},
    {"dq_of_state", "dO S^T.", PointUse::product},
    {"dq_of_scores", "dP K.", PointUse::product},
    {"dq_head", "dq of a value head."},
    {"dk_of_state", "N D^T.", PointUse::product},
    {"dk_of_scores", "dP^T Q.", PointUse::product},
    {"dk_head", "The part of dk through scores and state, of a value head."},
    {"dT", "dT below its diagonal, after its two products.", PointUse::both},
    {"dT_T", "dT T^T.", PointUse::both},
    {"dA", "dM = -strict(T^T dT T^T) o E, after its second product.", PointUse::both},
    {"dv_of_T", "T^T dN.", PointUse::product},
    {"dk_of_T", "T^T dW.", PointUse::product},
    {"dk_of_A", "dM K.", PointUse::product},
    {"dk_of_A_transposed", "dM^T (beta K).", PointUse::product},
    {"beta_key", "beta K, an operand of dM^T (beta K)."},
    {"dk_correction", "The part of dk through T and A: first the one through T, then their sum."},
    {"dG_last",
     "<S, D> of the last token of a chunk: its products, and their sum.",
     PointUse::stored,
     {},
     {},
     true},
    {"dG_of_A", "dM o beta K K^T, before its row and column sums.", PointUse::stored, {}, {}, true},
    {"dG", "dG of each token, before the sum that makes dg of it.", PointUse::stored, {}, {}, true},
    {"dv", "dv of a value head, as it is written."},
    {"dg", "dg, the sums of dG to the end of its chunk.", PointUse::stored, {}, {}, true},
    {"dbeta", "dbeta, as it is written.", PointUse::stored, {}, {}, true},
    {"d_initial_state", "The gradient of the initial state.", PointUse::stored, {}, {}, true},
};
inline constexpr PointTable chunk_backward{"chunk_backward", PointTier::evaluation, kChunkBackwardRows};
}  // namespace points

namespace detail {

/// sum_j a_ij b_ij of each row i. a, b: [L, n] -> [L].
template <class Scalar>
[[nodiscard]] Vector<Scalar> row_products(const Matrix<Scalar>& a, const Matrix<Scalar>& b) {
  return a.cwiseProduct(b).rowwise().sum();
}

template <class Scalar>
[[nodiscard]] Vector<Scalar> stored_vector(const Vector<Scalar>& x, Point point) {
  return stored<Scalar>(Matrix<Scalar>(x), point).col(0);
}

/// A chunk of the forward pass from the state before it, with the values that its reverse reads.
template <class System, class Scalar>
struct ForwardChunk {
  Sequence<Scalar> x;         ///< initial_state is the state before the chunk
  Matrix<Scalar> E;           ///< [L, L] decays between tokens, 0 above the diagonal
  Vector<Scalar> from_start;  ///< [L] e^G
  Vector<Scalar> to_end;      ///< [L] e^{G_C - G}
  Matrix<Scalar> S;           ///< [dk, dv] the state as an operand
  Matrix<Scalar> N;           ///< [L, dv] what is written, as an operand; v without a delta term
  Matrix<Scalar> KK;          ///< [L, L] k k^T; this and those below only with a delta term
  Matrix<Scalar> T;           ///< [L, L]
  Matrix<Scalar> beta_v;      ///< [L, dv]
  Matrix<Scalar> beta_k;      ///< [L, dk] beta e^G k
  Matrix<Scalar> W;           ///< [L, dk]
  Matrix<Scalar> state;       ///< [dk, dv] after the chunk

  explicit ForwardChunk(Sequence<Scalar> chunk) : x(std::move(chunk)) {
    constexpr const PointTable& at = points::chunk_backward;
    const Index L = x.tokens();
    if constexpr (System::gated) {
      x.g = cumulative_decay(x.g);
    } else {
      x.g.setZero();
    }
    E = decay_between(x.g);
    from_start = decay_from_start(x.g);
    to_end = E.row(L - 1).transpose();
    S = stored(x.initial_state, at["state_operand"]);
    Matrix<Scalar> written = x.v;
    if constexpr (System::delta) {
      KK = matrix_product(x.k, x.k.transpose(), at["key_products"]);
      const Matrix<Scalar> A = lower<Scalar>(x.beta.asDiagonal() * KK.cwiseProduct(E), -1);
      T = stored(solve_unit_lower<Scalar>(A, Matrix<Scalar>::Identity(L, L)), at["T"]);
      beta_v = stored<Scalar>(x.beta.asDiagonal() * x.v, at["beta_v"]);
      beta_k = stored<Scalar>(x.beta.cwiseProduct(from_start).asDiagonal() * x.k, at["beta_k"]);
      const Matrix<Scalar> U = stored(matrix_product(T, beta_v, at["U"]), at["U"]);
      W = stored(matrix_product(T, beta_k, at["W"]), at["W"]);
      written = U - matrix_product(W, S, at["read_by_W"]);
    }
    N = stored(written, at["v_new"]);
    const Matrix<Scalar> decayed = stored<Scalar>(to_end.asDiagonal() * written, at["v_decayed"]);
    state = from_start(L - 1) * x.initial_state + matrix_product(x.k.transpose(), decayed, at["state"]);
  }
};

/// The gradients that pass through scores and state: dN, dq, dk' and dG of one chunk, and D of the chunk before.
template <class System, class Scalar>
struct ReverseThroughState {
  Matrix<Scalar> dN;      ///< [L, dv]
  Matrix<Scalar> dq, dk;  ///< [L, dk]
  Vector<Scalar> dG;      ///< [L]
  Matrix<Scalar> D;       ///< [dk, dv] of the state before the chunk, still without -W^T dN

  ReverseThroughState(const ForwardChunk<System, Scalar>& f, const Matrix<Scalar>& d_o,
                      const Matrix<Scalar>& after) {
    constexpr const PointTable& at = points::chunk_backward;
    const Sequence<Scalar>& x = f.x;
    const Index last = x.tokens() - 1;
    const Matrix<Scalar> QK = matrix_product(x.q, x.k.transpose(), at["scores"]);
    const Matrix<Scalar> P = stored<Scalar>(x.scale * QK.cwiseProduct(f.E), at["P"]);
    const Matrix<Scalar> local = stored(matrix_product(P.transpose(), d_o, at["dv_local"]), at["dv_local"]);
    const Matrix<Scalar> Db = stored(after, at["dh_operand"]);
    const Matrix<Scalar> carried = matrix_product(x.k, Db, at["dv_carried"]);
    dN = stored<Scalar>(f.to_end.asDiagonal() * carried + local, at["dv_new"]);

    const Matrix<Scalar> scaled = stored_with_factor<Scalar>(x.q, x.scale, at["q_scaled"]);
    const Matrix<Scalar> q_decayed =
        stored_with_factor<Scalar>(f.from_start.asDiagonal() * scaled, x.scale, at["q_scaled_decayed"]);
    // With the scale on an operand the products join the sum of the carried cotangent: kernels add them to it one by one.
    const Matrix<Scalar> scaled_query = x.scale * operand<Scalar>(q_decayed, at["q_decayed"]);
    D = f.from_start(last) * after + scaled_query.transpose() * operand<Scalar>(d_o, at["q_decayed"]);

    const Matrix<Scalar> dON = matrix_product(d_o, f.N.transpose(), at["dS_score"]);
    const Matrix<Scalar> dS = stored<Scalar>(dON.cwiseProduct(f.E), at["dS_unscaled"]);
    const Matrix<Scalar> dP = stored<Scalar>(x.scale * dS, at["dS_score"]);
    const Matrix<Scalar> dOS = matrix_product(d_o, f.S.transpose(), at["dq_of_state"]);
    dq = (x.scale * f.from_start).asDiagonal() * dOS + matrix_product(dP, x.k, at["dq_of_scores"]);
    const Matrix<Scalar> of_state =
        f.to_end.asDiagonal() * matrix_product(f.N, Db.transpose(), at["dk_of_state"]);
    dk = of_state + matrix_product(dP.transpose(), x.q, at["dk_of_scores"]);
    if constexpr (System::gated) {
      const Matrix<Scalar> SD = stored<Scalar>(f.S.cwiseProduct(Db), at["dG_last"]);
      dG = row_products(x.q, dq) - row_products(x.k, dk);
      dG(last) += f.from_start(last) * stored_scalar(Scalar(SD.sum()), at["dG_last"]) +
                  row_products(x.k, of_state).sum();
    }
  }
};

/// These gradients pass through T and A, the delta correction.
template <class System, class Scalar>
struct ReverseThroughInverse {
  Matrix<Scalar> dv;         ///< [L, dv]
  Matrix<Scalar> dk;         ///< [L, dk]
  Vector<Scalar> dbeta, dG;  ///< [L]

  ReverseThroughInverse(const ForwardChunk<System, Scalar>& f, const Matrix<Scalar>& dN) {
    constexpr const PointTable& at = points::chunk_backward;
    const Sequence<Scalar>& x = f.x;
    const Matrix<Scalar> Tt = f.T.transpose();
    const Matrix<Scalar> dW = stored<Scalar>(-matrix_product(dN, f.S.transpose(), at["dw"]), at["dw"]);
    const Matrix<Scalar> dT = stored(lower<Scalar>(matrix_product(dN, f.beta_v.transpose(), at["dT"]) +
                                                       matrix_product(dW, f.beta_k.transpose(), at["dT"]),
                                                   -1),
                                     at["dT"]);
    const Matrix<Scalar> dTT = stored(matrix_product(dT, Tt, at["dT_T"]), at["dT_T"]);
    const Matrix<Scalar> dA = lower<Scalar>(matrix_product(Tt, dTT, at["dA"]), -1);
    const Matrix<Scalar> dM = stored<Scalar>(-dA.cwiseProduct(f.E), at["dA"]);

    const Matrix<Scalar> of_U = matrix_product(Tt, dN, at["dv_of_T"]);
    const Matrix<Scalar> of_W = matrix_product(Tt, dW, at["dk_of_T"]);
    const Matrix<Scalar> of_A = matrix_product(dM, x.k, at["dk_of_A"]);
    const Matrix<Scalar> beta_key = stored<Scalar>(x.beta.asDiagonal() * x.k, at["beta_key"]);
    const Vector<Scalar> decayed_beta = x.beta.cwiseProduct(f.from_start);
    dv = x.beta.asDiagonal() * of_U;
    const Matrix<Scalar> through_W = stored<Scalar>(decayed_beta.asDiagonal() * of_W, at["dk_correction"]);
    const Matrix<Scalar> transposed = matrix_product(dM.transpose(), beta_key, at["dk_of_A_transposed"]);
    const Matrix<Scalar> through_A = x.beta.asDiagonal() * of_A + transposed;
    dk = stored<Scalar>(through_W + through_A, at["dk_correction"]);

    const Vector<Scalar> along_W = row_products(of_W, x.k);
    dbeta = row_products(of_U, x.v) + f.from_start.cwiseProduct(along_W) + row_products(of_A, x.k);
    if constexpr (System::gated) {
      const Matrix<Scalar> beta_KK = x.beta.asDiagonal() * f.KK;
      const Matrix<Scalar> dM_A = stored<Scalar>(dM.cwiseProduct(beta_KK), at["dG_of_A"]);
      dG = decayed_beta.cwiseProduct(along_W);
      dG += dM_A.rowwise().sum() - dM_A.colwise().sum().transpose();
    }
  }
};

/// sum_{i >= t} x_i.
template <class Scalar>
[[nodiscard]] Vector<Scalar> reverse_sums(Vector<Scalar> x) {
  for (Index t = x.size() - 2; t >= 0; --t) x(t) += x(t + 1);
  return x;
}

}  // namespace detail

/// The gradients of one head in chunks, the last one possibly shorter, with the part of dk through the delta
/// correction in `k_correction`, as a kernel hands it on to the sum over a group. The states before the
/// chunks are kept about sqrt(T / chunk) chunks apart. Throws Error for chunk < 1, or if a cotangent has
/// another shape than its output.
template <class System, class Scalar>
[[nodiscard]] HeadGradients<Scalar> chunked_backward_parts(const Sequence<Scalar>& x,
                                                           const HeadCotangents<Scalar>& d, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_cotangents(x, d);
  constexpr const PointTable& at = points::chunk_backward;
  HeadGradients<Scalar> out = zero_gradients<System>(x);
  if constexpr (System::delta) out.k_correction = out.k;
  Matrix<Scalar> D = final_state_cotangent(x, d);
  const auto forward = [&](Index c, const Matrix<Scalar>& S) {
    const Index begin = c * chunk;
    return detail::ForwardChunk<System, Scalar>(x.slice(begin, std::min(begin + chunk, x.tokens()), S));
  };
  const auto advance = [&](Index c, const Matrix<Scalar>& S) { return forward(c, S).state; };
  const auto reverse = [&](Index c, const Matrix<Scalar>& S) {
    const detail::ForwardChunk<System, Scalar> f = forward(c, S);
    const Index begin = c * chunk;
    const Index L = f.x.tokens();
    const Matrix<Scalar> d_o = d.o.middleRows(begin, L);
    detail::ReverseThroughState<System, Scalar> back(f, d_o, D);
    out.q.middleRows(begin, L) = stored(back.dq, at["dq_head"]);
    out.k.middleRows(begin, L) = stored(back.dk, at["dk_head"]);
    D = back.D;
    if constexpr (System::delta) {
      const detail::ReverseThroughInverse<System, Scalar> inverse(f, back.dN);
      D -= matrix_product(f.W.transpose(), back.dN, at["dh_of_W"]);
      out.v.middleRows(begin, L) = stored(inverse.dv, at["dv"]);
      out.k_correction.middleRows(begin, L) = inverse.dk;
      out.beta.segment(begin, L) = detail::stored_vector(inverse.dbeta, at["dbeta"]);
      if constexpr (System::gated) back.dG += inverse.dG;
    } else {
      out.v.middleRows(begin, L) = stored(back.dN, at["dv"]);
    }
    if constexpr (System::gated) {
      const Vector<Scalar> dG = detail::stored_vector(back.dG, at["dG"]);
      out.g.segment(begin, L) = detail::stored_vector(detail::reverse_sums(dG), at["dg"]);
    }
  };
  reverse_sweep((x.tokens() + chunk - 1) / chunk, x.initial_state, advance, reverse);
  out.initial_state = stored(std::move(D), at["d_initial_state"]);
  return out;
}

/// The same with dk whole.
template <class System, class Scalar>
[[nodiscard]] HeadGradients<Scalar> chunked_backward(const Sequence<Scalar>& x,
                                                     const HeadCotangents<Scalar>& d, Index chunk) {
  HeadGradients<Scalar> out = chunked_backward_parts<System>(x, d, chunk);
  out.k = whole_key_gradient(out.k, out.k_correction);
  out.k_correction.resize(0, 0);
  return out;
}

}  // namespace samestate
