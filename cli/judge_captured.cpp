#include "cli/judge_captured.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/explained.h"
#include "cli/options.h"
#include "fixtures/quote.h"
#include "harness/captured/judge_captured.h"
#include "harness/systems/saved_run.h"
#include "reference/error.h"
#include "reports/text/gate_json.h"

namespace samestate::cli {
namespace {

namespace fs = std::filesystem;

/// Returns the folder's calls, with the declarations of their functions as the command line changes them.
CapturedFolder declared(const fs::path& folder, const CapturedOptions& options) {
  CapturedFolder out = read_captured(folder);
  const std::string path = folder.string();
  if (!options.function.empty()) {
    std::erase_if(out.calls, [&](const CapturedCall& call) { return call.function != options.function; });
    if (out.calls.empty()) {
      std::vector<std::string_view> names;
      for (const auto& [name, unused] : out.functions) names.push_back(name);
      throw Error(fmt::format("--function {}: no call of it in {}; there are {}", options.function, path,
                              fmt::join(names, ", ")));
    }
  }
  if (options.system.empty() != options.form.empty())
    throw Error("give --system and --form together: what the function computes, and in which form");
  std::map<std::string, std::string, std::less<>> arguments;
  for (const std::string& pair : options.arguments) {
    const std::size_t equals = pair.find('=');
    if (equals == 0 || equals == pair.npos || equals + 1 == pair.size())
      throw Error(fmt::format("--argument {}: write OURS=THEIRS, for example q=query", quote(pair, 60)));
    arguments[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  for (auto& [name, function] : out.functions) {
    const bool asked =
        std::ranges::any_of(out.calls, [&](const CapturedCall& c) { return c.function == name; });
    if (!asked) continue;
    if (options.system.empty()) {
      if (!function.declaration)
        throw Error(
            fmt::format("{}: it is not declared what {} computes; give --system and --form, and its "
                        "conventions, or run `python3 -m samestate.capture --declare {} --adapter NAME`",
                        path, name, path));
      if (!options.conventions.empty())
        throw Error(fmt::format(
            "--{}: {} was declared when it was captured; give --system and --form too to replace that "
            "declaration",
            options.conventions.begin()->first, name));
    } else {
      nlohmann::json json{{"name", fmt::format("captured.{}.{}", options.system, options.form)},
                          {"system", options.system},
                          {"form", options.form},
                          {"contracts", {options.contract.empty() ? "fp32" : options.contract}},
                          {"conventions", options.conventions}};
      if (const auto epsilon = options.conventions.find("l2norm_epsilon");
          epsilon != options.conventions.end()) {
        const nlohmann::json number =
            nlohmann::json::parse(epsilon->second, nullptr, /*allow_exceptions=*/false);
        if (!number.is_number())
          throw Error(
              fmt::format("--l2norm-epsilon {}: write a number, such as 1e-6", quote(epsilon->second, 40)));
        json["conventions"]["l2norm_epsilon"] = number;
      }
      function.declaration = captured_declaration(json.dump());
      function.arguments.clear();
      function.options.clear();
    }
    for (const auto& [ours, theirs] : arguments) function.arguments[ours] = theirs;
  }
  return out;
}

/// Returns lines such as "o: max abs 3e-7 at sequence 0, head 1, token 2, column 3; relative RMS 2e-7; a right kernel:
/// max abs 1e-6, ..".
std::string numbers_line(const std::map<std::string, double>& numbers, const std::string& prefix) {
  const auto of = [&](const std::string& name) { return numbers.at(prefix + name); };
  if (!numbers.contains(prefix + "max_abs")) return "";
  const bool state = !prefix.empty();
  const auto place = [&](const std::string& at) {
    return fmt::format("sequence {}, head {}, {} {}, column {}", of(at + "_sequence"), of(at + "_head"),
                       state ? "row" : "token", of(at + (state ? "_row" : "_token")), of(at + "_column"));
  };
  std::string out;
  if (numbers.contains(prefix + "not_finite"))
    out = fmt::format("  {:<12}{} value(s) not finite, the first at {}; of the others\n",
                      state ? "final state" : "o", of("not_finite"), place("not_finite"));
  out += fmt::format("  {:<12}max abs {:.3g} at {}; relative RMS {:.3g}\n",
                     out.empty() ? state ? "final state" : "o" : "", of("max_abs"), place("at"),
                     of("relative_rms"));
  if (!numbers.contains(prefix + "allowed_max_abs")) return out;
  out += fmt::format(
      "  {:<12}max abs {:.3g}, relative RMS {:.3g} ({:.3g} expected): a right kernel stays within\n",
      "allowed", of("allowed_max_abs"), of("allowed_relative_rms"), of("expected_relative_rms"));
  return out;
}

/// Describes what the failing gate compares, with its own error and limit. The allowed values above it are those of all
/// heads together, and one head may have a far smaller limit.
std::string gate_text(const Judgement& j) {
  if (!(j.bound > 0.0) || j.worst.head < 0) return "";
  const std::string head = fmt::format("sequence {}, head {}", j.worst.sequence, j.worst.head);
  if (j.gate.ends_with("state"))
    return fmt::format(
        "  gate        the state of {}: error {:.3g} of {:.3g} allowed (root of the squares' sum)\n", head,
        j.error, j.bound);
  if (j.gate == "head")
    return fmt::format("  gate        o of {}: RMS of the error {:.3g} of {:.3g} allowed\n", head, j.error,
                       j.bound);
  return j.gate == "row" ? fmt::format(
                               "  gate        o of {}, token {}: error {:.3g} of {:.3g} allowed (root of the "
                               "squares' sum)\n",
                               head, j.worst.token, j.error, j.bound)
                         : "";
}

/// Appends to the reason of a failure what the values look like, if the call is short enough to be evaluated in full.
void explain_call(Judgement& judgement, const fs::path& folder, const CapturedCall& call,
                  const CapturedFunction& function, const CapturedWords& words) {
  constexpr double kSeconds = 5.0;
  if (judgement.verdict != Verdict::fail || judgement.gate == "outputs" || judgement.gate == "memory") return;
  try {
    const std::optional<RunFile> run = captured_run(folder, call, function, words);
    if (!run) return;
    Trace trace;
    (void)judge_run_file(*run, &trace);
    const Explanation e = explain_with_mutants(Resolved(parse_case(run->case_line)), trace, kSeconds);
    if (!e.patterns.empty()) judgement.reason += "; it looks like this: " + e.patterns.front();
  } catch (const Error&) {
    return;  // the contract's own kernels do not take such an input, so the failure is not explained
  }
}

void print_call(const JudgedCase& judged) {
  const auto& [record, call] = judged;
  const Judgement& j = record.judgement;
  const bool compared = is_judged(j.verdict) || j.verdict == Verdict::vacuous;
  fmt::print("{}  {}  {}{}\n  {}\n", call.file, record.kernel, name_of(j.verdict),
             compared && j.ratio > 0 ? fmt::format("  ratio {:.3g} ({})", j.ratio, j.gate) : "", record.line);
  fmt::print("{}{}", numbers_line(call.numbers, ""), numbers_line(call.numbers, "state_"));
  if (j.verdict == Verdict::fail && !call.numbers.empty()) fmt::print("{}", gate_text(j));
  if (call.numbers.empty() && compared && j.worst.sequence >= 0)
    fmt::print(
        "  worst       {:.6g} instead of {:.6g} at sequence {}, row {}, column {}: error {:.3g} of {:.3g} "
        "allowed\n",
        j.actual, j.expected, j.worst.sequence, j.worst.token, j.worst.channel, j.error, j.bound);
  if (!j.held_which.empty())
    fmt::print("  held        {} of {} heads: {}\n", j.held, j.held_of, j.held_which);
  if (j.verdict != Verdict::pass) fmt::print("  reason      {}\n", j.reason);
}

}  // namespace

bool CapturedOptions::any() const {
  return !system.empty() || !form.empty() || !contract.empty() || !function.empty() || chunk > 0 ||
         !conventions.empty() || !arguments.empty() || !ignored.empty();
}

void add_captured_options(CLI::App& app, CapturedOptions& options) {
  const char* const group = "Captured calls (a folder of samestate.capture)";
  app.add_option("--system", options.system,
                 "what the function computes: a system of `samestate list systems`")
      ->check(named())
      ->group(group);
  app.add_option("--form", options.form, "form; chunked or recurrent for the recurrent family")
      ->check(named())
      ->group(group);
  app.add_option("--contract", options.contract,
                 "the contract that says what it rounds (default: the first declared one with the recorded "
                 "dtypes)")
      ->check(named())
      ->group(group);
  app.add_option("--chunk", options.chunk, "tokens per chunk, if the call does not say it")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->group(group);
  // The keys of a declaration's conventions that a recorded call may have.
  for (const Convention& row : conventions()) {
    if (row.of != ConventionOf::family) continue;
    std::vector<std::string_view> values;
    for (const ConventionValue& value : row.values) values.push_back(value.word);
    std::string option = "--" + std::string(row.key);
    std::ranges::replace(option, '_', '-');
    app.add_option_function<std::string>(
           option,
           [&options, key = std::string(row.key)](const std::string& value) {
             options.conventions[key] = value;
           },
           fmt::format("{}: {}", row.about, fmt::join(values, ", ")))
        ->check(named())
        ->group(group);
  }
  app.add_option("--argument", options.arguments, "the function's name of an argument: q=query")
      ->check(named())
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--ignore", options.ignored, "an argument that does not affect the result")
      ->check(named())
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--function", options.function, "only calls of this function of the folder")
      ->check(named())
      ->group(group);
  app.add_option("--budget", options.budget,
                 "time of one core for each call; a call that takes longer is judged in part, and its result "
                 "says which part")
      ->capture_default_str()
      ->group(group);
}

int judge_captured_folder(const JudgeFolderOptions& folder, const CapturedOptions& options) {
  const fs::path path(folder.folder);
  const CapturedFolder found = declared(path, options);
  if (found.calls.empty()) {
    fmt::print(stderr,
               "samestate: {}: no call was recorded: the function was never called, or not through the name "
               "that capture replaced\n",
               folder.folder);
    return kVacuous;
  }
  const double budget = seconds_of("--budget", options.budget);
  CapturedWords words{options.contract, options.chunk, {options.ignored.begin(), options.ignored.end()}};
  std::vector<FolderCase> cases;
  std::vector<std::string> damaged, complaints;
  for (const CapturedCall& call : found.calls) {
    const CapturedFunction& function = found.functions.at(call.function);
    const std::string file = (path / call.file).string();
    Record record;
    record.kernel = function.declaration->name;
    record.system = function.declaration->system, record.form = function.declaration->form;
    record.device = "elsewhere";
    std::string unlike, unread;
    try {
      const Case c = captured_case(path, call, function, words);
      record.line = format_case(c);
      record.form = c.form, record.contract = c.contract, record.regime = c.regime;
    } catch (const CapturedMismatch& other) {
      unlike = other.what();
      record.line = fmt::format("call {} of {}", call.number, call.function);
    } catch (const Error& error) {
      unread = error.what();
    }
    // A file that is cut off or missing says nothing about the other calls.
    if (!unread.empty()) {
      damaged.push_back(call.file), complaints.push_back(unread);
      continue;
    }
    cases.push_back({std::move(record), file,
                     [&, unlike](Record& judged) {
                       std::map<std::string, double> numbers;
                       const auto begin = std::chrono::steady_clock::now();
                       try {
                         if (!unlike.empty()) throw CapturedMismatch(unlike);
                         CapturedJudgement result = judge_captured(path, call, function, words, budget);
                         judged.judgement = std::move(result.judgement);
                         judged.policy = std::move(result.policy);
                         numbers = std::move(result.numbers);
                         explain_call(judged.judgement, path, call, function, words);
                       } catch (const CapturedMismatch& other) {
                         judged.judgement.verdict = Verdict::unsupported;
                         judged.judgement.reason = other.what();
                       }
                       judged.seconds =
                           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
                       return numbers;
                     },
                     call.file});
  }
  if (cases.empty()) throw Error(complaints.front());
  for (const std::string& complaint : complaints) fmt::print(stderr, "samestate: {}\n", complaint);
  JudgeFolderOptions how = folder;
  how.nothing_judged = kVacuous;  // there were calls, but none was judged
  if (!damaged.empty())
    how.damaged = fmt::format("{} of {} calls cannot be read: {}", damaged.size(), found.calls.size(),
                              fmt::join(damaged, " "));
  const JudgedFolder judged = judge_cases(how, std::move(cases));
  if (folder.json) {
    fmt::print("{}", gate_json(judged.records(), judged.end));
    return judged.end.exit;
  }
  std::map<Verdict, std::int64_t> verdicts;
  for (const JudgedCase& one : judged.cases) {
    print_call(one);
    ++verdicts[one.record.judgement.verdict];
  }
  std::vector<std::string> counts;
  for (const auto& [verdict, count] : verdicts)
    counts.push_back(fmt::format("{} {}", name_of(verdict), count));
  fmt::print("{} of {} calls in {:.1f} s: {}\n", judged.cases.size(), found.calls.size(), judged.end.seconds,
             fmt::join(counts, ", "));
  if (found.unfinished > 0)
    fmt::print("{} line(s) of the manifest are cut off: the program was killed as it wrote them\n",
               found.unfinished);
  if (!judged.end.not_complete.empty()) fmt::print("{}\n", judged.end.not_complete);
  return judged.end.exit;
}

}  // namespace samestate::cli
