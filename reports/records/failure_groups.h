#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/records/record.h"

/// Failures that are one fault to a reader: alike in kernel, law, form and likely cause.
namespace samestate {

struct FailureGroup {
  std::string kernel, form, law;
  std::string cause;  ///< likely_cause of each
  std::int64_t cases = 0;
  std::vector<std::size_t> members = {};  ///< indices of all of them
  std::size_t example =
      0;  ///< index of the records: of those that were run again, and with other tuning, if any, that of the fewest elements, then of the shortest line
  double largest = 0.0;  ///< ratio
  /// Keys that every case of the group has and no case of the kernel that passed: "l2norm=1"; empty: none.
  std::string only;
};

/// Returns true if the failure was seen in a process that had run nothing before (its reason lacks kNotRunAgain).
[[nodiscard]] bool is_confirmed(const Judgement& judgement);

/// What a failure says of its cause by itself, without a number of its own: "wrong where no operation rounds",
/// "output o beyond its worst case".
[[nodiscard]] std::string likely_cause(const Judgement& judgement);

/// Gate memory first, then crash, timeout, fail and flaky; of each first those whose example looks like a known mutant, then
/// the most cases. The records that passed are read for FailureGroup::only.
[[nodiscard]] std::vector<FailureGroup> failure_groups(std::span<const Record> records);

/// "412 of cpu.x.chunked, form decode, law split: CAUSE (only with l2norm=1)", one line.
[[nodiscard]] std::string group_line(const FailureGroup& group);

}  // namespace samestate
