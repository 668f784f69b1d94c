#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "harness/records/case_result.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The findings of calls that vary one size or setting at a time, for a kernel that refuses some of them.
struct ProbedLimits {
  /// Conditions, in the format of a declaration, that all accepted calls fulfil and each refused call
  /// violates: "dk = 128", "T % 16 = 0", "Hk = Hv", "contract = bf16" (separating_limits).
  std::vector<std::string> limits;
  std::string refusal;    ///< the first reason of a refusal that does not depend on the data
  std::string by_values;  ///< the first reason of a refusal that occurred with some data of a size and not
                          ///< with others
  std::int64_t calls = 0,
               refused = 0;  ///< cases that ran, and those whose size or setting was refused
  bool took_any = false;
  bool stopped = false;  ///< `stop` ended it before everything was tried
};

/// Runs a kernel inside the limits that it declares, starting from the first sizes and settings that it
/// accepts: each size, tokens, batch, heads, chunk, form, contract, state and setting separately at several
/// values, then some combinations of accepted values. A refusal counts if the case is also refused with other
/// seeds and in other regimes of the data. `run` runs a case in a process that stays alive. If `stop` returns
/// true, returns what is known so far.
[[nodiscard]] ProbedLimits probe_limits(const KernelRow& kernel,
                                        const std::function<CaseResult(const Case&)>& run,
                                        const std::function<bool()>& stop);

}  // namespace samestate
