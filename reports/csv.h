#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "harness/records/record.h"
#include "reports/evidence.h"
#include "reports/plots_sweep.h"

/// Every number of a report as tables: CSV for a spreadsheet, JSON for a program.
namespace samestate {

struct DataTable {
  using Cell = std::variant<std::string, double, std::int64_t>;
  std::string name;
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

/// A row a point: all its scalars, its case line and judgement.
[[nodiscard]] DataTable points_table(std::span<const SweepPoint> points,
                                     std::span<const std::string> sources);

/// A row for each place of each profile: point (the row of points_table, from 0), profile (token,
/// chunk_position or head), position, error, bound.
[[nodiscard]] DataTable profiles_table(std::span<const SweepPoint> points);

/// A row a case of the gate.
[[nodiscard]] DataTable cases_table(std::span<const Record> records);

/// A row a timing of a bench.
[[nodiscard]] DataTable timings_table(std::span<const TimedEvidence> timings);

/// RFC 4180 with a head; NaN and infinity as nan, inf and -inf, other numbers to the last bit. A text that a
/// spreadsheet would take as a formula begins with an apostrophe.
[[nodiscard]] std::string csv_text(const DataTable& table);

/// {"name": {"columns": [..], "rows": [[..] ..]} ..}; NaN and infinity as strings.
[[nodiscard]] std::string json_text(std::span<const DataTable> tables);

}  // namespace samestate
