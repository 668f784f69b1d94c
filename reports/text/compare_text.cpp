#include "reports/text/compare_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reports/records/summary.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

using Kind = Change::Kind;
constexpr std::array kKinds = {Kind::verdict_worse,  Kind::ratio_grew, Kind::new_failure,
                               Kind::verdict_better, Kind::ratio_fell, Kind::ratio_changed,
                               Kind::gone,           Kind::appeared};

/// A change within the factor is counted, but not listed.
bool is_listed(Kind kind) { return kind != Kind::ratio_changed && kind != Kind::appeared; }

std::string state_of(const Record& record) {
  return fmt::format("{} {:.4g}", name_of(record.judgement.verdict), record.judgement.ratio);
}

const Record& case_of(const Change& change) {
  return change.kind == Kind::gone ? change.before : change.after;
}

std::string from_to(const Change& change) {
  if (change.kind == Kind::gone) return "was " + state_of(change.before);
  if (change.kind == Kind::appeared || change.kind == Kind::new_failure) return state_of(change.after);
  return state_of(change.before) + " -> " + state_of(change.after);
}

std::string counts(const Comparison& c) {
  std::string text = fmt::format("{} in common, {} unchanged", counted(c.common, "case"), c.unchanged);
  for (const Kind kind : kKinds) {
    if (c.count(kind) > 0) text += fmt::format(", {} {}", c.count(kind), name_of(kind));
  }
  if (c.not_judged > 0) text += fmt::format(", {} not judged in the second record", c.not_judged);
  return text;
}

nlohmann::ordered_json json_of(const Record& record) {
  const double ratio = record.judgement.ratio;
  nlohmann::ordered_json out = {{"verdict", name_of(record.judgement.verdict)},
                                {"gate", record.judgement.gate}};
  if (std::isfinite(ratio)) {
    out["ratio"] = ratio;
  } else {
    out["ratio"] = std::isnan(ratio) ? "nan" : ratio > 0 ? "inf" : "-inf";
  }
  out["reason"] = record.judgement.reason;
  return out;
}

/// Returns one sentence per shortcoming: cases that are gone or new may only not have been run.
std::vector<std::string> warnings(const Comparison& c) {
  std::vector<std::string> lines;
  for (const std::string& sentence : c.before_short) lines.push_back("the first record: " + sentence);
  for (const std::string& sentence : c.after_short) lines.push_back("the second record: " + sentence);
  if (!c.unlike.empty()) {
    const bool shards =
        std::ranges::any_of(c.unlike, [](const std::string& what) { return what.starts_with("shard "); });
    lines.push_back(fmt::format("the two were planned apart, so that their cases differ: {}{}",
                                fmt::join(c.unlike, ", "),
                                shards ? "; `samestate merge` joins the shards of one run" : ""));
  }
  for (const OtherPolicy& p : c.policies)
    lines.push_back(
        fmt::format("{} judged under policy {} in the first record and under {} in the second: policies "
                    "differ in how far "
                    "the judge looks (docs/policy.md), so that a change there need not be the kernel's",
                    p.cases == 1 ? "1 case was" : counted(p.cases, "case") + " were", p.before, p.after));
  return lines;
}

/// A difference in bits is not a regression; it names the first cases that show it.
constexpr std::size_t kFirstDifferences = 3;

std::string bits_of(const BitsOfKernel& bits) {
  return fmt::format("{} of {} wrote equal bits", bits.equal, counted(bits.cases(), "case"));
}

std::string bits_text(const std::vector<BitsOfKernel>& kernels) {
  if (kernels.empty()) return "";
  std::string text = "outputs, bit for bit\n";
  for (const BitsOfKernel& bits : kernels) {
    text += fmt::format("  {:<30} {}\n", on_one_line(bits.kernel), bits_of(bits));
    for (std::size_t i = 0; i < std::min(bits.differences.size(), kFirstDifferences); ++i) {
      const auto& [record, output] = bits.differences[i];
      text +=
          fmt::format("  {:<30} {}\n", on_one_line(output) + " differs", on_one_line(repro_command(record)));
    }
  }
  return text;
}

nlohmann::ordered_json json_of(const BitsOfKernel& bits) {
  nlohmann::ordered_json out = {{"kernel", bits.kernel}, {"cases", bits.cases()}, {"equal", bits.equal}};
  out["differences"] = nlohmann::ordered_json::array();
  for (const auto& [record, output] : bits.differences)
    out["differences"].push_back({{"line", record.line}, {"output", output}});
  return out;
}

}  // namespace

std::string compare_text(const Comparison& comparison, std::size_t most) {
  std::string text = counts(comparison) + "\n";
  for (const std::string& warning : warnings(comparison)) text += on_one_line(warning) + "\n";
  for (const Kind kind : kKinds) {
    if (!is_listed(kind) || comparison.count(kind) == 0) continue;
    text += fmt::format("{}{}\n", name_of(kind),
                        static_cast<std::size_t>(comparison.count(kind)) > most
                            ? fmt::format(" ({} of {})", most, comparison.count(kind))
                            : "");
    std::size_t shown = 0;
    for (const Change& change : comparison.changes) {
      if (change.kind != kind || shown == most) continue;
      ++shown;
      const Record& record = case_of(change);
      text += fmt::format("  {:<30} {}\n", from_to(change), on_one_line(repro_command(record)));
      if (is_regression(kind) && !record.judgement.reason.empty())
        text += fmt::format("  {:<30} {}\n", "", on_one_line(record.judgement.reason));
    }
  }
  text += bits_text(comparison.bits);
  if (comparison.repeated > 0)
    text += fmt::format("{} records were repeated in their file; the last one counts\n", comparison.repeated);
  return text;
}

std::string compare_json(const Comparison& comparison) {
  nlohmann::ordered_json out = {{"before", comparison.before},
                                {"after", comparison.after},
                                {"common", comparison.common},
                                {"unchanged", comparison.unchanged},
                                {"repeated", comparison.repeated},
                                {"factor", comparison.factor},
                                {"regressions", comparison.regressions()}};
  if (!comparison.before_short.empty()) out["before_not_complete"] = comparison.before_short;
  if (!comparison.after_short.empty()) out["after_not_complete"] = comparison.after_short;
  if (comparison.before_cut) out["before_cut"] = true;
  if (comparison.after_cut) {
    out["after_cut"] = true;
    out["not_judged"] = comparison.not_judged;
  }
  if (!comparison.unlike.empty()) out["unlike"] = comparison.unlike;
  for (const OtherPolicy& p : comparison.policies)
    out["policies"].push_back({{"before", p.before}, {"after", p.after}, {"cases", p.cases}});
  if (!comparison.bits.empty()) {
    out["bits"] = nlohmann::ordered_json::array();
    for (const BitsOfKernel& bits : comparison.bits) out["bits"].push_back(json_of(bits));
  }
  out["changes"] = nlohmann::ordered_json::array();
  for (const Change& change : comparison.changes) {
    const Record& record = case_of(change);
    nlohmann::ordered_json row = {{"kind", name_of(change.kind)},
                                  {"regression", is_regression(change.kind)},
                                  {"line", record.line},
                                  {"kernel", record.kernel},
                                  {"law", record.law}};
    if (change.kind != Kind::appeared && change.kind != Kind::new_failure)
      row["before"] = json_of(change.before);
    if (change.kind != Kind::gone) row["after"] = json_of(change.after);
    out["changes"].push_back(std::move(row));
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string compare_markdown(const Comparison& comparison, const std::string& before,
                             const std::string& after) {
  constexpr std::size_t kMost = 100;
  std::string text = fmt::format(
      "# {}\n\n{} against {}: {}. A ratio counts as grown beyond a factor of {:g}.\n",
      comparison.regressions() == 0 ? "samestate: no regression"
                                    : fmt::format("samestate: {} regressions", comparison.regressions()),
      markdown_cell(after), markdown_cell(before), counts(comparison), comparison.factor);
  for (const std::string& warning : warnings(comparison))
    text += fmt::format("\n**{}**\n", markdown_cell(warning));
  for (const Kind kind : kKinds) {
    if (!is_listed(kind) || comparison.count(kind) == 0) continue;
    const auto all = static_cast<std::size_t>(comparison.count(kind));
    text += fmt::format("\n## {} ({} of {})\n\n| change | gate | repeat with |\n|---|---|---|\n",
                        name_of(kind), std::min(kMost, all), all);
    std::size_t shown = 0;
    for (const Change& change : comparison.changes) {
      if (change.kind != kind || shown == kMost) continue;
      ++shown;
      const Record& record = case_of(change);
      text += fmt::format("| {} | {} | {} |\n", markdown_cell(from_to(change)),
                          markdown_cell(record.judgement.gate), markdown_cell(repro_command(record)));
    }
  }
  if (!comparison.bits.empty()) {
    text +=
        "\n## Outputs, bit for bit\n\n| kernel | cases | equal | the first that differs | output |\n"
        "|---|---|---|---|---|\n";
    for (const BitsOfKernel& bits : comparison.bits) {
      const BitsOfKernel::Difference* first = bits.differences.empty() ? nullptr : &bits.differences.front();
      text += fmt::format("| {} | {} | {} | {} | {} |\n", markdown_cell(bits.kernel), bits.cases(),
                          bits.equal, first == nullptr ? "" : markdown_cell(repro_command(first->after)),
                          first == nullptr ? "" : markdown_cell(first->output));
    }
  }
  return text;
}

}  // namespace samestate
