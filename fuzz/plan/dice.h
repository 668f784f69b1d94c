#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>

namespace samestate {

/// The random numbers of one draw.
struct Dice {
  std::function<std::int64_t(std::int64_t)> below;  ///< 0..n-1; n is at least 1

  [[nodiscard]] bool one_in(std::int64_t n) const { return below(n) == 0; }
  template <class Values>
  [[nodiscard]] const auto& pick(const Values& values) const {
    return *std::next(std::begin(values), below(static_cast<std::int64_t>(std::size(values))));
  }
  /// Between least and most, small values more often: uniform in the logarithm.
  [[nodiscard]] double between(double least, double most) const {
    return least * std::pow(most / least, static_cast<double>(below(1000)) / 999.0);
  }
};

}  // namespace samestate
