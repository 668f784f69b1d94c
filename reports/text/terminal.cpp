#include "reports/text/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "reports/records/failure_groups.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/records/surprise.h"
#include "reports/text/escape.h"
#include "reports/text/paint.h"

namespace samestate {
namespace {

constexpr std::size_t kMostKinds = 5;
constexpr std::size_t kSurprisesOnTerminal = 5;
constexpr std::size_t kMostRegimes = 8;
constexpr std::size_t kMostReasons = 5;

std::string remainder(std::size_t all, std::size_t shown) {
  return all > shown ? fmt::format(" ({} of {})", shown, all) : "";
}

}  // namespace

std::string terminal_text(std::span<const Record> records, bool colour) {
  const Summary summary = summarise(records);
  const std::vector<FailureGroup> groups = failure_groups(records);
  const bool failed = !groups.empty();
  const Paint paint(colour);
  std::string text = fmt::format("{}, {} judged: {}\n", counted(summary.cases, "case"), summary.judged,
                                 paint(failed               ? Tone::bad
                                       : summary.judged > 0 ? Tone::good
                                                            : Tone::plain,
                                       counts_line(summary)));

  if (const std::string absent = without_device(records); !absent.empty()) text += absent + "\n";
  const std::size_t kinds = std::min(kMostKinds, groups.size());
  if (failed) {
    text += fmt::format("failures of {} kind{}{}: kernel, form, law and likely cause, with an example each\n",
                        groups.size(), groups.size() == 1 ? "" : "s", remainder(groups.size(), kinds));
  }
  std::set<std::size_t> shown;
  for (std::size_t i = 0; i < kinds; ++i) {
    const Record& record = records[groups[i].example];
    shown.insert(groups[i].example);
    text += fmt::format("  {}\n    {}\n", paint(Tone::bad, on_one_line(group_line(groups[i]))),
                        on_one_line(judgement_line(record.judgement)));
    if (!record.looks_like.empty())
      text += fmt::format("    looks like: {}\n", on_one_line(record.looks_like));
    text += fmt::format("    {}\n", paint(Tone::command, on_one_line(repro_command(record))));
  }

  if (failed)
    text += "  with --shrink such a command first makes its case smaller, as long as it fails alike\n";

  const Surprises surprises = surprises_of(records);
  std::size_t rows = 0;
  for (const Surprise& surprise : surprises.ranked) {
    if (rows == (failed ? kSurprisesOnTerminal / 2 : kSurprisesOnTerminal)) break;
    // Failures were already listed above, individually or by kind.
    if (shown.contains(surprise.record) || is_failure(records[surprise.record].judgement.verdict)) continue;
    if (rows++ == 0)
      text += "farthest above its group: ratio (error / bound, above 1 fails), median of the group\n";
    const Record& record = records[surprise.record];
    text += fmt::format("  {:<9.3g} {:<9} {}\n", record.judgement.ratio,
                        std::isnan(surprise.median) ? "-" : fmt::format("{:.3g}", surprise.median),
                        paint(Tone::command, on_one_line(repro_command(record))));
  }
  const std::string attained = attained_line(surprises);
  if (!attained.empty()) text += "  " + attained + "\n";

  const std::size_t regimes = std::min(failed ? kMostRegimes / 2 : kMostRegimes, summary.regimes.size());
  if (regimes > 0) {
    text +=
        fmt::format("ratio by regime{}: p50, p90, max, cases\n", remainder(summary.regimes.size(), regimes));
  }
  for (std::size_t i = 0; i < regimes; ++i) {
    const RegimeSpread& row = summary.regimes[i];
    text += fmt::format("  {:<14} {:<9.3g} {:<9.3g} {:<9.3g} {}\n", on_one_line(row.regime), row.ratio.p50,
                        row.ratio.p90, row.ratio.max, row.judged);
  }

  const std::size_t reasons = std::min(failed ? kMostReasons / 2 : kMostReasons, summary.not_judged.size());
  if (reasons > 0) text += fmt::format("not judged{}\n", remainder(summary.not_judged.size(), reasons));
  for (std::size_t i = 0; i < reasons; ++i) {
    const NotJudged& row = summary.not_judged[i];
    text += fmt::format("  {:>6} {}: {}\n", row.cases, name_of(row.verdict), on_one_line(row.reason));
  }
  return text;
}

}  // namespace samestate
