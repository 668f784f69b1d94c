#include "cli/case_page.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/commands.h"
#include "cli/explained.h"
#include "cli/interrupt.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fixtures/run_file.h"
#include "harness/processes/workers.h"
#include "harness/systems/saved_run.h"
#include "oracles/systems/operator.h"
#include "reports/records/summary.h"

namespace samestate::cli {
namespace {

/// Follows an exit code if the page's verdict leaves something open.
constexpr const char* kOpen = "?";

/// Prints what a deeper look found, in one line.
std::string deeper_line(const Record& deeper) {
  const Judgement& j = deeper.judgement;
  std::string out = fmt::format("deeper    {} under policy {}", name_of(j.verdict), deeper.policy);
  if (is_judged(j.verdict))
    out += fmt::format(": gate {}, ratio {:.6g}   (error {:.6g} of a bound of {:.6g})", j.gate, j.ratio,
                       j.error, j.bound);
  if (!j.reason.empty()) out += (is_judged(j.verdict) ? "; " : ": ") + j.reason;
  return out;
}

/// Prints a page, and after it (or in its object) what the deeper look finds about the parts that it leaves
/// open; a failure found there becomes the exit code.
void print_page(const std::string& page, bool open, const PageOptions& options, int& code) {
  const std::string shown = options.json ? page : for_terminal(page);
  if (!open || !options.deeper) return fmt::print("{}", shown);
  // The user reads the first verdict while the second is computed.
  if (!options.json) fmt::print("{}", shown);
  std::fflush(stdout);
  const Record deeper = options.deeper();
  if (is_repeatable_failure(deeper.judgement.verdict) && deeper.judgement.verdict != Verdict::timeout)
    code = exit_code_of(deeper.judgement.verdict);
  if (options.json)
    fmt::print("{}", with_deeper(page, deeper));
  else
    fmt::print("{}", for_terminal(deeper_line(deeper) + "\n"));
}

}  // namespace

void add_record(Page& page, const Record& record) {
  const Judgement& j = record.judgement;
  page.line("case      {}", record.line);
  page.line("kernel    {} on {}", record.kernel, record.device);
  page.line("verdict   {}{}{}", name_of(j.verdict), j.reason.empty() ? "" : ": ", j.reason);
  if (!record.tuned.empty()) page.line("tuned     {}", record.tuned);
  if (j.verdict == Verdict::skipped || j.verdict == Verdict::unsupported || j.verdict == Verdict::crash ||
      j.verdict == Verdict::timeout || j.verdict == Verdict::flaky) {
    return;
  }
  page.line("gate      {}{}", j.gate, j.stage.empty() ? "" : " of stage " + j.stage);
  page.line("ratio     {:.6g}   (error {:.6g} of a bound of {:.6g})", j.ratio, j.error, j.bound);
  if (const std::string_view measure = measure_of(j.gate); !measure.empty())
    page.line("error     {}", measure);
  // A result that is compared bit for bit, or in pairs of runs, has no other gates.
  if (j.head_ratio > 0.0 || j.state_ratio > 0.0 || j.hard_ratio > 0.0)
    page.line(
        "gates     row {:.4g}   head {:.4g}   state {:.4g}   hard {:.4g}   twin {:.4g}   median row {:.4g}{}",
        j.row_ratio, j.head_ratio, j.state_ratio, j.hard_ratio, j.twin_ratio, j.median_ratio,
        j.sampled_ratio > 0.0 ? fmt::format("   sampled {:.4g}", j.sampled_ratio) : "");
  if (!std::isnan(j.expected) || !std::isnan(j.actual)) {
    page.line("worst at  {}", place_of(j));
    page.line("          expected {:.9g}, actual {:.9g}, difference {:.3g}", j.expected, j.actual,
              j.actual - j.expected);
  }
  if (j.rows > 0 && !j.gate.starts_with("exact"))
    page.line("rows      {} compared, relative RMS error of {} {:.3g}", j.rows,
              find_operator(record.system) != nullptr ? "the outputs" : "o", j.relative_rms);
  const char* title = "stages    ";
  for (const StageFinding& s : j.stages) {
    page.line("{}{:<16} {:<8} ratio {:.4g}{}", std::exchange(title, "          "), s.stage,
              name_of(s.verdict), s.ratio, s.gate.empty() ? "" : fmt::format(" ({})", s.gate));
  }
  if (j.held > 0)
    page.line("held      {} of {}{} to their bounds, all others in float64: {}", j.held, j.held_of,
              j.held_which.starts_with("tokens") ? "" : " heads", j.held_which);
  if (!record.policy.empty()) page.line("policy    {}", record.policy);
}

void add_explanation(Page& page, const Explanation& e) {
  const char* title = "compared  ";
  for (const std::string& line : e.compared) page.line("{}{}", std::exchange(title, "          "), line);
  title = "program   ";
  for (std::size_t i = 0; i < e.program.size(); ++i) {
    page.line("{}{:>2}. {}", std::exchange(title, "          "), i + 1, e.program[i]);
  }
  title = "differs   ";
  for (const std::string& line : e.differs) page.line("{}{}", std::exchange(title, "          "), line);
  title = "looks like";
  for (const std::string& line : e.patterns) page.line("{} {}", std::exchange(title, "          "), line);
  title = "tried     ";
  for (const std::string& line : e.tried) page.line("{}{}", std::exchange(title, "          "), line);
  title = "values    ";
  for (const ExplainedValue& v : e.values) {
    page.line("{}{}: {} {:.9g}, {} {:.9g}", std::exchange(title, "          "), v.place, e.expected,
              v.expected, e.actual, v.actual);
  }
  title = "bound     ";
  for (const BoundTerm& term : e.terms) {
    page.line("{}{:<28} {:.4g}", std::exchange(title, "          "), term.name, term.value);
  }
}

std::string with_code(const std::string& page, Verdict verdict, const std::string& left, bool open) {
  return fmt::format("{}{}{}{}\n{}", exit_code_of(verdict), open ? kOpen : "", left.empty() ? "" : " ", left,
                     page);
}

std::string record_page(const Record& record, bool json) {
  if (json) return case_json(record, {});
  Page page;
  add_record(page, record);
  return page.text();
}

CaseExplanation lists_of(const Explanation& e) {
  CaseExplanation out{e.differs, e.patterns, e.tried};
  for (const ExplainedValue& v : e.values) out.values.push_back({v.place, v.expected, v.actual});
  for (const BoundTerm& term : e.terms) out.terms.emplace_back(term.name, term.value);
  return out;
}

int print_apart(const std::function<std::string()>& body, const std::function<Record()>& planned,
                const PageOptions& options) {
  const JobResult outcome = run_interruptibly(body, options.timeout);
  if (const std::optional<Judgement> lost = judgement_of_loss(outcome)) {
    Record record = planned();
    record.judgement = *lost;
    if (options.loss != nullptr) *options.loss = *lost;
    // No limit was reached, so this says nothing about the kernel.
    const bool stopped = outcome.how == "interrupt";
    if (stopped) record.judgement.verdict = Verdict::skipped;
    const std::string text = record_page(record, options.json);
    fmt::print("{}", options.json ? text : for_terminal(text));
    return stopped ? static_cast<int>(kVacuous) : exit_code_of(lost->verdict);
  }
  const std::size_t end = outcome.text.find('\n');
  const std::string first = outcome.text.substr(0, end);
  int code = std::stoi(first);
  const bool open = first.substr(0, first.find(' ')).ends_with(kOpen);
  print_page(outcome.text.substr(end + 1), open, options, code);
  if (const std::size_t space = first.find(' '); space != first.npos) {
    std::fflush(stdout);
    const std::string path = first.substr(space + 1);
    const RunFile run = read_run_file(path, named_shapes);
    std::filesystem::remove(path);
    print_neighbours(run, options.card_budget, options.table);
  }
  return code;
}

}  // namespace samestate::cli
