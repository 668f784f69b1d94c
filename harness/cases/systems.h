#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"
#include "oracles/systems/family.h"

namespace samestate {

/// A row of the table of systems: what a case line may ask of it.
struct System {
  const Family* family = nullptr;
  std::vector<std::string_view> forms;  ///< of the case line
  [[nodiscard]] std::string_view name() const { return family->name; }
};

[[nodiscard]] std::span<const System> systems();

/// Throws Error that lists the names.
[[nodiscard]] const System& system_named(std::string_view name);

/// check_case and beyond it: system, form of the system, contract, regime and law must exist, and the regime
/// and the law must fit the system. Throws Error.
void check_names(const Case& c);

}  // namespace samestate
