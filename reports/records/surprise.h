#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/attained.h"
#include "harness/records/record.h"

/// Which judged cases a reader should look at first: not the largest ratios, but those that lie in the tail of
/// their own group. A group is what shares system, form, contract, law and gate (what decides: row, head, state,
/// element ..), so that its ratios are alike unless something is wrong.
namespace samestate {

/// Cases with a ratio above 0 below which a group has no tail to speak of.
inline constexpr std::int64_t kLeastGroup = 8;
/// Steps of the tail are no narrower than this factor: a group whose ratios are all alike has no outlier of 1 %.
inline constexpr double kLeastStep = 1.25;

struct Surprise {
  std::size_t record = 0;  ///< index of the records
  /// ln(ratio / median) / ln(ninth decile / median), of its group: 0 is the median, 1 the ninth decile. 0 in a
  /// group of fewer than kLeastGroup.
  double tail = 0.0;
  double median = std::numeric_limits<double>::quiet_NaN();  ///< of the group; NaN where it is too small
  std::int64_t group = 0;                                    ///< its cases with a ratio above 0
};

/// A group judged element by element against a worst case, in which every ratio that is not 0 is within a whisker
/// of 1: its outputs are rounded once, and half an ulp is both the error and the bound.
struct AttainedGroup {
  std::string system, form, contract, law;
  std::int64_t cases = 0;
  double least = 0.0;    ///< ratio above 0
  double largest = 0.0;  ///< ratio, at most 1
};

struct Surprises {
  /// Failures first, the largest ratio first; then the other judged cases, the farthest tail first, and of equal
  /// tails the largest ratio. Without those of attained groups.
  std::vector<Surprise> ranked;
  std::vector<AttainedGroup> attained;  ///< by name

  [[nodiscard]] std::int64_t attained_cases() const;
};

[[nodiscard]] Surprises surprises_of(std::span<const Record> records);

/// "not ranked: 247 cases of 22 groups ..", one sentence without its end; empty where no bound is attained. `what`
/// a record is called.
[[nodiscard]] std::string attained_line(const Surprises& surprises, std::string_view what = "case");

/// What the ranking is, for the head of a table: one sentence.
inline constexpr const char* kSurpriseMeaning =
    "How far a case's ratio (error / bound; above 1 fails) lies above the median of its own group, those of "
    "the "
    "same system, form, contract, law and gate: 1 is the group's ninth decile, on a logarithmic scale. "
    "Groups of "
    "fewer than 8 cases have no tail; theirs stand at 0, the largest ratio first.";

}  // namespace samestate
