#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "cli/case_page.h"
#include "cli/case_sizes.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "cli/duration.h"
#include "cli/explained.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/script.h"
#include "cli/shrink_case.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "fixtures/quote.h"
#include "fixtures/run_file.h"
#include "fuzz/search/search.h"
#include "fuzz/search/shrink.h"
#include "harness/card/neighbours.h"
#include "harness/processes/campaign.h"
#include "harness/processes/other_tuning.h"
#include "harness/run/looks.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "oracles/judge_policy.h"
#include "oracles/numbers.h"
#include "reports/records/files.h"
#include "reports/records/summary.h"
#include "reports/text/case_json.h"

namespace samestate::cli {
namespace {

struct ReproOptions {
  std::string line, kernel, dump, timeout = "10m", shrink_budget = "60s", card_budget = "20s",
                                  deeper_budget = "20s";
  std::vector<std::string> plugins, after;
  bool shrink = false;
  bool deeper = false;
  bool json = false;
  bool strict = false;
  std::string devices;
  bool each_device = false;
  ScriptOptions script;
};

/// If a run takes longer than this many seconds, a message says that the explanation, which runs the case many times,
/// takes a while.
constexpr double kLongRun = 0.5;

/// For a line without a kernel whose form only has kernels of an absent device, returns a form that runs
/// here.
std::string form_here(const Case& c, const KernelTable& table, const Judgement& j) {
  if (j.verdict != Verdict::skipped || !c.kernel.empty()) return "";
  const auto here = std::ranges::find_if(table.all(), [&](const KernelRow& row) {
    return row.system->name == c.system && row.device == "cpu" && row.form != c.form;
  });
  if (here == table.all().end()) return "";
  return fmt::format("form={} has no kernel for the CPU; form={} has {}", c.form, here->form, here->name);
}

/// Returns the line without the comment that `gate --list --why` puts after it; empty if it is only a
/// comment.
std::string without_comment(const std::string& line) {
  if (line.starts_with('#')) return "";
  const std::size_t comment = line.find(" #");
  return line.substr(0, comment == line.npos ? comment : line.find_last_not_of(' ', comment) + 1);
}

/// Returns the cases of --after: lines, or the lines of files.
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
      line = without_comment(line);
      if (!line.empty()) cases.push_back(about_brought(parse_case(line), table));
    }
    // A folder opens like a file but contains no line. Without this error, the case would run alone and look as if it
    // did not depend on others.
    if (cases.size() == already)
      throw Error(
          fmt::format("--after {}: this is neither a case line ('v1 SYSTEM ..') nor a file of case lines; "
                      "give one of them",
                      quote(text.size() > 60 ? text.substr(0, 60) + ".." : text)));
  }
  return cases;
}

/// Repeats in a process of its own, because the original process keeps the setting that it began with.
void repeat_with_other_tuning(Record& record, const std::vector<Case>& before, const Case& c,
                              const KernelTable& table, double timeout) {
  const std::string setting = other_tuning_of(record);
  if (setting.empty()) return;
  fmt::print(stderr, "samestate: {}; repeated with --autotune {}\n", name_of(record.judgement.verdict),
             setting);
  const JobResult done = run_apart(
      [&] {
        ::setenv(kAutotuneVariable, setting.c_str(), 1);
        for (const Case& other : before) (void)run_case(other, table);
        return result_text(case_result(run_case(c, table)));
      },
      timeout, interrupted);
  if (done.kind == JobResult::Kind::answered) (void)add_retuned(record, setting, parse_result(done.text));
}

/// Runs the line again after the same cases, in a process of its own, with the deep policy.
Record deeper_apart(const Case& c, const KernelTable& table, const std::vector<Case>& before, double budget) {
  const JobResult done = run_interruptibly(
      [&] {
        for (const Case& other : before) (void)run_case(other, table);
        return result_text(case_result(deeper_look(c, table)));
      },
      budget);
  if (done.kind == JobResult::Kind::answered) return record_of(c, table, parse_result(done.text));
  Record record = planned_record(c, table);
  record.policy = kDeepPolicy.name;
  record.judgement = judgement_of_loss(done).value();
  if (record.judgement.verdict == Verdict::timeout)
    record.judgement.reason = fmt::format(
        "not finished within {:g} s; give more with --deeper-budget, or 0 to leave it out", budget);
  return record;
}

std::string repro_page(const Case& c, const KernelTable& table, const ReproOptions& options,
                       const std::vector<Case>& before, const ScriptWords& words) {
  for (const Case& other : before) (void)run_case(other, table);
  Trace trace;
  Record record = first_look(c, table, &trace);
  Explanation e;
  repeat_with_other_tuning(record, before, c, table, seconds_of("--timeout", options.timeout));
  if (const std::string blamed = configuration_to_blame(record); !blamed.empty())
    e.patterns.push_back(blamed);
  else if (record.judgement.verdict == Verdict::fail) {
    if (record.seconds > kLongRun)
      fmt::print(own_stderr(), "samestate: fail, ratio {:.4g}; looking for what the failure looks like\n",
                 record.judgement.ratio);
    e = explain_failure(Resolved(c), trace, table);
  }
  if (!options.dump.empty()) make_parent_folder(options.dump);
  if (!options.dump.empty()) write_run_file(options.dump, run_file_of(record, trace), named_shapes);
  if (!options.script.file.empty()) write_script(options.script, words, record, trace, e);
  const Resolved r(c);
  const bool open = leaves_open(record.judgement, options.deeper);
  const double card_budget = seconds_of("--card-budget", options.card_budget);
  const bool asked =
      card_budget > 0.0 && !trace.outputs.empty() && is_about_the_contract(r, record.judgement);
  if (options.json) {
    CaseExplanation lists = lists_of(e);
    if (asked) lists.contract = neighbours_of(r, trace, card_budget).text();
    return with_code(case_json(record, lists), record.judgement.verdict, "", open);
  }
  Page page;
  add_record(page, record);
  if (const std::string note = form_here(c, table, record.judgement); !note.empty())
    page.line("note      {}", note);
  constexpr std::size_t kListed = 8;
  if (before.size() > kListed || (!before.empty() && !options.shrink))
    page.line("after     {} other case(s) in the same process", before.size());
  if (options.shrink && before.size() <= kListed) {
    for (const Case& other : before) page.line("after     {}", format_case(other));
  }
  add_explanation(page, e);
  if (!options.dump.empty()) page.line("tensors   {}", options.dump);
  if (!options.script.file.empty()) page.line("script    {}", options.script.file);
  return with_code(page.text(), record.judgement.verdict,
                   asked ? run_left_in(run_file_of(record, trace)) : "", open);
}

/// Runs the case on every device and compares the outputs of each with those of the first.
int repro_on_each(const ReproOptions& options, const KernelTable& table, const Case& c, Devices* devices) {
  if (planned_record(c, table).device != "cuda")
    throw Error(
        "--each-device: the line's kernel does not run on cuda devices; leave out --each-device, or name "
        "another kernel");
  const CampaignOptions how{
      .timeout = seconds_of("--timeout", options.timeout), .devices = devices, .each_device = true};
  Record found;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record& record) { found = record; };
  const CampaignResult result = run_campaign({&c, 1}, table, how, observer);
  fmt::print("{}", record_page(found, options.json));
  if (!options.json && result.compared > 0 && found.judgement.verdict == Verdict::pass)
    fmt::print("devices   the same bits on each of {}: {}\n", devices->all().size(), found.outputs);
  return exit_code_of(found.judgement.verdict);
}

/// Runs the kernel in a process of its own, so that a crash or a hang is a verdict here too.
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
  std::vector<Case> before = cases_before(options, table);
  for (const Case& other : before) (void)planned_record(other, table);
  if (options.shrink) {
    ShrunkCase shrunk =
        shrink_case(c, std::move(before), table,
                    {timeout, seconds_of("--shrink-budget", options.shrink_budget), !options.json});
    const Shrunk& small = shrunk.small;
    before = std::move(shrunk.after);
    const Verdict verdict = small.finding.judgement.verdict;
    if (verdict == Verdict::flaky || interrupted()) {
      const Record record = record_of(verdict == Verdict::flaky ? c : small.smallest, table, small.finding);
      fmt::print("{}", record_page(record, options.json));
      return exit_code_of(verdict);
    }
    c = small.smallest;
  }
  ScriptWords words;
  if (!options.script.file.empty()) {
    words = script_words(c, table, options.plugins);
    std::filesystem::remove(
        options.script.file);  // with --force; an old script would look like the script of this run
  }
  Judgement loss;
  PageOptions page{.timeout = timeout,
                   .json = options.json,
                   .card_budget = seconds_of("--card-budget", options.card_budget),
                   .table = &table,
                   .loss = &loss};
  if (const double budget = seconds_of("--deeper-budget", options.deeper_budget); budget > 0.0)
    page.deeper = [&, budget] { return deeper_apart(c, table, before, budget); };
  const int code = print_apart([&] { return repro_page(c, table, options, before, words); },
                               [&] { return planned_record(c, table); }, page);
  // A case that ended its process left no run, so the script contains only the call.
  if (code == kCrash && !words.call.empty() && !std::filesystem::exists(options.script.file)) {
    Record record = planned_record(c, table);
    record.judgement = loss;
    write_script(options.script, words, record, trace_without_run(Resolved(c), table), {});
    if (!options.json) fmt::print("script    {}\n", options.script.file);
  }
  return code;
}

/// Returns the worse of two exit codes: the one that must not be overlooked.
int worse(int a, int b) {
  constexpr std::array kOrder = {kCrash, kFail, kUsage, kFlaky, kVacuous, kPass, kNothingRan};
  const auto rank = [&](int code) { return std::find(kOrder.begin(), kOrder.end(), code) - kOrder.begin(); };
  return rank(a) < rank(b) ? a : b;
}

int run_repro(const ReproOptions& options) {
  const SubjectLog log(options.plugins,
                       options.line == "-" ? SubjectLog::Of::many_calls : SubjectLog::Of::one_line);
  const KernelTable table = kernel_table(options.plugins, {}, options.strict);
  // The processes of a line use the first of the named devices.
  std::unique_ptr<Devices> devices;
  if (!options.devices.empty() || options.each_device) devices = devices_of(options.devices, table);
  if (options.each_device) {
    require_each_device(devices.get());
    if (options.shrink || !options.dump.empty() || !options.script.file.empty() || !options.after.empty())
      throw Error(
          "--each-device runs a single line on each device; leave out --shrink, --dump, --script and "
          "--after");
  }
  // An existing path that is not a regular file is refused where the tensors would be written; opening a pipe
  // here would wait.
  if (std::error_code code; !options.dump.empty() && !std::filesystem::exists(options.dump, code))
    require_writable(options.dump);
  require_script_writable(options.script);
  if (!options.script.file.empty() && !options.after.empty())
    throw Error(
        "--script: one file shows a single case, so that the cases of --after, and the "
        "failure "
        "that they bring, would be missing; leave out --after, or give this command in the issue");
  if (options.line != "-") return repro_line(options, table, options.line, devices.get());
  if (!options.dump.empty()) throw Error("--dump: one file contains one run; name one line instead of -");
  if (!options.script.file.empty())
    throw Error("--script: one file shows one run; name one line instead of -");
  note_interrupts();
  int code = kNothingRan;
  std::int64_t number = 0;
  std::int64_t lines = 0;
  for (std::string line; !interrupted() && std::getline(std::cin, line);) {
    ++number;
    line = without_comment(line);
    if (line.empty()) continue;
    ++lines;
    try {
      code = worse(code, repro_line(options, table, line, devices.get()));
    } catch (const Error& error) {
      // If a line is wrong, the lines after it are run nevertheless.
      fmt::print(stderr, "samestate: line {} of stdin: {}\n", number, error.what());
      code = worse(code, kUsage);
      continue;
    }
    if (!options.json) fmt::print("\n");
    std::fflush(stdout);
  }
  if (lines == 0 && !interrupted())
    throw Error(
        "there was no case line on stdin, so nothing ran; write lines such as 'v1 SYSTEM key=value ...' to "
        "it");
  return code;
}

}  // namespace

Command add_repro(CLI::App& app) {
  auto options = std::make_shared<ReproOptions>();
  app.footer(
      "The line is what a failing case printed. Keys that it does not contain have their defaults:\n"
      "  form=chunked chunk=64 B=1 T=64 Hk=1 Hv=Hk dk=64 dv=dk contract=fp32 regime=normal state=none "
      "seed=0\n"
      "  heads=interleaved l2norm=0 scale=dk^-1/2 layout=dense final=apart unowned=0,0 repeat=0\n\n"
      "  samestate repro 'v1 gated_delta_rule chunk=16 T=65 dk=16 contract=bf16 regime=slow'\n"
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
                 "first run this case line, or the lines of this file, in the same process (repeatable)")
      ->take_all()
      ->allow_extra_args(false)
      ->check(named());
  app.add_flag("--shrink", options->shrink,
               "first shrink the case, and the cases of --after, as far as it still fails in the same way");
  app.add_option("--shrink-budget", options->shrink_budget, "time for shrinking")->capture_default_str();
  app.add_option("--timeout", options->timeout, "a run that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  app.add_option("--card-budget", options->card_budget,
                 "time to look for a contract near the case's under which a run that fails the twin passes "
                 "(0: do not look)")
      ->capture_default_str();
  app.add_flag("--deeper", options->deeper,
               "look a second time, more thoroughly, even at a line that passes; a vacuous line always "
               "gets a second look");
  app.add_option("--deeper-budget", options->deeper_budget, "time for the second look (0: no second look)")
      ->capture_default_str();
  app.add_option("--dump", options->dump, "write all tensors of the run to a safetensors file")
      ->check(named());
  add_script_options(app, options->script);
  return [options] { return run_repro(*options); };
}

}  // namespace samestate::cli
