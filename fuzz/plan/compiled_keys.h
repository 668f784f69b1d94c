#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The findings of a few calls of a subject, beyond its declaration.
struct CompiledKeys {
  /// Keys for each of whose values it compiles anew, as KernelRow::compiled_for; by sixteens where only the kind of value counts.
  std::vector<std::string> keys;
  std::vector<std::string> limits;  ///< that it keeps and does not declare (separating_limits)
  std::string refusal;              ///< what it threw beyond them, the first time
  std::int64_t calls = 0;           ///< cases that were run
  double compile = 0.0;             ///< seconds of the dearest of them that compiled
  bool any = false;                 ///< it said of some call that it compiled, or loaded, a kernel
};

/// Runs a kernel on about twenty small cases that differ from a model's sizes in one key each, sizes by a value of the same kind (1,
/// a multiple of 16, another) before one of another kind, and looks which of them compiled. `run` runs a case in a process that
/// lives on; nothing is learned of a kernel that takes none of the first sizes. `stop`: gives up, with what is known.
[[nodiscard]] CompiledKeys find_compiled_keys(const KernelRow& kernel,
                                              const std::function<CaseResult(const Case&)>& run,
                                              const std::function<bool()>& stop);

}  // namespace samestate
