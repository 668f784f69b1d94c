#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "reports/page/html.h"

namespace samestate {

/// The numbers and sizes of the files that were written.
struct ReportFiles {
  std::vector<std::string> names;  ///< relative to the folder, in order
  std::int64_t points = 0;
  std::int64_t cases = 0;
  std::int64_t timings = 0;
  std::int64_t plots = 0;
  std::int64_t page_bytes = 0;
};

/// Writes index.html, points.csv, profiles.csv, cases.csv, timings.csv and report.json into `folder` (created
/// if missing), and each plot as plots/<id>.svg. Each file is replaced as a whole. The same input gives the
/// same bytes for one version of gnuplot. Throws Error if the folder cannot be written, or if `plots` is set
/// and gnuplot is missing.
ReportFiles write_report(const std::filesystem::path& folder, const ReportInput& input, bool plots);

}  // namespace samestate
