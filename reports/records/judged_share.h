#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/record.h"

/// How much of what was planned for a kernel was judged: a green run of a kernel that refused nearly everything, or was
/// stopped before it began, says nothing.
namespace samestate {

/// Counts of one kernel. Outside its limits: unsupported, since a refusal inside them is a failure.
struct JudgedShare {
  std::int64_t planned = 0;  ///< cases inside its limits that expect more than zeros, also those not started
  std::int64_t judged =
      0;  ///< of them: pass, fail and flaky, and crash and timeout too, which a reader sees first
  std::int64_t vacuous = 0;
  std::int64_t outside = 0;    ///< unsupported: not among the planned
  std::int64_t no_device = 0;  ///< skipped for want of a device

  /// 1 where nothing is inside.
  [[nodiscard]] double share() const {
    return planned > 0 ? static_cast<double>(judged) / static_cast<double>(planned) : 1.0;
  }
  /// Nothing could run: a counted skip, as everywhere. A law that does not fit its case is vacuous without a run.
  [[nodiscard]] bool nowhere() const { return no_device > 0 && no_device + vacuous == planned; }
};

/// Counts one more.
void add_to(std::map<std::string, JudgedShare>& shares, const Record& record);

/// By kernel. `not_started`: cases that were planned and never began, by kernel.
[[nodiscard]] std::map<std::string, JudgedShare> judged_shares(
    std::span<const Record> records, const std::map<std::string, std::int64_t>& not_started = {});

/// Fewer cases are no plan, but what somebody picked (--max-cases): their share says nothing.
inline constexpr std::int64_t kFewestPlanned = 20;

/// One sentence a kernel of which less than `least` was judged, in the order of their names; of those with at least
/// kFewestPlanned cases.
[[nodiscard]] std::vector<std::string> too_little(const std::map<std::string, JudgedShare>& shares,
                                                  double least);

/// One clause on the cases that were not run for want of a device, with the remedy; empty where there are none.
[[nodiscard]] std::string without_device(std::span<const Record> records);

/// A kernel that ran under a contract cannot lack the device for another case of it: makes failures of such skips, so
/// that every report shows them, and says how many there were.
std::int64_t mark_missing_devices(std::span<Record> records);

}  // namespace samestate
