#pragma once

#include <algorithm>
#include <vector>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/identity.h"
#include "reference/l2norm.h"

/// Heads for the identities of the recurrent family, and the declaration of the rows in its second file.
namespace samestate {

/// The invariants of 7.7 that the core has on its own; part of recurrent_family_identities::rows().
namespace recurrent_family_invariants {
[[nodiscard]] std::vector<Identity> rows();
}

namespace identity_draws {

inline constexpr Index kTokens = 37;  // leaves a shorter last chunk for every chunk > 1 (EQ-02)
inline constexpr Index kKeyWidth = 4;
inline constexpr Index kValueWidth = 3;

/// A head with normalised q and k, decays in [-1, 0), beta in [0, 1).
template <class Scalar>
[[nodiscard]] Sequence<Scalar> draw_head(std::uint64_t seed, bool from_zero = false) {
  IdentityDraw<Scalar> draw(seed);
  Sequence<Scalar> x;
  x.q = l2norm(draw.normal(kTokens, kKeyWidth));
  x.k = l2norm(draw.normal(kTokens, kKeyWidth));
  x.v = draw.normal(kTokens, kValueWidth);
  x.g = draw.uniform_vector(kTokens, -1.0, 0.0);
  x.beta = draw.uniform_vector(kTokens);
  x.scale = Scalar(0.5);
  x.initial_state = draw.normal(kKeyWidth, kValueWidth);
  if (from_zero) x.initial_state.setZero();
  return x;
}

/// The difference over outputs, deltas and state.
template <class Scalar>
[[nodiscard]] double difference(const Trajectory<Scalar>& a, const Trajectory<Scalar>& b) {
  return std::max({relative_difference(a.o, b.o), relative_difference(a.delta, b.delta),
                   relative_difference(a.state, b.state)});
}

}  // namespace identity_draws
}  // namespace samestate
