#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "cli/case_sizes.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/duration.h"
#include "cli/explained.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/judge_folder.h"
#include "cli/options.h"
#include "cli/table.h"
#include "fixtures/quote.h"
#include "fixtures/run_file.h"
#include "fuzz/search/search.h"
#include "fuzz/shrink.h"
#include "harness/card/neighbours.h"
#include "harness/processes/campaign.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "oracles/numbers.h"
#include "reports/records/files.h"
#include "reports/records/summary.h"
#include "reports/text/case_json.h"

namespace samestate::cli {
namespace {

struct ReproOptions {
  std::string line, kernel, dump, timeout = "10m", shrink_budget = "60s", card_budget = "20s";
  std::vector<std::string> plugins, after;
  bool shrink = false;
  bool json = false;
  bool strict = false;
  std::string devices;
  bool each_device = false;
};

/// Seconds of a run whose explanation, which runs it again and again, lets a reader wait.
constexpr double kLongRun = 0.5;

/// A page of text that grows line by line.
class Page {
 public:
  template <class... Arguments>
  void line(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_record(Page& page, const Record& record) {
  const Judgement& j = record.judgement;
  page.line("case      {}", record.line);
  page.line("kernel    {} on {}", record.kernel, record.device);
  page.line("verdict   {}{}{}", name_of(j.verdict), j.reason.empty() ? "" : ": ", j.reason);
  if (j.verdict == Verdict::skipped || j.verdict == Verdict::unsupported || j.verdict == Verdict::crash ||
      j.verdict == Verdict::timeout || j.verdict == Verdict::flaky) {
    return;
  }
  page.line("gate      {}{}", j.gate, j.stage.empty() ? "" : " of stage " + j.stage);
  page.line("ratio     {:.6g}   (error {:.6g} of a bound of {:.6g})", j.ratio, j.error, j.bound);
  if (const std::string_view measure = measure_of(j.gate); !measure.empty())
    page.line("error     {}", measure);
  // What is compared bit for bit, or in pairs of runs, has no other gates.
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
    page.line("rows      {} compared, relative RMS error of o {:.3g}", j.rows, j.relative_rms);
  const char* title = "stages    ";
  for (const StageFinding& s : j.stages) {
    page.line("{}{:<16} {:<8} ratio {:.4g}{}", std::exchange(title, "          "), s.stage,
              name_of(s.verdict), s.ratio, s.gate.empty() ? "" : fmt::format(" ({})", s.gate));
  }
  if (j.held > 0)
    page.line("held      {} of {}{} to their bounds, all others in float64: {}", j.held, j.held_of,
              j.held_which.starts_with("tokens") ? "" : " heads", j.held_which);
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

/// A page about a case and its verdict's exit code, as one text that a worker returns; behind the code a file of the run,
/// where its contract is to be asked about.
std::string with_code(const std::string& page, Verdict verdict, const std::string& left = "") {
  return fmt::format("{}{}{}\n{}", exit_code_of(verdict), left.empty() ? "" : " ", left, page);
}

/// Of a line that names no kernel, and whose form has some of a device that is not here alone: a form that runs here.
std::string form_here(const Case& c, const KernelTable& table, const Judgement& j) {
  if (j.verdict != Verdict::skipped || !c.kernel.empty()) return "";
  const auto here = std::ranges::find_if(table.all(), [&](const KernelRow& row) {
    return row.system->name == c.system && row.device == "cpu" && row.form != c.form;
  });
  if (here == table.all().end()) return "";
  return fmt::format("form={} has no kernel of the processor; form={} has {}", c.form, here->form,
                     here->name);
}

std::string record_page(const Record& record, bool json) {
  if (json) return case_json(record, {});
  Page page;
  add_record(page, record);
  return page.text();
}

/// An explanation as the lists that a program reads.
CaseExplanation lists_of(const Explanation& e) {
  CaseExplanation out{e.differs, e.patterns, {}, {}, ""};
  for (const ExplainedValue& v : e.values) out.values.push_back({v.place, v.expected, v.actual});
  for (const BoundTerm& term : e.terms) out.terms.emplace_back(term.name, term.value);
  return out;
}

/// Prints the page that `body` makes in a process of its own, or `planned` with the verdict of what became of
/// it there.
int print_apart(const std::function<std::string()>& body, double timeout,
                const std::function<Record()>& planned, bool json, double card_budget) {
  const JobResult outcome = run_apart(body, timeout);
  if (const std::optional<Judgement> lost = judgement_of_loss(outcome)) {
    Record record = planned();
    record.judgement = *lost;
    fmt::print("{}", record_page(record, json));
    return exit_code_of(lost->verdict);
  }
  const std::size_t end = outcome.text.find('\n');
  fmt::print("{}", std::string_view(outcome.text).substr(end + 1));
  const std::string first = outcome.text.substr(0, end);
  if (const std::size_t space = first.find(' '); space != first.npos) {
    std::fflush(stdout);
    const std::string path = first.substr(space + 1);
    const RunFile run = read_run_file(path, named_shapes);
    std::filesystem::remove(path);
    print_neighbours(run, card_budget);
  }
  return std::stoi(first);
}

/// The cases of --after: lines, or files of lines.
std::vector<Case> cases_before(const ReproOptions& options, const KernelTable& table) {
  std::vector<Case> cases;
  for (const std::string& text : options.after) {
    if (text.starts_with("v1 ")) {
      cases.push_back(about_brought(parse_case(text), table));
      continue;
    }
    const std::size_t already = cases.size();
    std::ifstream file(text);
    for (std::string line; std::getline(file, line);) {
      if (!line.empty() && line[0] != '#') cases.push_back(about_brought(parse_case(line), table));
    }
    // A folder opens as a file does and gives no line; without one the run would be alone, and pass for that.
    if (cases.size() == already)
      throw Error(
          fmt::format("--after {}: neither a case line ('v1 SYSTEM ..') nor a file that has one; give either",
                      quote(text.size() > 60 ? text.substr(0, 60) + ".." : text)));
  }
  return cases;
}

std::string repro_page(const Case& c, const KernelTable& table, const ReproOptions& options,
                       const std::vector<Case>& before) {
  for (const Case& other : before) (void)run_case(other, table);
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  Explanation e;
  if (record.judgement.verdict == Verdict::fail) {
    if (record.seconds > kLongRun)
      fmt::print(stderr, "samestate: fail, ratio {:.4g}; looking for what it looks like\n",
                 record.judgement.ratio);
    e = explain_failure(Resolved(c), trace, table);
  }
  if (!options.dump.empty()) make_parent_folder(options.dump);
  if (!options.dump.empty()) write_run_file(options.dump, run_file_of(record, trace));
  const Resolved r(c);
  const double card_budget = seconds_of("--card-budget", options.card_budget);
  const bool asked =
      card_budget > 0.0 && !trace.outputs.empty() && is_about_the_contract(r, record.judgement);
  if (options.json) {
    CaseExplanation lists = lists_of(e);
    if (asked) lists.contract = neighbours_of(r, run_file_of(record, trace), card_budget).text();
    return with_code(case_json(record, lists), record.judgement.verdict);
  }
  Page page;
  add_record(page, record);
  if (const std::string note = form_here(c, table, record.judgement); !note.empty())
    page.line("note      {}", note);
  if (!before.empty()) page.line("after     {} other case(s) in the same process", before.size());
  add_explanation(page, e);
  if (!options.dump.empty()) page.line("tensors   {}", options.dump);
  return with_code(page.text(), record.judgement.verdict,
                   asked ? run_left_in(run_file_of(record, trace)) : "");
}

/// The smallest case that fails alike, or the case itself where it is flaky.
Shrunk shrink_case(const Case& c, const KernelTable& table, const ReproOptions& options) {
  Workers worker(runner_of(table), {1, seconds_of("--timeout", options.timeout)});
  ShrinkOptions how;
  how.fresh = [&](const Case& smaller) { return worker.run_fresh(smaller); };
  how.budget = seconds_of("--shrink-budget", options.shrink_budget);
  how.stop = interrupted;
  note_interrupts();
  Shrunk small = shrink(
      c, [&](const Case& smaller) { return worker.run_one(smaller); }, how);
  fmt::print("shrunk    {} elements of {:.0f} in {} runs, {:.1f} s{}\n",
             size_of_case(Resolved(small.smallest)), size_of_case(Resolved(c)), small.runs, small.seconds,
             small.complete  ? ""
             : interrupted() ? "; interrupted: the smallest so far"
                             : "; not finished: give more --shrink-budget");
  fmt::print("sizes     {}\n", sizes_in_full(Resolved(small.smallest)));
  return small;
}

/// On every device, and the outputs of one against the other's.
int repro_on_each(const ReproOptions& options, const KernelTable& table, const Case& c, Devices* devices) {
  if (planned_record(c, table).device != "cuda")
    throw Error(
        "--each-device: the line's kernel is none of a cuda device: leave it out, or name another kernel");
  CampaignOptions how{1, 0.0, seconds_of("--timeout", options.timeout), nullptr, devices, true};
  Record found;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record& record) { found = record; };
  const CampaignResult result = run_campaign({&c, 1}, table, how, observer);
  fmt::print("{}", record_page(found, options.json));
  if (!options.json && result.compared > 0 && found.judgement.verdict == Verdict::pass)
    fmt::print("devices   the same bits on each of {}: {}\n", devices->all().size(), found.outputs);
  return exit_code_of(found.judgement.verdict);
}

/// The kernel runs in a process of its own: a crash or a hang is a verdict here too.
int repro_line(const ReproOptions& options, const KernelTable& all, const std::string& line,
               Devices* devices) {
  Case c = parse_case(line);
  if (!options.kernel.empty()) c.kernel = options.kernel;
  c = about_brought(std::move(c), all);
  if (options.strict) c = exactly(c);
  const KernelTable table = table_for(all, c);
  const double timeout = seconds_of("--timeout", options.timeout);
  require_promise(c, table);
  if (options.each_device) return repro_on_each(options, table, c, devices);
  const std::vector<Case> before = cases_before(options, table);
  for (const Case& other : before) (void)planned_record(other, table);
  if (options.shrink && !before.empty())
    throw Error("--shrink makes one case smaller, and --after names others: leave one of the two out");
  if (options.shrink) {
    const Shrunk small = shrink_case(c, table, options);
    const Verdict verdict = small.finding.judgement.verdict;
    if (verdict == Verdict::flaky || interrupted()) {
      const Record record = record_of(verdict == Verdict::flaky ? c : small.smallest, table, small.finding);
      fmt::print("{}", record_page(record, options.json));
      return exit_code_of(verdict);
    }
    c = small.smallest;
  }
  return print_apart([&] { return repro_page(c, table, options, before); }, timeout,
                     [&] { return planned_record(c, table); }, options.json,
                     seconds_of("--card-budget", options.card_budget));
}

/// The worst of two exit codes: what must not be overlooked first.
int worse(int a, int b) {
  constexpr std::array kOrder = {kCrash, kFail, kUsage, kFlaky, kVacuous, kPass, kNothingRan};
  const auto rank = [&](int code) { return std::find(kOrder.begin(), kOrder.end(), code) - kOrder.begin(); };
  return rank(a) < rank(b) ? a : b;
}

int run_repro(const ReproOptions& options) {
  const KernelTable table = kernel_table(options.plugins, {}, options.strict);
  // Of those that are named the processes of a line see the first.
  std::unique_ptr<Devices> devices;
  if (!options.devices.empty() || options.each_device) devices = devices_of(options.devices, table);
  if (options.each_device) {
    require_each_device(devices.get());
    if (options.shrink || !options.dump.empty() || !options.after.empty())
      throw Error("--each-device runs one line alone on each: leave --shrink, --dump and --after out");
  }
  // What is there and no file is refused where the tensors would be written: a pipe would be waited for here.
  if (std::error_code code; !options.dump.empty() && !std::filesystem::exists(options.dump, code))
    require_writable(options.dump);
  if (options.line != "-") return repro_line(options, table, options.line, devices.get());
  if (!options.dump.empty()) throw Error("--dump: one file holds one run; name one line instead of -");
  note_interrupts();
  int code = kNothingRan;
  std::int64_t number = 0;
  std::int64_t lines = 0;
  for (std::string line; !interrupted() && std::getline(std::cin, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    ++lines;
    try {
      code = worse(code, repro_line(options, table, line, devices.get()));
    } catch (const Error& error) {
      // The lines behind a wrong one are run all the same.
      fmt::print(stderr, "samestate: line {} of stdin: {}\n", number, error.what());
      code = worse(code, kUsage);
      continue;
    }
    if (!options.json) fmt::print("\n");
    std::fflush(stdout);
  }
  if (lines == 0 && !interrupted())
    throw Error("no case line on stdin: nothing ran; write lines of 'v1 SYSTEM key=value ...' to it");
  return code;
}

}  // namespace

Command add_repro(CLI::App& app) {
  auto options = std::make_shared<ReproOptions>();
  app.footer(
      "The line is what a failing case printed. Keys that it leaves out have their defaults:\n"
      "  form=chunked chunk=64 B=1 T=64 Hk=1 Hv=Hk dk=64 dv=dk contract=fp32 regime=normal state=none "
      "seed=0\n"
      "  heads=interleaved l2norm=0 scale=dk^-1/2 layout=dense final=apart unowned=0,0 repeat=0\n\n"
      "  samestate repro 'v1 gated_delta_rule chunk=16 T=65 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 regime=slow "
      "seed=0x2a'\n"
      "  samestate gate --system retention --regime slow --list | samestate repro -");
  app.add_option("line", options->line,
                 "the case line, quoted; - reads lines from stdin, one after the other")
      ->required();
  app.add_option("--kernel", options->kernel, "run this kernel instead of the one that the line names")
      ->check(named());
  add_plugin_option(app, options->plugins);
  add_devices_option(app, options->devices);
  app.add_flag("--each-device", options->each_device, kEachDeviceHelp);
  app.add_flag("--json", options->json, "machine-readable");
  app.add_flag("--strict", options->strict, kStrictHelp);
  app.add_option("--after", options->after,
                 "run this case line, or the lines of this file, before it in the same process (repeatable)")
      ->take_all()
      ->allow_extra_args(false)
      ->check(named());
  app.add_flag("--shrink", options->shrink, "first make the case smaller, as long as it fails alike");
  app.add_option("--shrink-budget", options->shrink_budget, "time for that")->capture_default_str();
  app.add_option("--timeout", options->timeout, "a run that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option(
         "--card-budget", options->card_budget,
         "time to look for a contract near the case's under which a run that fails the twin passes (0: none)")
      ->capture_default_str();
  app.add_option("--dump", options->dump, "write all tensors of the run to a safetensors file")
      ->check(named());
  return [options] { return run_repro(*options); };
}

namespace {

/// The tensors that a run file of a case holds, a line each.
int print_tensors(const std::string& line) {
  const Resolved r(parse_case(line));
  for (const NamedShape& tensor : tensors_in_file(r))
    fmt::print("{:<24} [{}]{}\n", tensor.name, fmt::join(tensor.shape, ", "),
               tensor.optional ? "  or none" : "");
  return kPass;
}

/// What is judged as it stands and yet is seldom meant: a decay that grows, a strength outside of [0, 2].
std::vector<std::string> unusual_inputs(const RunFile& run) {
  std::vector<std::string> notes;
  const auto range = [&](const char* name, double least, double most, const char* meant) {
    const auto found = run.tensors.find(name);
    if (found == run.tensors.end() || found->second.values.empty()) return;
    const auto [low, high] = std::minmax_element(found->second.values.begin(), found->second.values.end());
    if (*low < least || *high > most)
      notes.push_back(fmt::format("{} is {:.3g} to {:.3g}; {}", name, *low, *high, meant));
  };
  range("g", -kInfinity, 0.0, "it is the natural logarithm of a decay in (0, 1]: above 0 the state grows");
  range("beta", 0.0, 2.0, "in [0, 2] a write keeps the state's norm from growing: is it before its sigmoid?");
  return notes;
}

}  // namespace

Command add_judge(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto line = std::make_shared<std::string>();
  auto timeout = std::make_shared<std::string>("10m");
  app.footer(
      "The file is a safetensors file as `samestate repro --dump` writes it: metadata "
      "format=samestate-run-1, case and kernel;\n"
      "tensors q k v o, and where the case has them g beta initial_state cu_seqlens final_state. A system of "
      "named tensors has\n"
      "them all as input.NAME and output.NAME, [B, ...] but for weights, and under form=decode metadata "
      "form, "
      "the form that was\n"
      "called, under taps=1 tap.NAME of those that the kernel handed out. F32 or F64. System, form, chunk, "
      "sizes "
      "and contract\n"
      "are those of the case line; the data are the file's, whatever "
      "regime or seed the line names.\n\n"
      "  samestate judge run.safetensors\n"
      "  samestate judge --tensors 'v1 rms_norm form=fused T=8'      which tensors, of which shape\n"
      "  samestate judge --flashinfer-bench DIR --solution FILE      a Solution, its traces "
      "(docs/subjects.md)");
  auto* path = app.add_option("file", *file, "the run file, or a folder of `samestate export`");
  auto* names = app.add_option("--tensors", *line, "print what a run file of this case line holds");
  names->excludes(path);
  app.add_option("--timeout", *timeout, "a file that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "machine-readable");
  auto strict = std::make_shared<bool>(false);
  app.add_flag("--strict", *strict, kStrictHelp);
  auto budget = std::make_shared<std::string>("20s");
  app.add_option("--card-budget", *budget,
                 "time to look for a contract under which what fails the twin passes (0: none)")
      ->capture_default_str();
  auto reports = std::make_shared<JudgeFolderOptions>();
  app.add_option("--jsonl", reports->jsonl, "of a folder: write every case as JSON Lines")->check(named());
  app.add_option("--junit", reports->junit, "of a folder: write JUnit XML")->check(named());
  app.add_option("--markdown", reports->markdown, "of a folder: write a Markdown summary")->check(named());
  return [file, line, timeout, names, path, json, strict, budget, reports] {
    if (names->count() > 0) return print_tensors(*line);
    if (path->count() == 0) throw Error("judge: name a run file, or --tensors and a case line");
    if (std::filesystem::is_directory(*file)) {
      reports->folder = *file, reports->json = *json, reports->strict = *strict;
      reports->timeout = seconds_of("--timeout", *timeout);
      return judge_folder(*reports);
    }
    if (!reports->jsonl.empty() || !reports->junit.empty() || !reports->markdown.empty())
      throw Error("--jsonl, --junit and --markdown are of a folder: one file has --json");
    const auto judged = [&] {
      RunFile run = read_run_file(*file, named_shapes);
      if (*strict) run.case_line = format_case(exactly(parse_case(run.case_line)));
      Trace trace;
      const Record record = judge_run_file(run, &trace);
      const Resolved r(parse_case(run.case_line));
      Explanation e;
      if (record.judgement.verdict == Verdict::fail) e = explain_with_mutants(r, trace);
      const bool asked = *budget != "0" && is_about_the_contract(r, record.judgement);
      if (*json) {
        CaseExplanation lists = lists_of(e);
        if (asked) lists.contract = neighbours_of(r, run, seconds_of("--card-budget", *budget)).text();
        return with_code(case_json(record, lists), record.judgement.verdict);
      }
      Page page;
      add_record(page, record);
      for (const std::string& note : unusual_inputs(run)) page.line("note      {}", note);
      add_explanation(page, e);
      return with_code(page.text(), record.judgement.verdict, asked ? run_left_in(run) : "");
    };
    return print_apart(
        judged, seconds_of("--timeout", *timeout),
        [&] {
          Record record;
          record.line = "of " + *file;
          record.kernel = record.device = "unknown";
          return record;
        },
        *json, seconds_of("--card-budget", *budget));
  };
}

}  // namespace samestate::cli
