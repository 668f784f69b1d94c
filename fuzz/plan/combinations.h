#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/plan/factors.h"

namespace samestate {

/// Which combinations of levels of two (or three) factors a set of cases has.
class Combinations {
 public:
  /// `strength`: 2 or 3 factors at a time.
  Combinations(const std::vector<Factor>& factors, int strength);

  /// Those of a case, by its levels; returns how many are new.
  std::int64_t add(const std::vector<int>& levels);
  /// Those that a case has, by its levels.
  [[nodiscard]] std::vector<std::int64_t> of(const std::vector<int>& levels) const;
  /// How many of a case's would be new.
  [[nodiscard]] std::int64_t fresh(const std::vector<int>& levels) const;
  /// How many would be new if the factor took a level, by level; factors whose level is -1 do not count.
  [[nodiscard]] std::vector<std::int64_t> gains(const std::vector<int>& levels, std::size_t factor) const;

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(met_.size()); }
  [[nodiscard]] std::int64_t met() const { return met_count_; }
  [[nodiscard]] bool has(std::int64_t combination) const {
    return met_[static_cast<std::size_t>(combination)];
  }
  /// Of two factors, the first before the second.
  [[nodiscard]] std::int64_t at(std::size_t first, int level, std::size_t second, int other) const;
  /// The levels of a combination; -1 for factors that have no part in it.
  [[nodiscard]] std::vector<int> levels(std::int64_t combination) const;

 private:
  struct Group {
    std::array<std::size_t, 3> factors{};
    std::array<std::int64_t, 3> strides{};  ///< from one level of a factor to its next
    std::size_t count = 0;                  ///< of the factors
    bool of_law = false;
    std::int64_t begin = 0;
  };
  [[nodiscard]] static std::int64_t index(const Group& group, const std::vector<int>& levels);
  /// Returns true if a case of these levels shows something of groups that the law has no part in.
  [[nodiscard]] bool without_law(const std::vector<int>& levels) const {
    return law_ == kNone || levels[law_] <= 0;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t law_ = kNone;           ///< the factor that Factor::compares is of
  std::vector<std::int64_t> counts_;  ///< levels of a factor
  std::vector<Group> groups_;
  std::vector<std::vector<std::size_t>> groups_of_;  ///< by factor
  std::vector<bool> met_;
  std::int64_t met_count_ = 0;
};

}  // namespace samestate
