#pragma once

#include <cmath>
#include <type_traits>
#include <utility>

#include "oracles/systems/stages.h"
#include "reference/retention.h"
#include "reference/sequence.h"

/// Functions shared by the rows of multi-scale retention: a head's sequence, and the layer's stages.
namespace samestate {

/// x as it is in a kernel that keeps the state divided by powers of gamma, so that it need not multiply it
/// for every token: x divided by a power and multiplied by it again.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> through_powers(const Matrix<Scalar>& x, const Scalar& gamma) {
  return x.unaryExpr([&](const Scalar& e) { return Scalar(e / gamma) * gamma; });
}

/// Head h of plain retention, starting from its state; q, k [T, dk], v [T, dv]. For a call of one token the
/// power is 1, as for a call's first token.
template <class Scalar>
[[nodiscard]] Sequence<Scalar> core_sequence(Matrix<Scalar> q, Matrix<Scalar> k, Matrix<Scalar> v, Index h,
                                             Matrix<Scalar> state) {
  const Index T = q.rows();
  if constexpr (std::is_same_v<Scalar, Running> || std::is_same_v<Scalar, Stochastic>) {
    const Scalar gamma(1.0 - std::ldexp(1.0, static_cast<int>(-5 - h)));
    if (T > 1) {
      v.bottomRows(T - 1) = through_powers<Scalar>(v.bottomRows(T - 1), gamma);
      state = through_powers<Scalar>(state, gamma);
    }
  }
  const Vector<Scalar> g = Vector<Scalar>::Constant(T, retention_log_decay<Scalar>(h));
  return {std::move(q), std::move(k), std::move(v), g, Vector<Scalar>::Ones(T), Scalar(1), std::move(state)};
}

/// The epsilon that kernels hold: the nearest fp32 number.
inline constexpr double kRetentionNormEpsilon = 1e-6F;

/// The tokens before the call, from the layer's state `position` [1, 1]; `tokens_after` is that state after
/// the call.
template <class Scalar>
[[nodiscard]] Index tokens_before(const Matrix<Scalar>& position) {
  if constexpr (std::is_same_v<Scalar, double>)
    return static_cast<Index>(position(0, 0));
  else
    return static_cast<Index>(position(0, 0).value());
}
template <class Scalar>
[[nodiscard]] Matrix<Scalar> tokens_after(Index before, Index tokens) {
  return Matrix<Scalar>::Constant(1, 1, Scalar(static_cast<double>(before + tokens)));
}

/// queries and keys, values, gate -> retention -> norm and gate -> output. Taps: q, k [T, H, dk] rotated, k
/// scaled; v, g [T, H dv], g before silu; gated [T, H dv].
[[nodiscard]] LayerStages multi_scale_retention_stages(const Call& call);

}  // namespace samestate
