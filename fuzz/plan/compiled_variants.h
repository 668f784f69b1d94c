#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/run/kernel_table.h"

namespace samestate {

/// Counts the cases of one kernel that were left out or changed.
struct LeftOut {
  std::string kernel;
  std::int64_t outside = 0;  ///< cases outside its limits, or with other calls that no kernel makes
  std::int64_t variants = 0, kept = 0;  ///< variants that the other cases need; 0 if calls compile none
  std::int64_t brought = 0;             ///< cases that were given the values of a variant that was kept
  std::int64_t left = 0;                ///< cases for which that was not possible
  std::vector<std::string> lost =
      {};  ///< values that no kept variant has, such as "dk=192", those of the most cases first
  std::map<std::string, std::string> lines = {};  ///< for the changed cases: the old line and the new one
};

/// Keeps those cases of a subject that are inside its limits, because it is not called outside them. If it is
/// compiled anew for the values of some keys (KernelRow::compiled_for), keeps at most `most` variants (0:
/// all): first the sizes of public models, then one after another the variant whose combination of sizes and
/// settings is new and occurs in the most cases of the plan. Cases of other variants get the values of the
/// kept variant that differs in the fewest keys, and keep everything else: data, tokens, batch, layout, law.
/// If cases become equal the first one stays, and expensive cases get fewer tokens. The cases are then
/// ordered so that forty cases of a variant come before those of the next, in the order in which the variants
/// were chosen, followed by forty more of each. Cases of other kernels are unchanged. `places` receives where
/// each case was before; it may be null.
[[nodiscard]] std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table,
                                                 std::int64_t most,
                                                 std::vector<std::size_t>* places = nullptr);

/// Drops the cases of kernels that are compiled anew for some keys.
void leave_compiled(std::vector<Case>& cases, const KernelTable& table);

/// "fla.gated_delta_rule.chunked: 24 of 310 variants are compiled (--compiles takes more), 1830 cases were given their sizes"
[[nodiscard]] std::string text_of(const LeftOut& left);

}  // namespace samestate
