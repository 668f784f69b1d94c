#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace samestate {

/// The smallest ratio in a group whose bound counts as attained.
inline constexpr double kAttained = 0.95;
/// Allowance for the rounding of a bound: a ratio this far above 1 still counts as attaining it.
inline constexpr double kAttainedWhisker = 1e-9;

/// The ratios above 0 of the cases that one gate decided, to tell if the bound is attained. A bound is
/// attained by construction only if each element is compared with its worst case and the output is rounded
/// once: half an ulp is then both the error and the bound, and a ratio of 1 means nothing.
struct RatioRange {
  double largest = 0.0;
  std::int64_t cases = 0;
  std::int64_t close = 0;  ///< the number of those at the bound
  void add(double ratio) {
    if (!(ratio > 0.0)) return;
    largest = std::max(largest, ratio);
    ++cases;
    close += ratio >= kAttained;
  }
  /// A case with few elements may lack the tie that most cases contain.
  [[nodiscard]] bool attained(std::string_view gate) const {
    return gate == "element" && 2 * close > cases && largest <= 1.0 + kAttainedWhisker;
  }
};

}  // namespace samestate
