#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The findings of calls that vary one size or setting at a time, of a kernel that refuses some of them.
struct ProbedLimits {
  /// Conditions that the calls that it took meet and each that it refused breaks one of, as a declaration has them: "dk = 128",
  /// "T % 16 = 0", "Hk = Hv", "contract = bf16" (separating_limits).
  std::vector<std::string> limits;
  std::string refusal;    ///< the first reason of a refusal that no other data changed
  std::string by_values;  ///< the first reason of one that came with some data of a size and not with others
  std::int64_t calls = 0,
               refused = 0;  ///< cases that were run, and those of them whose size or setting was refused
  bool took_any = false;
  bool stopped = false;  ///< `stop` ended it before all was tried
};

/// Runs a kernel inside the limits that it declares, from the first sizes and settings that it takes: each size, tokens, batch,
/// heads, chunk, form, contract, state and setting by itself at several values, then some of the values that it took together.
/// A refusal counts where the case is refused with other seeds and in other regimes of the data too. `run` runs a case in a
/// process that lives on; `stop`: gives up, with what is known.
[[nodiscard]] ProbedLimits probe_limits(const KernelRow& kernel,
                                        const std::function<CaseResult(const Case&)>& run,
                                        const std::function<bool()>& stop);

}  // namespace samestate
