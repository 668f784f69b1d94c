#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reports/records/json_lines.h"

/// The parts of a run (`--shard I/N`) become the run again.
namespace samestate {

/// A file of records and the name that errors give it.
struct NamedRecords {
  std::string name;
  RecordFile content;
};

/// What the one run would have recorded.
struct MergedRun {
  Run run;     ///< of the whole; devices, drivers and toolkits of the parts with commas between
  RunEnd end;  ///< the parts' together: seconds are their sum; exit and remarks are for whoever judges
  std::vector<Record> records;        ///< in the order of the plan
  std::vector<Measurement> points;    ///< of a sweep, in the order of the plan
  std::vector<std::int64_t> numbers;  ///< of the records or points: their places in the plan
  std::vector<double> seconds;        ///< of each shard
  std::int64_t left = 0;              ///< cases of a gate that were not started
};

/// Joins the runs of the files: each shard of one plan once, in any order, several in one file or one in each. A gate's
/// part must have ended, and its cases with those that it left must be all of its shard. A search that was gone on with
/// has several runs of a shard in one file, the last of which must have ended; of a sweep every point must be there. A
/// case that stands again in a later run of its file counts as it is there. Where all cases are there, their lines must
/// have the hash that the runs name. `version`: of this build, which is to be that of the files.
/// Throws Error that names file, shard, value and remedy for a file that is no part, a shard that is missing or there
/// twice, parts of other versions, plans, options, plugins or kernels, and cases that are missing, cut or there twice.
[[nodiscard]] MergedRun merge_runs(const std::vector<NamedRecords>& files, const std::string& version);

}  // namespace samestate
