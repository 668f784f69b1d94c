#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/plan/plan.h"

namespace samestate {

/// Counts, by kernel, which kinds of calls of which public models (ordinary_calls.h) were judged.
class CallCoverage {
 public:
  explicit CallCoverage(const Plan& plan);

  /// Adds the line of a case that was judged, and the kernel that it ran on.
  void add(const std::string& line, std::string_view kernel);

  /// One line for a person, followed by at most `most` pairs of model and kind that no judged case has, with
  /// the reason; empty if the plan has no ordinary calls.
  [[nodiscard]] std::string text(std::size_t most) const;
  /// [{"kernel", "model", "kind", "planned", "judged", "whole", "why"}]: `whole` counts the judged calls
  /// whose sizes are all those of the model; `why` says why nothing was judged.
  [[nodiscard]] std::string json() const;

 private:
  struct Pair {
    std::int64_t planned = 0, judged = 0, whole = 0;
    std::int64_t left_out = 0;  ///< of those planned, by max_cases
    std::string_view why;
  };
  struct Key {
    std::string_view kernel, model, kind;
    auto operator<=>(const Key&) const = default;
  };
  struct Line {
    Pair* pair;
    bool smaller;
  };
  /// Says why no call of the pair was judged.
  [[nodiscard]] std::string why(const Pair& pair) const;

  std::int64_t kept_, total_;  ///< Plan::thinned_to and total
  std::map<Key, Pair> pairs_;
  std::map<std::pair<std::string, std::string_view>, Line> lines_;
};

}  // namespace samestate
