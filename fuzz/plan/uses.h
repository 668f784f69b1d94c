#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "fuzz/plan/combinations.h"
#include "fuzz/plan/factors.h"

namespace samestate {

/// A case of fewer tokens shows less: no state is carried far, and of one key the softmax is 1 whatever the score.
inline constexpr Index kFewTokens = 4;

/// What a case shows of its value of a size. Most: data as `start` has them, of its form unless the factor belongs to another,
/// and no law, which compares a kernel with itself; where one key has all the weight, a dropped one does not show. All: of a
/// few tokens, too.
enum class Exposure { little, most, all };
[[nodiscard]] Exposure exposure(const Factor& size, const Case& c, const Case& start);

/// What no other case has.
struct Needs {
  std::vector<std::int64_t> combinations;
  std::vector<std::size_t> values;  ///< of these factors, with as much as the case shows of them
};

/// How many cases have each combination, and each boundary of a size. Keeps references to what it was made of; `start`:
/// start_of the kernel.
class Uses {
 public:
  Uses(const std::vector<Factor>& factors, const Combinations& combinations, Case start);

  /// Adds `by` to what the case has; -1 takes one that was counted away.
  void count(const Case& c, std::int32_t by);

  /// Of a case that was counted.
  [[nodiscard]] Needs needs(const Case& c) const;

 private:
  const std::vector<Factor>& factors_;
  const Combinations& combinations_;
  std::vector<std::int32_t> times_;
  using Times = std::array<std::int32_t, 3>;  ///< of cases that show so much at least
  Case start_;
  std::map<std::pair<std::size_t, Index>, Times> values_;
};

}  // namespace samestate
