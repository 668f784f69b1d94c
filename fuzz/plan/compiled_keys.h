#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The findings that a few calls of a subject add to its declaration.
struct CompiledKeys {
  /// Keys for each of whose values it compiles anew, as in KernelRow::compiled_for; with %16 if only the kind
  /// of value matters.
  std::vector<std::string> keys;
  std::vector<std::string> limits;  ///< limits that it has and does not declare (separating_limits)
  std::string refusal;              ///< the message of its first exception outside them
  std::int64_t calls = 0;           ///< cases that were run
  double compile = 0.0;             ///< seconds of the most expensive of them that compiled
  bool any = false;                 ///< it reported for some call that it compiled, or loaded, a kernel
};

/// Runs a kernel on about twenty small cases that differ from a model's sizes in one key each, with a size of
/// the same kind (1, a multiple of 16, another) before one of another kind, and checks which of them
/// compiled. `run` runs a case in a process that stays alive; nothing is learned about a kernel that supports
/// none of the first sizes. If `stop` returns true, returns what is known so far.
[[nodiscard]] CompiledKeys find_compiled_keys(const KernelRow& kernel,
                                              const std::function<CaseResult(const Case&)>& run,
                                              const std::function<bool()>& stop);

}  // namespace samestate
