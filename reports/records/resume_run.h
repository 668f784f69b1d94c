#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// What an earlier process left of a run, in order of finish.
struct EarlierCases {
  std::vector<Record> records;
  std::vector<std::int64_t> numbers;  ///< their places in the plan
};

/// The cases of the run file that are judged, for a run that goes on with it as `now` (JsonLinesWriter::Mode::resume).
/// Whatever else it holds leaves it: a line that was cut, cases that had begun, those that were skipped, cases that the
/// run chose beyond its plan, its end. The file is replaced whole or stays as it was. Empty where there is no file, or an
/// empty one. Throws Error, that names file, value and remedy, for a file that another process writes to, of something
/// else than one run with the version, kernels, device, plan, shard and options of `now`, or with a case that is none of
/// `numbers`, those of the shard in ascending order.
[[nodiscard]] EarlierCases go_on_with(const std::filesystem::path& path, const Run& now,
                                      const std::vector<std::int64_t>& numbers);

}  // namespace samestate
