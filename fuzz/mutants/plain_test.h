#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "harness/systems/tolerances.h"

/// What a test of tolerances alone would see: |a - e| <= atol + rtol |e| everywhere, or RMS(a - e) <= ratio RMS(e).
namespace samestate {

struct PlainRule {
  double rtol = 0.0, atol = 0.0, rms_ratio = 0.0;
};
/// By output.
using PlainRules = std::map<std::string, PlainRule>;

struct PlainVerdict {
  bool close = true;   ///< no element is further off
  bool by_rms = true;  ///< no output is
};
/// A NaN is far off. `actual` and `expected` in one order (blocks_of).
[[nodiscard]] PlainVerdict try_plain(const std::vector<OutputBlock>& actual,
                                     const std::vector<OutputBlock>& expected, const PlainRules& rules);

/// The mutants of the case's system on the case's data.
struct BlindSpot {
  std::int64_t all = 0,
               tried = 0;      ///< less than all where the time was up or the mutant does not do the case
  std::int64_t unreached = 0;  ///< left when the time was up
  std::int64_t same = 0;       ///< gave just what the right kernel gives: nothing on this case shows them
  std::int64_t close = 0, by_rms = 0;  ///< of the others, those that the test lets pass
  std::int64_t judge = 0;              ///< of the others, those that samestate's judge lets pass on this case
  std::vector<std::string>
      examples;  ///< names of up to four that assert_close lets pass and the judge does not
};
[[nodiscard]] BlindSpot blind_spot(const Case& c, const TolerancesOfCase& of, const PlainRules& rules,
                                   double seconds);

}  // namespace samestate
