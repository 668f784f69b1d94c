#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/gated_delta_rule.h"
#include "reference/state_passes.h"

/// Rules whose decay is a vector: each key channel of the state decays by itself. Per head, with a_t = e^{g_t} in R^dk:
///   S' = Diag(a_t) S;  u_t = z_t - S'^T e_t;  S <- S' + k_t u_t^T;  o_t = scale S^T q_t.
/// The rules differ in the erase vector e_t and the value z_t:
///   Kimi Delta Attention (arXiv 2510.26692)  e = beta k, z = beta v
///   Gated DeltaNet-2 (arXiv 2605.22791)      e = b o k, z = w o v, with b in R^dk and w in R^dv
///   gated linear attention (arXiv 2312.06635) no e, z = v
/// If all channels have one decay, Kimi Delta Attention is the gated delta rule and gated linear attention is retention.
namespace samestate {

namespace points {
inline constexpr PointRow kChannelChunkRows[] = {
    {"erase", "The erase vectors e = beta k, an operand of A and of their decayed rows.", PointUse::stored, {}, {}, true},
    {"A_anchored", "The decayed operands of A.", PointUse::stored, {}, {}, true},
    {"P_anchored", "The decayed operands of P.", PointUse::stored, {}, {}, true},
    {"A", "A = e k^T with the decay between the two tokens, below the diagonal.", PointUse::product},
    {"T", "T = (I + A)^-1 of a chunk."},
    {"beta_v", "The values z = beta v of a chunk, an operand of U."},
    {"erase_decayed", "e with its decay from the start of the chunk, an operand of W."},
    {"U", "U = T z.", PointUse::both},
    {"W", "W = T (e o e^G).", PointUse::both},
    {"state_operand", "S as an operand."},
    {"read_by_W", "W S.", PointUse::product},
    {"v_new", "V' = U - W S as an operand."},
    {"P", "The decayed scores, an operand of P V'.", PointUse::both},
    {"q_decayed", "q with its decay from the start of the chunk, an operand of its product with S."},
    {"read", "(q o e^G) S.", PointUse::product},
    {"values", "P V'.", PointUse::product},
    {"k_decayed", "k with its decay to the end of the chunk, an operand of the update of the state."},
    {"state", "The decayed k^T V'.", PointUse::product},
};
inline constexpr PointTable channel_chunk{"channel_chunk", PointTier::evaluation, kChannelChunkRows};
}  // namespace points

/// Inputs of one head of a rule with channel gates.
template <class Scalar>
struct ChannelSequence {
  Matrix<Scalar> q;              ///< [T, dk]
  Matrix<Scalar> k;              ///< [T, dk]
  Matrix<Scalar> v;              ///< [T, dv]
  Matrix<Scalar> g;              ///< [T, dk] natural log of the decay; [T, 1] if all channels have the same
  Matrix<Scalar> erase;          ///< [T, dk] of b, or [T, 1] of beta; not read by a rule without e
  Matrix<Scalar> write;          ///< [T, dv] of w, or [T, 1] of beta; not read by a rule without e
  Scalar scale{1};               ///< multiplies the output
  Matrix<Scalar> initial_state;  ///< [dk, dv]

  [[nodiscard]] Index tokens() const { return k.rows(); }
  [[nodiscard]] Index key_width() const { return k.cols(); }
  [[nodiscard]] Index value_width() const { return v.cols(); }

  /// The tokens [begin, end), starting from another state.
  [[nodiscard]] ChannelSequence slice(Index begin, Index end, Matrix<Scalar> state) const {
    const auto rows = [&](const Matrix<Scalar>& x) {
      return x.size() == 0 ? x : Matrix<Scalar>(x.middleRows(begin, end - begin));
    };
    return {rows(q), rows(k), rows(v), rows(g), rows(erase), rows(write), scale, std::move(state)};
  }

  template <class To>
  [[nodiscard]] ChannelSequence<To> cast() const {
    return {q.template cast<To>(), k.template cast<To>(),     v.template cast<To>(),
            g.template cast<To>(), erase.template cast<To>(), write.template cast<To>(),
            static_cast<To>(scale), initial_state.template cast<To>()};
  }
};

/// Throws Error, naming the tensor, unless the inputs of a head fit together.
template <class Scalar>
void require_channel_shapes(const ChannelSequence<Scalar>& x, bool delta) {
  const Index T = x.tokens(), dk = x.key_width(), dv = x.value_width();
  const auto require = [&](const char* name, const Matrix<Scalar>& m, Index width) {
    if (m.rows() == T && (m.cols() == width || m.cols() == 1)) return;
    throw Error("channel gates: " + std::string(name) + " is " + std::to_string(m.rows()) + " x " +
                std::to_string(m.cols()) + "; needed " + std::to_string(T) + " x " + std::to_string(width) +
                ", or one column for all channels");
  };
  if (x.q.rows() != T || x.q.cols() != dk || x.v.rows() != T || x.initial_state.rows() != dk ||
      x.initial_state.cols() != dv) {
    throw Error("channel gates: q, k, v and the initial state disagree: T " + std::to_string(T) + ", dk " +
                std::to_string(dk) + ", dv " + std::to_string(dv));
  }
  require("g", x.g, dk);
  if (!delta) return;
  require("the erase gate", x.erase, dk);
  require("the write gate", x.write, dv);
}

namespace detail {

/// The rows of x, each times its row of `gate`, which has one column or as many.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> gated_rows(const Matrix<Scalar>& gate, const Matrix<Scalar>& x) {
  if (gate.cols() == 1) return gate.col(0).asDiagonal() * x;
  return gate.cwiseProduct(x);
}

/// The element of a gate that a channel reads.
template <class Scalar>
[[nodiscard]] const Scalar& gate_at(const Matrix<Scalar>& gate, Index t, Index channel) {
  return gate(t, gate.cols() == 1 ? 0 : channel);
}

/// e^{G}, the decay of each channel from the start of a chunk through each token. g: [L, w] -> [L, dk].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> channel_decay_from_start(const Matrix<Scalar>& g, Index dk) {
  using std::exp;
  Matrix<Scalar> e(g.rows(), dk);
  for (Index l = 0; l < dk; ++l) {
    Scalar sum(0);
    for (Index t = 0; t < g.rows(); ++t) {
      sum += gate_at(g, t, l);
      e(t, l) = exp(sum);
    }
  }
  return e;
}

/// The decay of each channel behind each token to the end of a chunk, e^{G_L - G}, from sums that begin behind the token.
/// g: [L, w] -> [L, dk].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> channel_decay_to_end(const Matrix<Scalar>& g, Index dk) {
  using std::exp;
  Matrix<Scalar> e(g.rows(), dk);
  for (Index l = 0; l < dk; ++l) {
    for (Index t = 0; t < g.rows(); ++t) {
      Scalar sum(0);
      for (Index i = t + 1; i < g.rows(); ++i) sum += gate_at(g, i, l);
      e(t, l) = exp(sum);
    }
  }
  return e;
}

/// sum_l x_il y_jl e^{G_il - G_jl} for j <= i, or j < i if `strict`; 0 elsewhere. Each difference of sums is a sum of its own,
/// which starts at j + 1, so that a reset (g = -inf) has a value. x, y: [L, dk] -> [L, L].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> decayed_products(const Matrix<Scalar>& x, const Matrix<Scalar>& y,
                                              const Matrix<Scalar>& g, bool strict, Point anchored, Point product) {
  using std::exp;
  const Index L = x.rows(), dk = x.cols();
  Matrix<Scalar> out = Matrix<Scalar>::Zero(L, L);
  for (Index j = 0; j < L; ++j) {
    Vector<Scalar> sum = Vector<Scalar>::Zero(dk);
    for (Index i = j; i < L; ++i) {
      if (i > j) {
        for (Index l = 0; l < dk; ++l) sum(l) += gate_at(g, i, l);
      }
      if (strict && i == j) continue;
      Matrix<Scalar> row(1, dk);
      for (Index l = 0; l < dk; ++l) row(0, l) = x(i, l) * exp(sum(l));
      row = stored(std::move(row), anchored);
      out(i, j) = matrix_product(row, y.row(j).transpose(), product)(0, 0);
    }
  }
  return out;
}

}  // namespace detail

/// Rules with e = beta k, or b o k, and z = beta v, or w o v: Kimi Delta Attention and Gated DeltaNet-2.
struct ChannelDelta {
  static constexpr bool delta = true;

  /// The value u_t that token t writes, given the decayed state R. [1, dv].
  template <class Scalar>
  [[nodiscard]] static Matrix<Scalar> written(const ChannelSequence<Scalar>& x, Index t, Matrix<Scalar>& R) {
    // One gate for both multiplies their difference, as in the gated delta rule.
    if (x.erase.cols() == 1 && x.write.cols() == 1) {
      const Matrix<Scalar> read = decay_read(NoDecay{}, x.k.row(t), R);
      return x.erase(t, 0) == x.write(t, 0)
                 ? Matrix<Scalar>(x.erase(t, 0) * (x.v.row(t) - read))
                 : Matrix<Scalar>(x.write(t, 0) * x.v.row(t) - x.erase(t, 0) * read);
    }
    const Matrix<Scalar> e = detail::gated_rows<Scalar>(x.erase.row(t), x.k.row(t));
    return detail::gated_rows<Scalar>(x.write.row(t), x.v.row(t)) - decay_read(NoDecay{}, e.row(0), R);
  }
};

/// Gated linear attention: nothing is erased, and v is written.
struct ChannelLinear {
  static constexpr bool delta = false;

  template <class Scalar>
  [[nodiscard]] static Matrix<Scalar> written(const ChannelSequence<Scalar>& x, Index t, Matrix<Scalar>&) {
    return x.v.row(t);
  }
};

/// Token by token: decay, read, write, then the read of o. T = 0 returns the initial state. Throws Error if the inputs
/// disagree.
template <class Rule, class Scalar>
[[nodiscard]] Trajectory<Scalar> channel_recurrent(const ChannelSequence<Scalar>& x) {
  using std::exp;
  require_channel_shapes(x, Rule::delta);
  Trajectory<Scalar> out{Matrix<Scalar>(x.tokens(), x.value_width()), Matrix<Scalar>(x.tokens(), x.value_width()),
                         x.initial_state};
  Matrix<Scalar>& S = out.state;
  for (Index t = 0; t < x.tokens(); ++t) {
    for (Index l = 0; l < x.key_width(); ++l) S.row(l) *= Scalar(exp(detail::gate_at(x.g, t, l)));
    const Matrix<Scalar> u = Rule::template written<Scalar>(x, t, S);
    out.delta.row(t) = u;
    out.o.row(t) = x.scale * decay_write_read(NoDecay{}, x.k.row(t), u.row(0), x.q.row(t), S);
  }
  return out;
}

/// All tokens of x as one chunk in WY form. The decay of a pair of tokens is inside the sum over channels, so that A and P
/// are no products of two matrices whose result decays:
///   A_ij = sum_l e_il k_jl e^{G_il - G_jl} (j < i),  P_ij = sum_l q_il k_jl e^{G_il - G_jl} (j <= i),  T = (I + A)^-1
///   U = T z,  W = T (e o e^G),  V' = U - W S
///   O = scale ((q o e^G) S + P V'),  S <- Diag(e^{G_L}) S + (k o e^{G_L - G})^T V'.
template <class Rule, class Scalar>
[[nodiscard]] Trajectory<Scalar> channel_chunk(ChannelSequence<Scalar> x) {
  constexpr const PointTable& at = points::channel_chunk;
  const Index L = x.tokens(), dk = x.key_width();
  for (Index l = 0; l < x.g.cols(); ++l) {
    const Vector<Scalar> column = x.g.col(l);
    x.g.col(l) = cumulative_decay(column);
  }
  const Matrix<Scalar> from_start = detail::channel_decay_from_start(x.g, dk);
  const Matrix<Scalar> S = stored(x.initial_state, at["state_operand"]);
  Trajectory<Scalar> out;
  out.delta = x.v;
  if constexpr (Rule::delta) {
    const Matrix<Scalar> e = stored(detail::gated_rows(x.erase, x.k), at["erase"]);
    const Matrix<Scalar> A = detail::decayed_products(e, x.k, x.g, true, at["A_anchored"], at["A"]);
    const Matrix<Scalar> T = stored(solve_unit_lower<Scalar>(A, Matrix<Scalar>::Identity(L, L)), at["T"]);
    const Matrix<Scalar> z = stored(detail::gated_rows(x.write, x.v), at["beta_v"]);
    const Matrix<Scalar> decayed = stored<Scalar>(e.cwiseProduct(from_start), at["erase_decayed"]);
    const Matrix<Scalar> U = stored(matrix_product(T, z, at["U"]), at["U"]);
    const Matrix<Scalar> W = stored(matrix_product(T, decayed, at["W"]), at["W"]);
    out.delta = U - matrix_product(W, S, at["read_by_W"]);
  }
  const Matrix<Scalar> delta = stored(out.delta, at["v_new"]);
  const Matrix<Scalar> P =
      stored(detail::decayed_products(x.q, x.k, x.g, false, at["P_anchored"], at["P"]), at["P"]);
  const Matrix<Scalar> q = stored<Scalar>(x.q.cwiseProduct(from_start), at["q_decayed"]);
  out.o = x.scale * (matrix_product(q, S, at["read"]) + matrix_product(P, delta, at["values"]));
  const Matrix<Scalar> k =
      stored<Scalar>(x.k.cwiseProduct(detail::channel_decay_to_end(x.g, dk)), at["k_decayed"]);
  out.state = from_start.row(L - 1).transpose().asDiagonal() * x.initial_state +
              matrix_product(k.transpose(), delta, at["state"]);
  return out;
}

/// Chunk by chunk, the last one possibly shorter. Throws Error for chunk < 1 and if the inputs disagree.
template <class Rule, class Scalar>
[[nodiscard]] Trajectory<Scalar> channel_chunked(const ChannelSequence<Scalar>& x, Index chunk) {
  if (chunk < 1) throw Error("chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  require_channel_shapes(x, Rule::delta);
  Trajectory<Scalar> out{Matrix<Scalar>(x.tokens(), x.value_width()), Matrix<Scalar>(x.tokens(), x.value_width()),
                         x.initial_state};
  for (Index t = 0; t < x.tokens(); t += chunk) {
    const Index end = std::min(t + chunk, x.tokens());
    const Trajectory<Scalar> part = channel_chunk<Rule>(x.slice(t, end, out.state));
    out.o.middleRows(t, end - t) = part.o;
    out.delta.middleRows(t, end - t) = part.delta;
    out.state = part.state;
  }
  return out;
}

/// The step of token t as a map of the state: (I - k e^T) Diag(a) S + k z^T. Diag(a) stands to the right of (I - k e^T) and
/// does not commute with it.
template <class Rule, class Scalar>
[[nodiscard]] AffineMap<Scalar> channel_map(const ChannelSequence<Scalar>& x, Index t) {
  using std::exp;
  const Index dk = x.key_width();
  const Vector<Scalar> k = x.k.row(t).transpose();
  Vector<Scalar> a(dk);
  for (Index l = 0; l < dk; ++l) a(l) = exp(detail::gate_at(x.g, t, l));
  Matrix<Scalar> keep = Matrix<Scalar>::Identity(dk, dk);
  Matrix<Scalar> z = x.v.row(t);
  if constexpr (Rule::delta) {
    keep -= k * detail::gated_rows<Scalar>(x.erase.row(t), x.k.row(t));
    z = detail::gated_rows<Scalar>(x.write.row(t), x.v.row(t));
  }
  return {keep * a.asDiagonal(), k * z};
}

/// All states by an inclusive parallel scan (Hillis-Steele) over the maps, followed by the reads, in O(T log T dk^3).
/// Returns o and the final state; delta is empty.
template <class Rule, class Scalar>
[[nodiscard]] Trajectory<Scalar> channel_scan(const ChannelSequence<Scalar>& x) {
  require_channel_shapes(x, Rule::delta);
  const Index T = x.tokens();
  std::vector<AffineMap<Scalar>> prefix;
  for (Index t = 0; t < T; ++t) prefix.push_back(channel_map<Rule>(x, t));
  for (Index reach = 1; reach < T; reach *= 2) {
    std::vector<AffineMap<Scalar>> wider = prefix;
    for (Index t = reach; t < T; ++t) {
      wider[static_cast<std::size_t>(t)] =
          then(prefix[static_cast<std::size_t>(t - reach)], prefix[static_cast<std::size_t>(t)]);
    }
    prefix = std::move(wider);
  }
  Trajectory<Scalar> out{Matrix<Scalar>(T, x.value_width()), {}, x.initial_state};
  for (Index t = 0; t < T; ++t) {
    const AffineMap<Scalar>& map = prefix[static_cast<std::size_t>(t)];
    out.state = map.A * x.initial_state + map.B;
    out.o.row(t) = x.scale * (x.q.row(t) * out.state).eval();
  }
  return out;
}

/// The same rule in column convention, S^c = S^T [dv, dk]: S^c <- (S^c Diag(a)) (I - e k^T) + z k^T.
template <class Rule, class Scalar>
[[nodiscard]] Trajectory<Scalar> channel_column(const ChannelSequence<Scalar>& x) {
  require_channel_shapes(x, Rule::delta);
  Trajectory<Scalar> out{Matrix<Scalar>(x.tokens(), x.value_width()), {}, x.initial_state};
  Matrix<Scalar> S = x.initial_state.transpose();
  for (Index t = 0; t < x.tokens(); ++t) {
    const AffineMap<Scalar> map = channel_map<Rule>(x, t);
    S = S * map.A.transpose() + map.B.transpose();
    out.o.row(t) = (x.scale * (S * x.q.row(t).transpose()).eval()).transpose();
  }
  out.state = S.transpose();
  return out;
}

}  // namespace samestate
