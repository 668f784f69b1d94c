#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/records/record.h"

/// The ratios of an earlier run, to see one grow while it still is below 1.
namespace samestate {

/// Layout of the file; a reader takes this number and no other.
inline constexpr int baseline_schema = 1;

/// A ratio below it is not compared: a tenth of the bound is no news whatever it was before.
inline constexpr double kBaselineFloor = 0.1;

struct Baseline {
  std::string version;                   ///< of the samestate that wrote it
  std::map<std::string, double> ratios;  ///< by case line, of the cases that passed
};

/// A case whose ratio grew.
struct Regression {
  std::size_t record = 0;  ///< index in the records
  double before = 0.0;
  double now = 0.0;
};

/// What came of a comparison.
struct BaselineReport {
  std::vector<Regression> grown;  ///< the largest growth first
  std::int64_t compared = 0;
  std::int64_t unknown = 0;  ///< passed now, not in the baseline
  std::int64_t not_run = 0;  ///< in the baseline, not judged now
};

/// The ratios of the records that passed.
[[nodiscard]] Baseline baseline_of(std::span<const Record> records, const std::string& version);

/// JSON, a case a line, sorted by it: differences between two baselines read well. Replaced atomically.
/// Throws Error.
void write_baseline(const std::filesystem::path& path, const Baseline& baseline);

/// Throws Error for a file that cannot be read, is no baseline, or has another schema.
[[nodiscard]] Baseline read_baseline(const std::filesystem::path& path);

/// The passed records whose ratio is above `floor` and above `factor` times what it was. A failure is one
/// without any baseline, and is not repeated here.
[[nodiscard]] BaselineReport compare_with(const Baseline& baseline, std::span<const Record> records,
                                          double factor, double floor = kBaselineFloor);

}  // namespace samestate
