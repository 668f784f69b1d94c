#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "harness/records/record.h"

/// Failures that are one fault for a reader: equal in kernel, law, form and likely cause.
namespace samestate {

struct FailureGroup {
  std::string kernel, form, law;
  std::string cause;  ///< likely_cause of each
  std::int64_t cases = 0;
  std::vector<std::size_t> members = {};  ///< indices of all of them
  std::size_t example =
      0;  ///< index of the example among the records: preferably one that was run again, and with other
          ///< tuning if any was; among these the one with the fewest elements, then with the shortest line
  double largest = 0.0;  ///< ratio
  /// Keys that every case of the group has and no passing case of the kernel: "l2norm=1"; empty if there are
  /// none.
  std::string only;
};

/// True if the failure was seen in a process that had run nothing before (its reason lacks kNotRunAgain).
[[nodiscard]] bool is_confirmed(const Judgement& judgement);

/// The likely cause as a failure states it, without its numbers: "wrong where no operation rounds", "output o
/// beyond its worst case".
[[nodiscard]] std::string likely_cause(const Judgement& judgement);

/// Gate memory first, then crash, timeout, fail and flaky; of each first those whose example looks like a known mutant, then
/// the most cases. The records that passed are read for FailureGroup::only.
[[nodiscard]] std::vector<FailureGroup> failure_groups(std::span<const Record> records);

/// "412 of cpu.x.chunked, form decode, law split: CAUSE (only with l2norm=1)", one line.
[[nodiscard]] std::string group_line(const FailureGroup& group);

}  // namespace samestate
