#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "harness/records/record.h"
#include "reports/plots/plots_sweep.h"
#include "reports/records/evidence.h"

/// Every number of a report in tables: CSV for a spreadsheet, JSON for a program.
namespace samestate {

struct DataTable {
  using Cell = std::variant<std::string, double, std::int64_t>;
  std::string name;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

/// One row per point: all its scalars, its case line and its judgement.
[[nodiscard]] DataTable points_table(std::span<const SweepPoint> points,
                                     std::span<const std::string> sources);

/// One row for each place of each profile: point (the row of points_table, from 0), profile (token,
/// chunk_position or head), position, error, bound.
[[nodiscard]] DataTable profiles_table(std::span<const SweepPoint> points);

/// One row per case of the gate.
[[nodiscard]] DataTable cases_table(std::span<const Record> records);

/// Returns one row per timing of a bench; its `device` is the name of the device or processor on which it
/// ran.
[[nodiscard]] DataTable timings_table(std::span<const TimedEvidence> timings);

/// RFC 4180 with a header; NaN and infinity as nan, inf and -inf, other numbers exactly. A text that a
/// spreadsheet would take as a formula is prefixed with an apostrophe.
[[nodiscard]] std::string csv_text(const DataTable& table);

/// {"name": {"columns": [..], "rows": [[..] ..]} ..}; NaN and infinity as strings.
[[nodiscard]] std::string json_text(std::span<const DataTable> tables);

}  // namespace samestate
