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

/// Selects the judged cases that a reader should look at first: not those with the largest ratios, but those
/// in the tail of their own group. A group has the same system, form, contract, law and gate (the one that
/// decides: row, head, state, element ..), so its ratios are similar unless something is wrong.
namespace samestate {

/// Groups with fewer cases with a ratio above 0 have no meaningful tail.
inline constexpr std::int64_t kLeastGroup = 8;
/// Steps of the tail are at least this factor, so a group of equal ratios has no outliers of 1 %.
inline constexpr double kLeastStep = 1.25;

struct Surprise {
  std::size_t record = 0;  ///< index of the records
  /// ln(ratio / median) / ln(ninth decile / median) within its group: 0 is the median, 1 the ninth decile. 0
  /// in a group with fewer than kLeastGroup cases.
  double tail = 0.0;
  double median =
      std::numeric_limits<double>::quiet_NaN();  ///< the median of the group; NaN if the group is too small
  std::int64_t group = 0;                        ///< number of its cases with a ratio above 0
};

/// A group that is judged element by element against a worst case, in which every ratio other than 0 is close
/// to 1: its outputs are rounded once, and half an ulp is both the error and the bound.
struct AttainedGroup {
  std::string system, form, contract, law;
  std::int64_t cases = 0;
  double least = 0.0;    ///< smallest ratio above 0
  double largest = 0.0;  ///< largest ratio, at most 1
};

struct Surprises {
  /// Failures first, the largest ratio first; then the other judged cases, the farthest in the tail first,
  /// and among equals the largest ratio first. Attained groups are left out.
  std::vector<Surprise> ranked;
  std::vector<AttainedGroup> attained;  ///< by name

  [[nodiscard]] std::int64_t attained_cases() const;
};

[[nodiscard]] Surprises surprises_of(std::span<const Record> records);

/// "not ranked: 247 cases of 22 groups ..", a sentence without its full stop; empty if no bound is attained.
/// `what` is the word for a record.
[[nodiscard]] std::string attained_line(const Surprises& surprises, std::string_view what = "case");

/// One sentence that explains the ranking, for the head of a table.
inline constexpr const char* kSurpriseMeaning =
    "How far a case's ratio (error / bound; above 1 fails) lies above the median of its own group, those of "
    "the "
    "same system, form, contract, law and gate: 1 is the group's ninth decile, on a logarithmic scale. "
    "Groups of "
    "fewer than 8 cases have no tail; theirs stand at 0, the largest ratio first.";

}  // namespace samestate
