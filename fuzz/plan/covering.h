#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fuzz/plan/combinations.h"
#include "fuzz/plan/factors.h"

namespace samestate {

/// Why a combination is in no case of a covering set.
enum class Missing : std::uint8_t {
  none,
  impossible,  ///< no case that is one has it
  dear         ///< it takes more work than the set may give one case
};

/// A covering set of a kernel's cases.
struct Covering {
  std::vector<Case> cases;       ///< in the order in which they were found: most is new in the first ones
  std::int64_t met = 0;          ///< combinations that a case has
  std::vector<Missing> missing;  ///< by combination of Combinations; empty where none is asked for
};

struct CoveringOptions {
  int strength = 2;
  double most = 1.0;     ///< work of a combination of which no case has less
  double common = 0.25;  ///< of a case that smaller tries did not find
  double usual = 0.01;   ///< of the others
  std::uint64_t seed = 1;
  /// Of triples: Covering::missing of the pairs. A triple of which a pair is missing is missing too.
  const std::vector<Missing>* pairs = nullptr;
  /// No combination is begun once this returns true; the result is then incomplete and must not be used.
  std::function<bool()> stop = nullptr;
};

/// Cases that together have each boundary among the values of each size (Factor::values), and each combination of
/// levels that a case can have, and none that the others make superfluous; `given` are cases that the plan has anyway.
[[nodiscard]] Covering cover(const KernelRow& kernel, const std::vector<Factor>& factors,
                             std::span<const Case> given, const CoveringOptions& options);

/// How often pairs are tried again whose cases showed nothing.
inline constexpr int kCoverAgain = 8;

/// Cases for pairs of levels whose cases were all vacuous, with little else in each: `round` 0 to kCoverAgain - 1 tries other
/// ones each time.
[[nodiscard]] std::vector<Case> cover_again(const KernelRow& kernel, const std::vector<Factor>& factors,
                                            std::span<const std::int64_t> pairs, int round,
                                            const CoveringOptions& options);

}  // namespace samestate
