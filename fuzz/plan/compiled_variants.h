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
  std::int64_t outside = 0;             ///< cases outside its limits, or whose other calls no kernel makes
  std::int64_t variants = 0, kept = 0;  ///< that the others ask for; 0: it is not compiled by the call
  std::int64_t brought = 0;             ///< cases that were given the values of a variant that was kept
  std::int64_t left = 0;                ///< cases for which that was not possible
  std::vector<std::string> lost =
      {};  ///< values that no kept variant has, "dk=192", those of the most cases first
  std::map<std::string, std::string> lines = {};  ///< of the brought ones: the line before, the line now
};

/// Leaves of the cases of a subject those inside its limits, for it is not called outside them, and, of one that is
/// compiled anew for the values of some keys (KernelRow::compiled_for), `most` variants (0: all): the sizes of public models first,
/// and one after the other those whose sizes and settings, not met beside each other before, most cases of the plan have. Cases of other variants are given the values of a kept one, that which differs in the fewest keys, and keep all
/// else: data, tokens, batch, layout, law. Of those that become equal the first stays, and what takes long gets fewer tokens.
/// Forty cases of a variant then stand one behind the other, before those of the next, in the order in which the variants were
/// chosen; forty more of each follow. Other kernels' cases stay as they are.
/// `places`: receives where each case stood before; may be null.
[[nodiscard]] std::vector<LeftOut> keep_callable(std::vector<Case>& cases, const KernelTable& table,
                                                 std::int64_t most,
                                                 std::vector<std::size_t>* places = nullptr);

/// Drops the cases of kernels that are compiled anew for some keys.
void leave_compiled(std::vector<Case>& cases, const KernelTable& table);

/// "fla.gated_delta_rule.chunked: 24 of 310 variants are compiled (--compiles takes more), 1830 cases were given their sizes"
[[nodiscard]] std::string text_of(const LeftOut& left);

}  // namespace samestate
