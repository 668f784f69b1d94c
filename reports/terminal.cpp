#include "reports/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "reports/summary.h"

namespace samestate {
namespace {

constexpr std::size_t most_failures = 5;
constexpr std::size_t most_ratios = 5;
constexpr std::size_t most_regimes = 8;
constexpr std::size_t most_reasons = 5;

/// Control characters would move the cursor.
std::string printable(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return line;
}

std::string remainder(std::size_t all, std::size_t shown) {
  return all > shown ? fmt::format(" ({} of {})", shown, all) : "";
}

}  // namespace

std::string terminal_text(std::span<const Record> records) {
  const Summary summary = summarise(records);
  std::string text =
      fmt::format("{} cases, {} judged: {}\n", summary.cases, summary.judged, counts_line(summary));

  const std::size_t failures = std::min(most_failures, summary.failures.size());
  if (failures > 0) text += fmt::format("failures{}\n", remainder(summary.failures.size(), failures));
  for (std::size_t i = 0; i < failures; ++i) {
    const Record& record = records[summary.failures[i]];
    text += fmt::format("  {}{}: {}\n    {}\n", printable(record.kernel),
                        record.law.empty() ? "" : " law " + printable(record.law),
                        printable(judgement_line(record.judgement)), printable(repro_command(record)));
  }

  const auto shown_above = summary.failures.begin() + static_cast<std::ptrdiff_t>(failures);
  std::size_t ratios = 0;
  for (std::size_t i : summary.worst) {
    if (ratios == most_ratios) break;
    if (std::find(summary.failures.begin(), shown_above, i) != shown_above) continue;
    if (ratios++ == 0) {
      text +=
          fmt::format("{} (error / bound, above 1 fails)\n", failures ? "next worst ratios" : "worst ratios");
    }
    const Record& record = records[i];
    text += fmt::format("  {:<9.3g} {}\n", record.judgement.ratio, printable(repro_command(record)));
  }

  const std::size_t regimes = std::min(most_regimes, summary.regimes.size());
  if (regimes > 0) {
    text +=
        fmt::format("ratio by regime{}: p50, p90, max, cases\n", remainder(summary.regimes.size(), regimes));
  }
  for (std::size_t i = 0; i < regimes; ++i) {
    const RegimeSpread& row = summary.regimes[i];
    text += fmt::format("  {:<14} {:<9.3g} {:<9.3g} {:<9.3g} {}\n", printable(row.regime), row.ratio.p50,
                        row.ratio.p90, row.ratio.max, row.judged);
  }

  const std::size_t reasons = std::min(most_reasons, summary.not_judged.size());
  if (reasons > 0) text += fmt::format("not judged{}\n", remainder(summary.not_judged.size(), reasons));
  for (std::size_t i = 0; i < reasons; ++i) {
    const NotJudged& row = summary.not_judged[i];
    text += fmt::format("  {:>6} {}: {}\n", row.cases, name_of(row.verdict), printable(row.reason));
  }
  return text;
}

}  // namespace samestate
