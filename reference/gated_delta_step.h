#pragma once

#include <cmath>
#include <string>

#include "reference/error.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/l2norm.h"
#include "reference/rounding_point.h"

/// The serving step of Gated DeltaNet: everything between the convolution and the gated norm of the layer
/// (EQUATIONS 5.6), with gates and l2norm inside and the state in one slot of a pool. With one token it is
/// decode; with several, the drafted tokens of multi-token prediction.
namespace samestate {

namespace points {
inline constexpr PointRow kGatedDeltaStepRows[] = {
    {"normalised_q", "q, after its l2norm."},
    {"normalised_k", "k, after its l2norm."},
};
inline constexpr PointTable gated_delta_step{"gated_delta_step", PointTier::equation, kGatedDeltaStepRows};
}  // namespace points

/// The slot of a request that has no state, such as the padding of a captured batch.
inline constexpr Index kNullSlot = -1;

/// The inputs of one request: Hk key heads of width dk; Hv value heads of width dv, a multiple of Hk; T
/// tokens, with the heads of each token one after another; and a pool of P slots, each holding Hv states [dk,
/// dv].
template <class Scalar>
struct GatedDeltaStep {
  Index key_heads = 1;
  Matrix<Scalar> q;        ///< [T Hk, dk]
  Matrix<Scalar> k;        ///< [T Hk, dk]
  Matrix<Scalar> v;        ///< [T Hv, dv]
  Matrix<Scalar> a;        ///< [T, Hv]
  Matrix<Scalar> b;        ///< [T, Hv]
  Vector<Scalar> A_log;    ///< [Hv]
  Vector<Scalar> dt_bias;  ///< [Hv]
  Matrix<Scalar> pool;     ///< [P Hv dk, dv]
  Index slot = kNullSlot;
  bool normalises = true;  ///< q and k are l2-normalised inside

  [[nodiscard]] Index tokens() const { return a.rows(); }
  [[nodiscard]] Index value_heads() const { return a.cols(); }
  /// The key head that serves value head h (GDN-26).
  [[nodiscard]] Index key_head(Index h) const { return h / (value_heads() / key_heads); }
};

template <class Scalar>
struct GatedDeltaStepOutput {
  Matrix<Scalar> o;     ///< [T Hv, dv]
  Matrix<Scalar> pool;  ///< as it was, except for the rows of the slot
};

namespace detail {

template <class Scalar>
void require_gated_delta_step(const GatedDeltaStep<Scalar>& x) {
  const auto require = [](const std::string& name, Index is, Index wanted) {
    if (is != wanted) {
      throw Error("gated_delta_step: " + name + " has extent " + std::to_string(is) + ", needed " +
                  std::to_string(wanted));
    }
  };
  const Index T = x.tokens();
  const Index Hv = x.value_heads();
  if (x.key_heads < 1 || Hv < 1 || Hv % x.key_heads != 0) {
    throw Error("gated_delta_step: " + std::to_string(Hv) + " value heads on " + std::to_string(x.key_heads) +
                " key heads: they must be a multiple, at least 1");
  }
  require("q", x.q.rows(), T * x.key_heads);
  require("k", x.k.rows(), T * x.key_heads);
  require("k", x.k.cols(), x.q.cols());
  require("v", x.v.rows(), T * Hv);
  require("b", x.b.rows(), T);
  require("b", x.b.cols(), Hv);
  require("pool", x.pool.cols(), x.v.cols());
  const Index of_slot = Hv * x.q.cols();
  if (of_slot == 0 || x.pool.rows() % of_slot != 0) {
    throw Error("gated_delta_step: a pool of " + std::to_string(x.pool.rows()) + " rows, " +
                std::to_string(of_slot) + " a slot: it must hold whole slots");
  }
  if (x.slot < kNullSlot || x.slot >= x.pool.rows() / of_slot) {
    throw Error("gated_delta_step: slot " + std::to_string(x.slot) + " of a pool of " +
                std::to_string(x.pool.rows() / of_slot) + ": 0 and up, or -1 for none");
  }
}

/// Rows h, h + heads, ... of x: one head for all tokens.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> head_of_tokens(const Matrix<Scalar>& x, Index heads, Index h) {
  Matrix<Scalar> y(x.rows() / heads, x.cols());
  for (Index t = 0; t < y.rows(); ++t) y.row(t) = x.row(t * heads + h);
  return y;
}

}  // namespace detail

/// The step of one request. `run` evaluates the rule on one head, in any form: Sequence<Scalar> ->
/// Trajectory<Scalar>. A kernel may keep normalised q and k in its operand format, but no gate in less than
/// fp32 (BUGS M55). Without a slot nothing is read, o is zero and the pool is unchanged. Throws Error if
/// sizes disagree or there is no such slot.
template <class Scalar, class Run>
[[nodiscard]] GatedDeltaStepOutput<Scalar> gated_delta_step(const GatedDeltaStep<Scalar>& x, const Run& run) {
  using std::sqrt;
  detail::require_gated_delta_step(x);
  GatedDeltaStepOutput<Scalar> out{Matrix<Scalar>::Zero(x.v.rows(), x.v.cols()), x.pool};
  const Matrix<Scalar> g = log_decay(x.a, x.A_log, x.dt_bias);  // GDN-29
  const Matrix<Scalar> beta = write_strength(x.b);              // GDN-30
  if (x.slot == kNullSlot) return out;
  const Matrix<Scalar> q =
      x.normalises ? stored(l2norm(x.q), points::gated_delta_step["normalised_q"]) : x.q;  // GDN-32
  const Matrix<Scalar> k =
      x.normalises ? stored(l2norm(x.k), points::gated_delta_step["normalised_k"]) : x.k;  // GDN-32
  const Index Hv = x.value_heads();
  const Index dk = x.q.cols();
  for (Index h = 0; h < Hv; ++h) {
    const Index first = (x.slot * Hv + h) * dk;  // first row of the state in the pool
    Sequence<Scalar> head;
    head.q = detail::head_of_tokens(q, x.key_heads, x.key_head(h));
    head.k = detail::head_of_tokens(k, x.key_heads, x.key_head(h));
    head.v = detail::head_of_tokens(x.v, Hv, h);
    head.g = g.col(h);
    head.beta = beta.col(h);
    head.scale = Scalar(1) / sqrt(Scalar(static_cast<double>(dk)));  // GDN-33
    head.initial_state = x.pool.middleRows(first, dk);
    const Trajectory<Scalar> core = run(head);
    for (Index t = 0; t < x.tokens(); ++t) out.o.row(t * Hv + h) = core.o.row(t);
    out.pool.middleRows(first, dk) = core.state;
  }
  return out;
}

}  // namespace samestate
