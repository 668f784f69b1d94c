#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace samestate {

/// Least ratio of a group whose bound is attained.
inline constexpr double kAttained = 0.95;
/// Rounding of a bound: a ratio this far above 1 still attains it.
inline constexpr double kAttainedWhisker = 1e-9;

/// The ratios above 0 of the cases that one gate decided: whether the bound is attained. By construction only where
/// each element is held against its worst case, of an output that is rounded once: half an ulp is both the error
/// and the bound, and the ratio 1 says nothing.
struct RatioRange {
  double largest = 0.0;
  std::int64_t cases = 0;
  std::int64_t close = 0;  ///< of them, those at the bound
  void add(double ratio) {
    if (!(ratio > 0.0)) return;
    largest = std::max(largest, ratio);
    ++cases;
    close += ratio >= kAttained;
  }
  /// A case of few elements may miss the tie that most cases hold.
  [[nodiscard]] bool attained(std::string_view gate) const {
    return gate == "element" && 2 * close > cases && largest <= 1.0 + kAttainedWhisker;
  }
};

}  // namespace samestate
