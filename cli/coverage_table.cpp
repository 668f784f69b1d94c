#include "cli/coverage_table.h"

#include <fmt/format.h>

namespace samestate::cli {

std::string coverage_table(const Coverage& coverage) {
  std::string out =
      fmt::format("coverage: judged cases (a value without any is a hole from {} on)\n", kCoverageCases);
  std::string system, dimension;
  const auto pairs = [&](const std::string& of) {
    std::string text;
    for (const CoveragePairs& pair : coverage.pairs()) {
      if (pair.system != of) continue;
      text +=
          fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", pair.dimensions, pair.reached, pair.possible);
    }
    return text.empty() ? "" : fmt::format("\n    {:<9} {}", "pairs", text);
  };
  for (const CoverageRow& row : coverage.rows()) {
    if (row.system != system) {
      if (!system.empty()) out += pairs(system) + "\n";
      out += fmt::format("  {}: {}", row.system, coverage.judged(row.system));
      dimension.clear();
    }
    if (row.dimension != dimension) {
      out += fmt::format("\n    {:<9} ", row.dimension);
    } else {
      out += ", ";
    }
    system = row.system;
    dimension = row.dimension;
    if (row.judged > 0) {
      out += fmt::format("{} {}", row.value, row.judged);
    } else if (row.drawn > 0 && row.refused == row.drawn) {
      out += fmt::format("{} refused", row.value);
    } else {
      out += fmt::format("{} NEVER", row.value);
    }
  }
  return system.empty() ? out : out + pairs(system) + "\n";
}

}  // namespace samestate::cli
