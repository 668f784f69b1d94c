#include "reports/text/identities.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace samestate {

std::string identities_text(std::span<const IdentityRow> rows) {
  std::string text;
  double largest64 = 0.0;
  double largest50 = 0.0;
  for (const IdentityRow& row : rows) {
    // A negative control shows its residual, which must not vanish.
    if (row.expected != "differs") {
      largest64 = std::max(largest64, row.in_float64);
      largest50 = std::max(largest50, row.in_50_digits);
    }
    text += fmt::format("{} {:<10} {:<8} {:>9.2e} {:>9.2e}  {}: {}\n", row.passed ? "ok  " : "FAIL", row.id,
                        row.expected, row.in_float64, row.in_50_digits, row.name, row.statement);
  }
  const std::int64_t failed =
      std::count_if(rows.begin(), rows.end(), [](const IdentityRow& row) { return !row.passed; });
  return text +
         fmt::format(
             "{} {}, {} not as expected; largest residual that should vanish {:.2e} in float64, {:.2e} "
             "in 50 digits\n",
             rows.size(), rows.size() == 1 ? "identity" : "identities", failed, largest64, largest50);
}

std::string identities_json(std::span<const IdentityRow> rows) {
  nlohmann::json out = nlohmann::json::array();
  for (const IdentityRow& row : rows) {
    out.push_back({{"id", row.id},
                   {"name", row.name},
                   {"system", row.system},
                   {"statement", row.statement},
                   {"expected", row.expected},
                   {"float64", row.in_float64},
                   {"digits50", row.in_50_digits},
                   {"passed", row.passed}});
  }
  return out.dump(2) + "\n";
}

}  // namespace samestate
