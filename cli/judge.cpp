#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "cli/case_page.h"
#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/explained.h"
#include "cli/judge_captured.h"
#include "cli/judge_folder.h"
#include "cli/options.h"
#include "cli/table.h"
#include "fixtures/run_file.h"
#include "harness/card/neighbours.h"
#include "harness/processes/line_process.h"
#include "harness/systems/saved_run.h"
#include "oracles/numbers.h"

namespace samestate::cli {
namespace {

/// Prints one line for each tensor that a run file of the case contains.
int print_tensors(const std::string& line) {
  const Resolved r(parse_case(line));
  for (const NamedShape& tensor : tensors_in_file(r))
    fmt::print("{:<24} [{}]{}\n", tensor.name, fmt::join(tensor.shape, ", "),
               tensor.optional ? "  or none" : "");
  return kPass;
}

/// Returns remarks about inputs that are judged as they stand although they are seldom intended: a decay that grows, or
/// a strength outside of [0, 2].
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
      "The file is a safetensors file as `samestate repro --dump` writes it, with metadata "
      "format=samestate-run-1, case and\n"
      "kernel, and with tensors q k v o and, if the case has them, g beta initial_state cu_seqlens "
      "final_state. For a system\n"
      "of named tensors all tensors are input.NAME and output.NAME, [B, ...] except for weights; "
      "under form=decode the\n"
      "metadata also has form, the form that was called; under taps=1 there is tap.NAME for each "
      "tap that the kernel handed\n"
      "out. Tensors are F32 or F64. System, form, chunk, sizes and contract are those of the case "
      "line; the data are those of\n"
      "the file, whatever regime or seed the line names.\n"
      "\n"
      "A folder of samestate.capture (python3 -m samestate.capture --target MODULE:FUNCTION --dir "
      "calls -- command ...)\n"
      "contains real calls of a program. Each is compared with float64 on its own data: the report "
      "shows the error, where it\n"
      "is, and the limits for a correct kernel of the contract. What the function computes is "
      "declared when it is captured, or\n"
      "here with the options of a subject.\n"
      "\n"
      "  samestate judge run.safetensors\n"
      "  samestate judge --tensors 'v1 rms_norm form=fused T=8'      show which tensors it needs, of which "
      "shape\n"
      "  samestate judge calls                       judge real calls, recorded by samestate.capture\n"
      "  samestate judge calls --system gated_delta_rule --form chunked --contract bf16 --state vk "
      "--decay linear\n"
      "  samestate judge --flashinfer-bench DIR --solution FILE      a Solution, its traces "
      "(docs/lookup/subjects.md)");
  auto* path =
      app.add_option("file", *file, "the run file, or a folder of `samestate export` or samestate.capture");
  auto* names =
      app.add_option("--tensors", *line, "print the tensors that a run file of this case line contains");
  names->excludes(path);
  app.add_option("--timeout", *timeout, "a file that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "machine-readable");
  auto strict = std::make_shared<bool>(false);
  app.add_flag("--strict", *strict, kStrictHelp);
  auto budget = std::make_shared<std::string>("20s");
  app.add_option("--card-budget", *budget,
                 "time to look for a contract under which a run that fails the twin passes (0: do not look)")
      ->capture_default_str();
  auto reports = std::make_shared<JudgeFolderOptions>();
  app.add_option("--jsonl", reports->jsonl, "for a folder: write every case as JSON Lines")->check(named());
  app.add_option("--junit", reports->junit, "for a folder: write JUnit XML")->check(named());
  app.add_option("--markdown", reports->markdown, "for a folder: write a Markdown summary")->check(named());
  auto captured = std::make_shared<CapturedOptions>();
  add_captured_options(app, *captured);
  return [file, line, timeout, names, path, json, strict, budget, reports, captured] {
    if (names->count() > 0) return print_tensors(*line);
    if (path->count() == 0) throw Error("judge: name a run file, or --tensors and a case line");
    if (std::filesystem::is_directory(*file)) {
      reports->folder = *file, reports->json = *json, reports->strict = *strict;
      reports->timeout = seconds_of("--timeout", *timeout);
      if (has_captured_calls(*file)) return judge_captured_folder(*reports, *captured);
      if (captured->any())
        throw Error(*file +
                    ": there is no calls.jsonl in it; the options of captured calls need a folder that "
                    "samestate.capture wrote");
      return judge_folder(*reports);
    }
    if (captured->any())
      throw Error("the options of captured calls need a folder that samestate.capture wrote");
    if (!reports->jsonl.empty() || !reports->junit.empty() || !reports->markdown.empty())
      throw Error("--jsonl, --junit and --markdown need a folder; for a single file, use --json");
    // A user who has a folder of calls may try one of its files first.
    if (const std::filesystem::path parent = std::filesystem::absolute(*file).parent_path();
        std::filesystem::path(*file).filename().string().starts_with("call-") && has_captured_calls(parent))
      throw Error(
          fmt::format("{}: this is a call that samestate.capture recorded, and calls.jsonl in its folder "
                      "describes it; run "
                      "samestate judge {}",
                      *file, shell_quoted(parent.string())));
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
        if (asked) lists.contract = neighbours_of(r, trace, seconds_of("--card-budget", *budget)).text();
        return with_code(case_json(record, lists), record.judgement.verdict);
      }
      Page page;
      add_record(page, record);
      for (const std::string& note : unusual_inputs(run)) page.line("note      {}", note);
      add_explanation(page, e);
      return with_code(page.text(), record.judgement.verdict, asked ? run_left_in(run) : "");
    };
    return print_apart(judged,
                       [&] {
                         Record record;
                         record.line = "of " + *file;
                         record.kernel = record.device = "unknown";
                         return record;
                       },
                       {.timeout = seconds_of("--timeout", *timeout),
                        .json = *json,
                        .card_budget = seconds_of("--card-budget", *budget)});
  };
}

}  // namespace samestate::cli
