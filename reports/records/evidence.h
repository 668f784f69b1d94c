#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reports/records/json_lines.h"

namespace samestate {

/// Evidence for one kernel from recorded runs on devices: from JSON Lines written by `samestate gate
/// --jsonl`, or from a digest of them (digest.h), as kept in reports/evidence/.
struct Evidence {
  std::string kernel;
  std::string device, driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::int64_t passed = 0;
  std::int64_t failed = 0;  ///< fail, crash, timeout, flaky
};

/// The hash of a kernel's sources from the text of a run or build, "KERNEL=HASH ..."
/// (cmake/kernel_sources.cmake). Empty for a kernel that is not in the text; a text without names comes from
/// an older record and is returned unchanged.
[[nodiscard]] std::string sources_of(const std::string& sources, std::string_view kernel);

/// True if a kernel's sources are the ones that ran: `ran` is a result of sources_of, `now` belongs to the
/// build.
[[nodiscard]] bool is_fresh(const std::string& ran, const std::string& now, std::string_view kernel);

/// For a reader: the number of kernels that the sources belong to, and one hash of all of them. A text
/// without names is returned unchanged.
[[nodiscard]] std::string sources_text(const std::string& sources);

/// One entry per kernel and device, from every *.jsonl file and every digest in `folder`, sorted by file; CPU
/// kernels are left out. A folder that does not exist has none. Throws Error for a file that is not a record
/// of runs, or a damaged digest.
[[nodiscard]] std::vector<Evidence> read_evidence(const std::filesystem::path& folder);

/// A timing recorded by `samestate bench --jsonl`, and where it was taken.
struct TimedEvidence {
  TimedCase timed;
  std::string device;  ///< cpu, or the name of the accelerator
  std::string driver, toolkit;
  std::string kernel_sources;  ///< hash of the sources that ran
  std::string file;
  std::string date = {};  ///< date of the run; empty if its file has none
  bool carried = false;   ///< it comes from the folder of evidence, and not from a file that the report is
                          ///< about
};

/// The timings of one file.
[[nodiscard]] std::vector<TimedEvidence> timings_of(const RecordFile& content, const std::string& file);

/// The timings of every *.jsonl file and every digest in `folder`, sorted by file. Throws Error as
/// read_evidence does.
[[nodiscard]] std::vector<TimedEvidence> read_timings(const std::filesystem::path& folder);

/// The last timing of each case, kernel and device, in order of first appearance.
[[nodiscard]] std::vector<TimedEvidence> latest_timings(const std::vector<TimedEvidence>& all);

}  // namespace samestate
