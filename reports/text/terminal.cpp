#include "reports/text/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "reports/records/summary.h"
#include "reports/records/surprise.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

constexpr std::size_t kMostFailures = 5;
constexpr std::size_t kMostSurprises = 5;
constexpr std::size_t kMostRegimes = 8;
constexpr std::size_t kMostReasons = 5;

std::string remainder(std::size_t all, std::size_t shown) {
  return all > shown ? fmt::format(" ({} of {})", shown, all) : "";
}

}  // namespace

std::string terminal_text(std::span<const Record> records, std::string_view options) {
  const Summary summary = summarise(records);
  std::string text =
      fmt::format("{} cases, {} judged: {}\n", summary.cases, summary.judged, counts_line(summary));

  const std::size_t failures = std::min(kMostFailures, summary.failures.size());
  if (failures > 0) text += fmt::format("failures{}\n", remainder(summary.failures.size(), failures));
  for (std::size_t i = 0; i < failures; ++i) {
    const Record& record = records[summary.failures[i]];
    text += fmt::format("  {}{}: {}\n    {}\n", on_one_line(record.kernel),
                        record.law.empty() ? "" : " law " + on_one_line(record.law),
                        on_one_line(judgement_line(record.judgement)),
                        on_one_line(repro_command(record, options)));
  }

  const Surprises surprises = surprises_of(records);
  const auto shown_above = summary.failures.begin() + static_cast<std::ptrdiff_t>(failures);
  std::size_t rows = 0;
  for (const Surprise& surprise : surprises.ranked) {
    if (rows == kMostSurprises) break;
    if (std::find(summary.failures.begin(), shown_above, surprise.record) != shown_above) continue;
    if (rows++ == 0)
      text += fmt::format(
          "{}farthest above its group: ratio (error / bound, above 1 fails), median of the group\n",
          failures ? "next " : "");
    const Record& record = records[surprise.record];
    text += fmt::format("  {:<9.3g} {:<9} {}\n", record.judgement.ratio,
                        std::isnan(surprise.median) ? "-" : fmt::format("{:.3g}", surprise.median),
                        on_one_line(repro_command(record, options)));
  }
  const std::string attained = attained_line(surprises);
  if (!attained.empty()) text += "  " + attained + "\n";

  const std::size_t regimes = std::min(kMostRegimes, summary.regimes.size());
  if (regimes > 0) {
    text +=
        fmt::format("ratio by regime{}: p50, p90, max, cases\n", remainder(summary.regimes.size(), regimes));
  }
  for (std::size_t i = 0; i < regimes; ++i) {
    const RegimeSpread& row = summary.regimes[i];
    text += fmt::format("  {:<14} {:<9.3g} {:<9.3g} {:<9.3g} {}\n", on_one_line(row.regime), row.ratio.p50,
                        row.ratio.p90, row.ratio.max, row.judged);
  }

  const std::size_t reasons = std::min(kMostReasons, summary.not_judged.size());
  if (reasons > 0) text += fmt::format("not judged{}\n", remainder(summary.not_judged.size(), reasons));
  for (std::size_t i = 0; i < reasons; ++i) {
    const NotJudged& row = summary.not_judged[i];
    text += fmt::format("  {:>6} {}: {}\n", row.cases, name_of(row.verdict), on_one_line(row.reason));
  }
  return text;
}

}  // namespace samestate
