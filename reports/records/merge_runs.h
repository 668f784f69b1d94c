#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/records/json_lines.h"

/// Joins the parts of a run (`--shard I/N`) into the whole run.
namespace samestate {

/// A file of records, and its name in error messages.
struct NamedRecords {
  std::string name;
  RecordFile content;
};

/// The records that a single run would have written.
struct MergedRun {
  Run run;     ///< the run as a whole; devices, drivers and toolkits of the parts are separated by commas
  RunEnd end;  ///< the parts' ends combined: seconds are added; the caller sets exit and remarks
  std::vector<Record> records;        ///< in the order of the plan
  std::vector<Measurement> points;    ///< the points of a sweep, in the order of the plan
  std::vector<std::int64_t> numbers;  ///< their places in the plan
  std::vector<double> seconds;        ///< one per shard
  std::int64_t left = 0;              ///< cases of a gate that were not started
};

/// Joins the runs of the files: each shard of one plan once, in any order, with several in one file or one in
/// each. A gate's part must have ended, and its cases together with those that it left out must be all of its
/// shard. A search that was continued has several runs of a shard in one file, the last of which must have
/// ended; for a sweep every point must be present. If a case is in a later run of its file again, that record
/// counts. If all cases are present, their lines must have the hash that the runs name. `version` is that of
/// this build, which must be the one in the files. Throws Error that names file, shard, value and remedy for
/// a file that is not a part, a shard that is missing or present twice, parts with different versions, plans,
/// options, plugins or kernels, and cases that are missing, incomplete or present twice.
[[nodiscard]] MergedRun merge_runs(const std::vector<NamedRecords>& files, const std::string& version);

}  // namespace samestate
