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

/// A case with fewer tokens shows less: no state is carried far, and with one key the softmax is 1 whatever
/// the score.
inline constexpr Index kFewTokens = 4;

/// How much a case shows of its value of a size. `most`: the data are as in `start`, the form is the start's
/// unless the factor belongs to another, and there is no law, which would compare a kernel with itself; where
/// one key has all the weight, a dropped one is not visible. `all`: in addition, the case has more than a few
/// tokens.
enum class Exposure { little, most, all };
[[nodiscard]] Exposure exposure(const Factor& size, const Case& c, const Case& start);

/// The properties that a case has and no other case has.
struct Needs {
  std::vector<std::int64_t> combinations;
  std::vector<std::size_t> values;  ///< for these factors, how much the case shows of them
};

/// Counts how many cases have each combination, and each boundary value of a size. Keeps references to its
/// arguments; `start` is start_of the kernel.
class Uses {
 public:
  Uses(const std::vector<Factor>& factors, const Combinations& combinations, Case start);

  /// Adds `by` to the counts of what the case has; -1 removes a case.
  void count(const Case& c, std::int32_t by);

  /// The needs that only this case covers; it must have been counted.
  [[nodiscard]] Needs needs(const Case& c) const;

 private:
  const std::vector<Factor>& factors_;
  const Combinations& combinations_;
  std::vector<std::int32_t> times_;
  using Times = std::array<std::int32_t, 3>;  ///< for cases that show at least this much
  Case start_;
  std::map<std::pair<std::size_t, Index>, Times> values_;
};

}  // namespace samestate
