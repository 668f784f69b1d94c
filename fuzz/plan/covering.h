#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/plan/combinations.h"
#include "fuzz/plan/factors.h"

namespace samestate {

/// Why no case of a covering set has a combination.
enum class Missing : std::uint8_t {
  none,
  impossible,  ///< no valid case has it
  dear         ///< it takes more work than the set may spend on one case
};

/// A covering set of a kernel's cases.
struct Covering {
  std::vector<Case> cases;       ///< in the order in which they were found: the first ones add the most
  std::int64_t met = 0;          ///< the number of combinations that a case has
  std::vector<Missing> missing;  ///< indexed by combination of Combinations; empty if none is requested
};

struct CoveringOptions {
  int strength = 2;
  double most = 1.0;     ///< maximum work for a combination that no cheaper case has
  double common = 0.25;  ///< maximum work of a case that smaller tries did not find
  double usual = 0.01;   ///< maximum work of the others
  std::uint64_t seed = 1;
  /// For triples: Covering::missing of the pairs. A triple that contains a missing pair is missing too.
  const std::vector<Missing>* pairs = nullptr;
  /// No combination is started once this returns true; the result is then incomplete and must not be used.
  std::function<bool()> stop = nullptr;
};

/// Cases that together contain each boundary value of each size (Factor::values) and each combination of
/// levels that a case can have, without cases that the others make superfluous. `given` are cases that the
/// plan contains anyway.
[[nodiscard]] Covering cover(const KernelRow& kernel, const std::vector<Factor>& factors,
                             std::span<const Case> given, const CoveringOptions& options);

/// How many times pairs are tried again if their cases showed nothing.
inline constexpr int kCoverAgain = 8;

/// Cases for pairs of levels whose cases were all vacuous, with everything else as simple as possible; each
/// `round` from 0 to kCoverAgain - 1 tries different ones.
[[nodiscard]] std::vector<Case> cover_again(const KernelRow& kernel, const std::vector<Factor>& factors,
                                            std::span<const std::int64_t> pairs, int round,
                                            const CoveringOptions& options);

}  // namespace samestate
