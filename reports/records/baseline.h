#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/records/record.h"

/// The ratios of an earlier run, with which growth is noticed while a ratio is still below 1.
namespace samestate {

/// Format version of the file; a reader accepts only this one.
inline constexpr int kBaselineSchema = 1;

/// Ratios below this are not compared: a tenth of the bound is unremarkable whatever the ratio was before.
inline constexpr double kBaselineFloor = 0.1;

struct Baseline {
  std::string version;                   ///< version of the samestate that wrote it
  std::map<std::string, double> ratios;  ///< by case line, for the cases that passed
};

/// A case whose ratio grew.
struct Regression {
  std::size_t record = 0;  ///< index in the records
  double before = 0.0;
  double now = 0.0;
};

/// The result of a comparison.
struct BaselineReport {
  std::vector<Regression> grown;  ///< the largest growth first
  std::int64_t compared = 0;
  std::int64_t unknown = 0;  ///< passed now, but not in the baseline
  std::int64_t not_run = 0;  ///< in the baseline, but not judged now
};

/// The ratios of the records that passed.
[[nodiscard]] Baseline baseline_of(std::span<const Record> records, const std::string& version);

/// Writes JSON with one case per line, sorted, so that differences between two baselines are easy to read.
/// Replaced atomically. Throws Error.
void write_baseline(const std::filesystem::path& path, const Baseline& baseline);

/// Throws Error for a file that cannot be read, is not a baseline, or has another format version.
[[nodiscard]] Baseline read_baseline(const std::filesystem::path& path);

/// The records that passed with a ratio above `floor` and above `factor` times its former value. Failures
/// need no baseline and are not repeated here.
[[nodiscard]] BaselineReport compare_with(const Baseline& baseline, std::span<const Record> records,
                                          double factor, double floor = kBaselineFloor);

}  // namespace samestate
