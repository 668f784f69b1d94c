#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/plan/factors.h"

namespace samestate {

/// The combinations of levels of two (or three) factors that a set of cases contains.
class Combinations {
 public:
  /// `strength` is the number of factors combined at a time, 2 or 3.
  Combinations(const std::vector<Factor>& factors, int strength);

  /// Adds the combinations of a case, given its levels; returns how many are new.
  std::int64_t add(const std::vector<int>& levels);
  /// The combinations that a case has, given its levels.
  [[nodiscard]] std::vector<std::int64_t> of(const std::vector<int>& levels) const;
  /// How many of a case's combinations would be new.
  [[nodiscard]] std::int64_t fresh(const std::vector<int>& levels) const;
  /// For each level of a factor, how many combinations would be new if the factor took it; factors whose
  /// level is -1 do not count.
  [[nodiscard]] std::vector<std::int64_t> gains(const std::vector<int>& levels, std::size_t factor) const;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(met_.size()); }
  [[nodiscard]] std::int64_t met() const { return met_count_; }
  [[nodiscard]] bool has(std::int64_t combination) const {
    return met_[static_cast<std::size_t>(combination)];
  }
  /// The index of a combination of two factors, the first of which comes before the second.
  [[nodiscard]] std::int64_t at(std::size_t first, int level, std::size_t second, int other) const;
  /// The levels of a combination; -1 for factors that are not part of it.
  [[nodiscard]] std::vector<int> levels(std::int64_t combination) const;

 private:
  struct Group {
    std::array<std::size_t, 3> factors{};
    std::array<std::int64_t, 3> strides{};  ///< from one level of a factor to its next
    std::size_t count = 0;                  ///< the number of factors
    bool of_law = false;
    std::int64_t begin = 0;
  };
  [[nodiscard]] static std::int64_t index(const Group& group, const std::vector<int>& levels);
  /// Returns true if a case of these levels shows something of groups that the law has no part in.
  [[nodiscard]] bool without_law(const std::vector<int>& levels) const {
    return law_ == kNone || levels[law_] <= 0;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t law_ = kNone;           ///< the factor with Factor::compares, the law
  std::vector<std::int64_t> counts_;  ///< number of levels of each factor
  std::vector<Group> groups_;
  std::vector<std::vector<std::size_t>> groups_of_;  ///< by factor
  std::vector<bool> met_;
  std::int64_t met_count_ = 0;
};

}  // namespace samestate
