#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/record.h"

/// The share of a kernel's planned cases that was judged. A successful run of a kernel that refused nearly
/// everything, or that ended before it started, proves nothing.
namespace samestate {

/// Counts for one kernel. Unsupported cases are outside its limits, since a refusal inside them is a failure.
struct JudgedShare {
  std::int64_t planned = 0;  ///< cases inside its limits that expect more than zeros, including those that
                             ///< were not started
  std::int64_t judged =
      0;  ///< how many of them were judged: pass, fail and flaky, and also crash and timeout, which a reader
          ///< sees first
  std::int64_t vacuous = 0;
  std::int64_t outside = 0;    ///< unsupported, and so not among the planned ones
  std::int64_t no_device = 0;  ///< skipped because there is no device

  /// 1 if no case is inside the limits.
  [[nodiscard]] double share() const {
    return planned > 0 ? static_cast<double>(judged) / static_cast<double>(planned) : 1.0;
  }
  /// True if nothing could run: a counted skip, as everywhere. A law that does not apply to its case is
  /// vacuous without a run.
  [[nodiscard]] bool nowhere() const { return no_device > 0 && no_device + vacuous == planned; }
};

/// Counts one more record.
void add_to(std::map<std::string, JudgedShare>& shares, const Record& record);

/// Returns the shares by kernel. `not_started` has the planned cases that were never started, by kernel.
[[nodiscard]] std::map<std::string, JudgedShare> judged_shares(
    std::span<const Record> records, const std::map<std::string, std::int64_t>& not_started = {});

/// Fewer cases are not a plan but a selection (--max-cases), and their share says nothing.
inline constexpr std::int64_t kFewestPlanned = 20;

/// One sentence for each kernel with at least kFewestPlanned cases of which less than `least` was judged,
/// ordered by name.
[[nodiscard]] std::vector<std::string> too_little(const std::map<std::string, JudgedShare>& shares,
                                                  double least);

/// Returns a clause about the cases that did not run because there is no device, with the remedy; empty if
/// there are none.
[[nodiscard]] std::string without_device(std::span<const Record> records);

/// A kernel that ran under a contract cannot lack the device for another case of it: turns such skips into
/// failures, so that every report shows them, and returns their number.
std::int64_t mark_missing_devices(std::span<Record> records);

}  // namespace samestate
