#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "reference/contract.h"
#include "reference/error.h"
#include "reference/recurrence.h"

/// Value heads divided among ranks: each rank holds its own value heads and the key heads that serve them,
/// and evaluates them as if there were no others. Heads do not interact, so the outputs side by side equal
/// those of the heads one by one, bit for bit.
namespace samestate {

/// All heads of one sequence, or those of one rank.
template <class Scalar>
struct Heads {
  std::vector<Matrix<Scalar>> q, k;           ///< [Hk] of [T, dk]
  std::vector<Matrix<Scalar>> v;              ///< [Hv] of [T, dv]
  std::vector<Vector<Scalar>> g, beta;        ///< [Hv] of [T]
  std::vector<Matrix<Scalar>> initial_state;  ///< [Hv] of [dk, dv]
  std::vector<Index> key_of;                  ///< [Hv] the key head that serves each value head
  Scalar scale{1};

  [[nodiscard]] Sequence<Scalar> head(std::size_t h) const {
    const auto key = static_cast<std::size_t>(key_of[h]);
    return {q[key], k[key], v[h], g[h], beta[h], scale, initial_state[h]};
  }
};

/// Which key head serves each of Hv value heads, by enumeration: either Hv / Hk consecutive value heads share
/// one, or each value head takes the key head after that of the previous one. Throws Error unless Hv is a
/// multiple of Hk.
[[nodiscard]] inline std::vector<Index> key_heads_of(Index Hk, Index Hv, HeadMap map) {
  if (Hk < 1 || Hv < 1 || Hv % Hk != 0)
    throw Error("Hv=" + std::to_string(Hv) + ": must be a multiple of Hk=" + std::to_string(Hk));
  std::vector<Index> keys;
  for (Index outer = 0; outer < (map == HeadMap::interleaved ? Hk : Hv / Hk); ++outer) {
    for (Index inner = 0; inner < Hv / Hk && map == HeadMap::interleaved; ++inner) keys.push_back(outer);
    for (Index inner = 0; inner < Hk && map == HeadMap::tiled; ++inner) keys.push_back(inner);
  }
  return keys;
}

/// Returns a copy of the data that the rank of the value heads [begin, end) has, with its key heads
/// renumbered in the order of the call.
template <class Scalar>
[[nodiscard]] Heads<Scalar> heads_of_rank(const Heads<Scalar>& all, Index begin, Index end) {
  const auto part = [&](const auto& list) {
    return std::decay_t<decltype(list)>(list.begin() + begin, list.begin() + end);
  };
  Heads<Scalar> own{{}, {}, part(all.v), part(all.g), part(all.beta), part(all.initial_state), {}, all.scale};
  const std::vector<Index> served = part(all.key_of);
  std::vector<Index> kept = served;
  std::sort(kept.begin(), kept.end());
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (const Index key : kept) {
    own.q.push_back(all.q[static_cast<std::size_t>(key)]);
    own.k.push_back(all.k[static_cast<std::size_t>(key)]);
  }
  for (const Index key : served) {
    own.key_of.push_back(std::lower_bound(kept.begin(), kept.end(), key) - kept.begin());
  }
  return own;
}

/// Rank r holds the value heads [cuts[r], cuts[r + 1]), and none if the two are equal. Returns one trajectory
/// per value head of the call. Throws Error unless cuts ascend from 0 to Hv.
template <class System, class Scalar>
[[nodiscard]] std::vector<Trajectory<Scalar>> head_parallel(const Heads<Scalar>& all,
                                                            const std::vector<Index>& cuts) {
  if (cuts.size() < 2 || cuts.front() != 0 || cuts.back() != std::ssize(all.v))
    throw Error("cuts: must go from 0 to Hv=" + std::to_string(all.v.size()));
  if (!std::is_sorted(cuts.begin(), cuts.end()))
    throw Error("cuts: each must not be below the one before it");
  std::vector<Trajectory<Scalar>> out;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const Heads<Scalar> own = heads_of_rank(all, cuts[r], cuts[r + 1]);
    for (std::size_t l = 0; l < own.v.size(); ++l) out.push_back(recurrent<System>(own.head(l)));
  }
  return out;
}

}  // namespace samestate
