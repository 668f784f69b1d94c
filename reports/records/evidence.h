#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reports/records/json_lines.h"

namespace samestate {

/// What recorded runs on devices say of one kernel: JSON Lines of `samestate gate --jsonl`, kept in
/// reports/evidence/.
struct Evidence {
  std::string kernel;
  std::string device, driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::int64_t passed = 0;
  std::int64_t failed = 0;  ///< fail, crash, timeout, flaky
};

/// Of the sources of a run or build, "FAMILY+OPERATORS+RANKS" (cmake/kernel_sources.cmake), those of a kernel: a change of the
/// named tensors' kernels, or of the family's over ranks, leaves the evidence of the recurrent family as fresh as it was. Empty where there is no such part (a record
/// of before); all of it for a kernel that is not ours.
[[nodiscard]] std::string sources_of(const std::string& sources, std::string_view kernel);

/// One entry a kernel and device, of every *.jsonl file in `folder`, sorted by file; only kernels that are
/// not on the CPU. A folder that does not exist holds none. Throws Error for a file that is no record of
/// runs.
[[nodiscard]] std::vector<Evidence> read_evidence(const std::filesystem::path& folder);

/// A recorded timing of `samestate bench --jsonl` and where it was taken.
struct TimedEvidence {
  TimedCase timed;
  std::string device;  ///< cpu, or the name of the accelerator
  std::string driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  bool carried = false;  ///< of the folder of evidence, not of a file that the report is of
};

/// The timings of one file.
[[nodiscard]] std::vector<TimedEvidence> timings_of(const RecordFile& content, const std::string& file);

/// The timings of every *.jsonl file in `folder`, sorted by file. Throws Error as read_evidence does.
[[nodiscard]] std::vector<TimedEvidence> read_timings(const std::filesystem::path& folder);

/// The last of each case, kernel and device, in order of first appearance.
[[nodiscard]] std::vector<TimedEvidence> latest_timings(const std::vector<TimedEvidence>& all);

}  // namespace samestate
