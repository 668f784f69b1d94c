#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// The cases of a run that an earlier process finished, in order of completion.
struct EarlierCases {
  std::vector<Record> records;
  std::vector<std::int64_t> numbers;  ///< their places in the plan
};

/// The judged cases of the run file, for a run that continues it as `now` (JsonLinesWriter::Mode::resume).
/// Everything else is removed from the file: an incomplete line, cases that were only started, skipped ones,
/// cases that the run chose beyond its plan, and its end. The file is replaced as a whole or left unchanged.
/// The result is empty if there is no file, or an empty one. Throws Error that names file, value and remedy
/// for a file that another process writes to, for one that is not a single run with the version, kernels,
/// device, plan, shard and options of `now`, and for one with a case that is not in `numbers`, the cases of
/// the shard in ascending order.
[[nodiscard]] EarlierCases go_on_with(const std::filesystem::path& path, const Run& now,
                                      const std::vector<std::int64_t>& numbers);

}  // namespace samestate
