#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reports/records/json_lines.h"

namespace samestate {

/// Evidence is what recorded runs on devices say of one kernel: of JSON Lines that `samestate gate --jsonl` wrote, or of a digest
/// of them (digest.h), as they are kept in reports/evidence/.
struct Evidence {
  std::string kernel;
  std::string device, driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::int64_t passed = 0;
  std::int64_t failed = 0;  ///< fail, crash, timeout, flaky
};

/// The hash of a kernel's sources, out of those of a run or build, "KERNEL=HASH ..." (cmake/kernel_sources.cmake). Empty for a
/// kernel that these do not name; a text that names none is of a record of before, and all of it is returned.
[[nodiscard]] std::string sources_of(const std::string& sources, std::string_view kernel);

/// True if a kernel's sources are those that ran: `ran` is of sources_of, `now` of the build.
[[nodiscard]] bool is_fresh(const std::string& ran, const std::string& now, std::string_view kernel);

/// For a reader: how many kernels the sources are of, and one hash of them all. A text without names is returned as it is.
[[nodiscard]] std::string sources_text(const std::string& sources);

/// One entry a kernel and device, of every *.jsonl file and every digest in `folder`, sorted by file; only kernels that are
/// not on the CPU. A folder that does not exist holds none. Throws Error for a file that is no record of
/// runs, or a damaged digest.
[[nodiscard]] std::vector<Evidence> read_evidence(const std::filesystem::path& folder);

/// A recorded timing of `samestate bench --jsonl` and where it was taken.
struct TimedEvidence {
  TimedCase timed;
  std::string device;  ///< cpu, or the name of the accelerator
  std::string driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::string date = {};  ///< of the run; empty: its file says none
  bool carried = false;   ///< of the folder of evidence, not of a file that the report is of
};

/// The timings of one file.
[[nodiscard]] std::vector<TimedEvidence> timings_of(const RecordFile& content, const std::string& file);

/// The timings of every *.jsonl file and every digest in `folder`, sorted by file. Throws Error as read_evidence does.
[[nodiscard]] std::vector<TimedEvidence> read_timings(const std::filesystem::path& folder);

/// The last of each case, kernel and device, in order of first appearance.
[[nodiscard]] std::vector<TimedEvidence> latest_timings(const std::vector<TimedEvidence>& all);

}  // namespace samestate
