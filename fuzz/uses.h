#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "fuzz/combinations.h"
#include "fuzz/factors.h"

namespace samestate {

/// What no other case has.
struct Needs {
  std::vector<std::int64_t> combinations;
  std::vector<std::size_t> values;  ///< of these factors
};

/// How many cases have each combination, and each boundary of a size. Keeps references to what it was made of.
class Uses {
 public:
  Uses(const std::vector<Factor>& factors, const Combinations& combinations);

  /// Adds `by` to what the case has; -1 takes one that was counted away.
  void count(const Case& c, std::int32_t by);

  /// Of a case that was counted.
  [[nodiscard]] Needs needs(const Case& c) const;

 private:
  const std::vector<Factor>& factors_;
  const Combinations& combinations_;
  std::vector<std::int32_t> times_;
  std::map<std::pair<std::size_t, Index>, std::int32_t> values_;
};

}  // namespace samestate
