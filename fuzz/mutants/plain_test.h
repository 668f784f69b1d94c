#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "harness/systems/tolerances.h"

/// A test with plain tolerances: |a - e| <= atol + rtol |e| everywhere, or RMS(a - e) <= ratio RMS(e).
namespace samestate {

struct PlainRule {
  double rtol = 0.0, atol = 0.0, rms_ratio = 0.0;
};
/// The rules by output name.
using PlainRules = std::map<std::string, PlainRule>;

struct PlainVerdict {
  bool close = true;   ///< every element is close enough
  bool by_rms = true;  ///< every output is, by its RMS
};
/// A NaN is not close. `actual` and `expected` are in the same order (blocks_of).
[[nodiscard]] PlainVerdict try_plain(const std::vector<OutputBlock>& actual,
                                     const std::vector<OutputBlock>& expected, const PlainRules& rules);

/// How a plain test does on the mutants of the case's system, with the case's data.
struct BlindSpot {
  std::int64_t all = 0,
               tried = 0;      ///< fewer than all if the time was up or the mutant does not support the case
  std::int64_t unreached = 0;  ///< mutants that were not reached before the time was up
  std::int64_t same = 0;  ///< mutants that gave exactly the correct kernel's values: nothing in this case
                          ///< shows them
  std::int64_t close = 0, by_rms = 0;  ///< the number of the others that the test accepts
  std::int64_t judge = 0;  ///< the number of the others that samestate's judge accepts on this case
  std::vector<std::string>
      examples;  ///< names of up to four that assert_close accepts and the judge does not
};
[[nodiscard]] BlindSpot blind_spot(const Case& c, const TolerancesOfCase& of, const PlainRules& rules,
                                   double seconds);

}  // namespace samestate
