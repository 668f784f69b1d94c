#pragma once

#include <vector>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/identity.h"
#include "reference/selective_scan.h"
#include "reference/state_space_duality.h"

/// Random data for the identities of the state space models, and the declaration of those of their layers.
namespace samestate::state_space {

inline constexpr Index kTokens = 13;  // not a power of two
inline constexpr Index kChannels = 3;
inline constexpr Index kStates = 4;
inline constexpr Discretisation kEuler = Discretisation::euler;
inline constexpr Discretisation kHold = Discretisation::zero_order_hold;

/// A scan with skip, gate and an initial state.
template <class Scalar>
SelectiveScan<Scalar> draw_scan(std::uint64_t seed) {
  IdentityDraw<Scalar> draw(seed);
  SelectiveScan<Scalar> x;
  x.u = draw.normal(kTokens, kChannels);
  x.delta = time_steps(draw.normal(kTokens, kChannels), draw.uniform_vector(kChannels, -1.0, 1.0));
  x.A = decay_rates(draw.normal(kChannels, kStates, 0.5));
  x.B = draw.normal(kTokens, kStates);
  x.C = draw.normal(kTokens, kStates);
  x.skip = draw.normal_vector(kChannels);
  x.z = draw.normal(kTokens, kChannels);
  x.initial_state = draw.normal(kChannels, kStates);
  return x;
}

template <class Scalar>
StateSpaceHead<Scalar> draw_head(std::uint64_t seed) {
  const SelectiveScan<Scalar> x = draw_scan<Scalar>(seed);
  return {x.u, x.delta.col(0), x.A(0, 0), x.B, x.C, x.skip(0), x.initial_state};
}

/// The rows of mamba.cpp, which selective_scan_identities::rows() includes.
namespace layer_identities {
[[nodiscard]] std::vector<Identity> rows();
}

}  // namespace samestate::state_space
