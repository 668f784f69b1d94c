#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>

#include "harness/run/kernel_table.h"

namespace samestate {

/// The chances of one draw.
struct Dice {
  std::function<std::int64_t(std::int64_t)> below;  ///< 0..n-1; n is at least 1

  [[nodiscard]] bool one_in(std::int64_t n) const { return below(n) == 0; }
  template <class Values>
  [[nodiscard]] const auto& pick(const Values& values) const {
    return *std::next(std::begin(values), below(static_cast<std::int64_t>(std::size(values))));
  }
  /// Between least and most, small ones more often: uniform in the logarithm.
  [[nodiscard]] double between(double least, double most) const {
    return least * std::pow(most / least, static_cast<double>(below(1000)) / 999.0);
  }
};

/// A case of the kernel's system, form and contracts with nothing drawn: where plans and draws begin.
[[nodiscard]] Case start_of(const KernelRow& kernel);

/// Puts part of a line (with_keys) into a case of the kernel; without chunks where the kernel has none.
[[nodiscard]] Case with_part(const KernelRow& kernel, const Case& c, std::string_view part);

/// A case of one kernel, drawn from the rows of its system and of the keys: contract, regime, law, sizes at and
/// beside powers of two, chunk, tokens at the chunk's edges, forms that are calls of the kernel's. Its work is
/// at most System::work's 1. The line names no kernel, and its seed is 0.
[[nodiscard]] Case draw_case(const KernelRow& kernel, const Dice& dice);

}  // namespace samestate
