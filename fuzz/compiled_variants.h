#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// What was left out of one kernel's cases.
struct LeftOut {
  std::string kernel;
  std::int64_t outside = 0;             ///< cases outside its limits, or whose other calls no kernel makes
  std::int64_t variants = 0, kept = 0;  ///< that the others ask for; 0: it is not compiled by the call
  std::int64_t of_other_variants = 0;   ///< cases of variants that were not kept
};

/// Leaves of the cases of a subject those inside its limits, for it is not called outside them, and, of one that is
/// compiled anew for the values of some keys (KernelRow::compiled_for), those of `most` variants (0: all), one
/// after the other the one with the most cases times the square of how many cases of the plan have a value that none
/// before it has. The cases of a variant then stand one behind the other,
/// where the first of them stood, so that it is compiled once. Other kernels' cases stay as they are.
[[nodiscard]] std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table,
                                                 std::int64_t most);

/// Drops the cases of kernels that are compiled anew for some keys.
void leave_compiled(std::vector<Case>& cases, const KernelTable& table);

/// "fla.gated_delta_rule.chunked: 8 of 31 variants, 1240 cases of the others left out (--variants takes more)"
[[nodiscard]] std::string text_of(const LeftOut& left);

}  // namespace samestate
