#include "reports/text/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "reports/records/evidence.h"
#include "reports/records/failure_groups.h"
#include "reports/records/files.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/records/surprise.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

constexpr std::size_t kMostFailures = 50;
constexpr std::size_t kSurprisesOnPage = 20;
constexpr std::size_t kLongestText = 4000;  // bytes

/// Collects rows while they fit, and counts the others.
class Page {
 public:
  void add(std::string_view row) {
    constexpr std::size_t kFooter = 200;
    if (left_out_ > 0 || text_.size() + row.size() + kFooter > kMarkdownLimit) {
      ++left_out_;
    } else {
      text_ += row;
    }
  }

  [[nodiscard]] std::string finish() {
    if (left_out_ > 0) {
      text_ +=
          fmt::format("\n{} rows left out: a step summary holds {} bytes; the JSON Lines record has all.\n",
                      left_out_, kMarkdownLimit);
    }
    return std::move(text_);
  }

 private:
  std::string text_;
  std::int64_t left_out_ = 0;
};

/// Returns the part of a reason or a case line that is shown.
std::string clipped(std::string_view text) {
  return on_one_line(text.substr(0, kLongestText)) + (text.size() > kLongestText ? " ..." : "");
}

std::string plain(std::string_view text) { return markdown_cell(clipped(text)); }

/// Returns a code span for a table cell, where a bar must be escaped even inside the span.
std::string code(std::string_view text) {
  const std::string line = clipped(text);
  if (line.empty()) return "";
  std::size_t longest = 0;
  std::size_t run = 0;
  for (char c : line) {
    run = c == '`' ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  std::string span;
  for (char c : line) {
    if (c == '|') span += '\\';
    span += c;
  }
  const std::string fence(longest + 1, '`');
  const char* space = line.front() == '`' || line.back() == '`' ? " " : "";
  return fence + space + span + space + fence;
}

/// NaN is a finding if cases were judged, and a gap if none were.
std::string figure(double value, std::int64_t judged) {
  return judged == 0 ? "-" : fmt::format("{:.3g}", value);
}

std::string headline(const Summary& summary) {
  if (!summary.failures.empty()) {
    return fmt::format("{} of {} failed", summary.failures.size(), counted(summary.cases, "case"));
  }
  if (summary.judged == 0) return fmt::format("nothing was judged ({})", counted(summary.cases, "case"));
  return fmt::format("{} of {} judged, none failed", summary.judged, counted(summary.cases, "case"));
}

void add_counts(Page& page, const Summary& summary, std::span<const Record> records, const Run& run,
                const RunEnd& end) {
  page.add(fmt::format("# samestate: {}{}{}\n\n", headline(summary),
                       end.not_complete.empty() ? "" : "; not complete",
                       end.remarks.empty() ? "" : "; too little was covered"));
  if (!end.not_complete.empty())
    page.add(fmt::format("**{}** Exit {}.\n\n", plain(end.not_complete), end.exit));
  if (const std::string absent = without_device(records); !absent.empty())
    page.add(fmt::format("**{}**\n\n", plain(absent)));
  for (const std::string& remark : end.remarks) page.add(fmt::format("* {}\n", plain(remark)));
  if (!end.remarks.empty()) page.add("\n");
  page.add("| verdict | cases |\n|---|---:|\n");
  for (std::size_t i = 0; i < kVerdictCount; ++i) {
    if (summary.counts[i] == 0) continue;
    page.add(fmt::format("| {} | {} |\n", name_of(static_cast<Verdict>(i)), summary.counts[i]));
  }
  page.add(fmt::format("| all | {} |\n\n{:.1f} s in kernels and oracles", summary.cases, summary.seconds));
  const auto add_field = [&](const char* name, const std::string& value) {
    if (!value.empty()) page.add(fmt::format("; {} {}", name, plain(value)));
  };
  add_field("samestate", run.version);
  add_field("commit", run.commit);
  add_field("device", run.device);
  add_field("driver", run.driver);
  add_field("toolkit", run.toolkit);
  add_field("kernel sources", sources_text(run.kernel_sources));
  add_field("plugins", run.plugins);
  page.add(".\n");
}

void add_failure(Page& page, const FailureGroup& group, const Record& record) {
  const Judgement& judgement = record.judgement;
  std::string text =
      fmt::format("### {} of {}: {}\n\n", group.cases, code(record.kernel), plain(group.cause));
  text += fmt::format("```sh\n{}\n```\n\n", clipped(repro_command(record)));
  text += fmt::format("* {}\n", plain(judgement_line(judgement)));
  if (!record.looks_like.empty()) text += fmt::format("* looks like: {}\n", plain(record.looks_like));
  if (!group.only.empty())
    text +=
        fmt::format("* every case of this kind has {}, none of the kernel that passed\n", code(group.only));
  text += fmt::format("* {}.{}, contract {}, regime {}{}{}, device {}, {:.3g} s\n", plain(record.system),
                      plain(record.form), plain(record.contract), plain(record.regime),
                      record.law.empty() ? "" : ", law ", plain(record.law), plain(record.device),
                      record.seconds);
  text += fmt::format(
      "* ratios: row {:.3g}, head {:.3g}, state {:.3g}, hard {:.3g}, twin {:.3g}, sampled {:.3g}, median "
      "{:.3g}; "
      "relative RMS {:.3g}; {} rows\n\n",
      judgement.row_ratio, judgement.head_ratio, judgement.state_ratio, judgement.hard_ratio,
      judgement.twin_ratio, judgement.sampled_ratio, judgement.median_ratio, judgement.relative_rms,
      judgement.rows);
  page.add(text);
}

/// Adds one failure per kind: kernel, form, law and likely cause.
void add_failures(Page& page, const Summary& summary, std::span<const Record> records) {
  if (summary.failures.empty()) return;
  const std::vector<FailureGroup> groups = failure_groups(records);
  const std::size_t shown = std::min(kMostFailures, groups.size());
  page.add(fmt::format("\n## Failures ({} of {} kinds, {} cases)\n\n", shown, groups.size(),
                       summary.failures.size()));
  page.add("Of each kernel, form, law and likely cause one case, the one of the fewest elements.\n\n");
  for (std::size_t i = 0; i < shown; ++i) add_failure(page, groups[i], records[groups[i].example]);
}

void add_surprises(Page& page, std::span<const Record> records) {
  const Surprises surprises = surprises_of(records);
  if (!surprises.ranked.empty()) {
    page.add(fmt::format("\n## What stands out from its group\n\n{}\n\n", kSurpriseMeaning));
    page.add("| tail | ratio | median of the group | gate | verdict | kernel | law | repeat with |\n");
    page.add("|---:|---:|---:|---|---|---|---|---|\n");
  }
  for (std::size_t i = 0; i < std::min(kSurprisesOnPage, surprises.ranked.size()); ++i) {
    const Surprise& surprise = surprises.ranked[i];
    const Record& record = records[surprise.record];
    const std::int64_t judged = std::isnan(surprise.median) ? 0 : surprise.group;
    page.add(fmt::format("| {} | {:.3g} | {} | {} | {} | {} | {} | {} |\n", figure(surprise.tail, judged),
                         record.judgement.ratio, figure(surprise.median, judged),
                         plain(record.judgement.gate), name_of(record.judgement.verdict), code(record.kernel),
                         plain(record.law), code(repro_command(record))));
  }
  if (surprises.attained.empty()) return;
  page.add(fmt::format("\n{}.\n\n| system | form | contract | cases | least ratio | largest |\n",
                       attained_line(surprises)));
  page.add("|---|---|---|---:|---:|---:|\n");
  for (const AttainedGroup& group : surprises.attained) {
    page.add(fmt::format("| {} | {} | {} | {} | {:.4f} | {:.4f} |\n", plain(group.system), plain(group.form),
                         plain(group.contract), group.cases, group.least, group.largest));
  }
}

void add_tables(Page& page, const Summary& summary) {
  page.add("\n## By system, form and contract\n\n");
  page.add("| system | form | contract | cases | judged | failures | worst ratio | typical ratio |\n");
  page.add("|---|---|---|---:|---:|---:|---:|---:|\n");
  for (const Group& group : summary.groups) {
    page.add(fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", plain(group.system),
                         plain(group.form), plain(group.contract), group.cases, group.judged, group.failures,
                         figure(group.worst_ratio, group.judged), figure(group.median_ratio, group.judged)));
  }
  page.add("\n## Ratio by regime\n\n| regime | judged | p50 | p90 | max |\n|---|---:|---:|---:|---:|\n");
  for (const RegimeSpread& row : summary.regimes) {
    page.add(fmt::format("| {} | {} | {:.3g} | {:.3g} | {:.3g} |\n", plain(row.regime), row.judged,
                         row.ratio.p50, row.ratio.p90, row.ratio.max));
  }
  if (!summary.stages.empty())
    page.add(
        "\n## Stages of layers\n\n| system | stage | judged | failures | p50 | p90 | max "
        "|\n|---|---|---:|---:|---:|---:|---:|\n");
  for (const StageSpread& row : summary.stages) {
    page.add(fmt::format("| {} | {} | {} | {} | {:.3g} | {:.3g} | {:.3g} |\n", plain(row.system),
                         plain(row.stage), row.judged, row.failures, row.ratio.p50, row.ratio.p90,
                         row.ratio.max));
  }
  if (summary.not_judged.empty()) return;
  page.add("\n## Not judged\n\n| verdict | reason | cases |\n|---|---|---:|\n");
  for (const NotJudged& row : summary.not_judged) {
    page.add(fmt::format("| {} | {} | {} |\n", name_of(row.verdict), plain(row.reason), row.cases));
  }
}

}  // namespace

std::string markdown_text(std::span<const Record> records, const Run& run, const RunEnd& end) {
  const Summary summary = summarise(records);
  Page page;
  add_counts(page, summary, records, run, end);
  add_failures(page, summary, records);
  add_surprises(page, records);
  add_tables(page, summary);
  return page.finish();
}

void write_markdown(const std::filesystem::path& path, std::span<const Record> records, const Run& run,
                    const RunEnd& end) {
  write_atomically(path, markdown_text(records, run, end));
}

}  // namespace samestate
