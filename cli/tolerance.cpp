#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/observed.h"
#include "cli/options.h"
#include "cli/rank_place.h"
#include "cli/study.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "fuzz/mutants/plain_test.h"
#include "harness/cases/keys.h"
#include "harness/processes/workers.h"
#include "oracles/judge_policy.h"
#include "reports/records/summary.h"
#include "reports/text/aligned.h"

namespace samestate::cli {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct ToleranceOptions {
  std::string line, kernel, timeout = "10m", mutants = "20s";
  std::string against;
  std::vector<std::string> plugins, observed;
  std::string norm = "max";
  int seeds = 8, threads = default_threads();
  bool table = false, json = false;
};

std::string figure(double x) { return std::isfinite(x) ? fmt::format("{:.3g}", x) : "-"; }
std::string relative(double x, double size) { return figure(ratio(x, size)); }

PlainRules rules_of(const Study& study) {
  PlainRules rules;
  for (const Measured& m : study.outputs) rules[m.of.output] = {m.rtol, m.atol, m.rms_ratio};
  return rules;
}

std::string percent(std::int64_t part, std::int64_t all) {
  return fmt::format("{} of {} ({:.0f} %)", part, all,
                     100.0 * static_cast<double>(part) / static_cast<double>(all));
}

/// Says why no mutant shows what a plain test lets pass; empty if some do.
std::string nothing_tried(const Case& c, const BlindSpot& blind) {
  if (blind.tried > blind.same) return "";
  const std::string left = blind.unreached == 0 ? ""
                                                : fmt::format(
                                                      "; no time was left for {} others, give more "
                                                      "--mutants",
                                                      blind.unreached);
  if (all_mutants().empty()) return "this build has no mutants to try";
  if (blind.all == 0) return fmt::format("there is no mutant of {}", c.system);
  if (blind.tried > 0)
    return fmt::format("all {} mutants that were tried give the right values on these data{}", blind.tried,
                       left);
  if (blind.unreached == blind.all)
    return fmt::format("there was no time for any of the {} mutants of {}; give more with --mutants",
                       blind.all, c.system);
  return fmt::format("none of the {} mutants of {} applies to a case of form={} contract={}{}",
                     blind.all - blind.unreached, c.system, c.form, c.contract, left);
}

/// Returns the lines that name the case, the kernels that ran and the number of seeds.
std::string head_of(const Case& c, const Study& study) {
  const Record& record = study.first.record;
  return fmt::format("case      {}\nkernel    {} on {}{}, {} seed(s) from {:#x} on: {}\n", record.line,
                     record.kernel, record.device,
                     study.other.empty() ? "" : fmt::format(", against {}", study.other), study.seeds, c.seed,
                     study.failure.empty() ? name_of(record.judgement.verdict) : "fail");
}

std::string text_of(const Case& c, const Study& study, const BlindSpot& blind, std::size_t columns) {
  const bool pair = !study.other.empty();
  std::string out = head_of(c, study) + "\n";
  std::vector<std::vector<std::string>> rows = {{pair ? "difference of" : "error of", "what", "RMS",
                                                 "RMS / size", "row, 2-norm", "element", "element / size"}};
  for (const Measured& m : study.outputs) {
    const OutputTolerance& of = m.of;
    const auto row = [&](const char* what, double rms, double a_row, double element) {
      rows.push_back({of.output, what, figure(rms), relative(rms, of.size), figure(a_row), figure(element),
                      relative(element, of.size)});
    };
    row("expect: measured, the largest of the seeds", of.measured.rms, of.measured.row, of.measured.element);
    if (!std::isnan(of.predicted)) row("expect: predicted by the bound", of.predicted, kNaN, kNaN);
    row(pair ? "at most: two correct kernels, by the gate" : "at most: a correct kernel, by the gate",
        of.limit.rms, of.limit.row, of.limit.element);
    row("at most: any rounding, worst case", kNaN, of.worst_case, kNaN);
  }
  out += aligned(rows, columns);
  out += "size: the RMS of what is expected:";
  for (const Measured& m : study.outputs) out += fmt::format(" {} {:.3g}", m.of.output, m.of.size);
  out += ". A row of a state is the state of a head (Frobenius norm).\n\n";
  if (!study.same_inputs)
    out +=
        "The two contracts round the data to different formats, and the difference includes the effect of "
        "that.\n\n";
  if (!study.vacuous.empty()) return out + "vacuous: " + study.vacuous + "\n";
  const std::string beside = pair ? "other" : "expected";
  if (!study.failure.empty()) {
    out += fmt::format(
        "plain tests, as tight as this kernel allows: none, because the kernel fails, and a test made from "
        "its "
        "errors would pass it\n  {}\n",
        study.failure);
  } else {
    out += fmt::format(
        "plain tests, as tight as this kernel allows ({:g} times the largest error of the seeds):\n", kRoom);
  }
  for (const Measured& m : study.failure.empty() ? study.outputs : std::vector<Measured>()) {
    out += fmt::format("  torch.testing.assert_close({0}, {0}_{3}, rtol={1:.3g}, atol={2:.3g})\n",
                       m.of.output, m.rtol, m.atol, beside);
    out += fmt::format("  assert ({0} - {0}_{2}).norm() <= {1:.3g} * {0}_{2}.norm()\n", m.of.output,
                       m.rms_ratio, beside);
  }
  out += "plain tests that no correct kernel fails, by the gate's limits:\n";
  for (const Measured& m : study.outputs) {
    if (!std::isfinite(m.bound_atol)) {
      out += fmt::format("  {}: none, because there is no finite bound for it\n", m.of.output);
      continue;
    }
    out += fmt::format("  torch.testing.assert_close({0}, {0}_{3}, rtol={1:.3g}, atol={2:.3g})", m.of.output,
                       m.rtol, m.bound_atol, beside);
    out += fmt::format("    # or an RMS ratio of {:.3g}\n", m.bound_ratio);
  }
  if (!study.failure.empty() || pair) return out;
  if (const std::string why = nothing_tried(c, blind); !why.empty())
    return out + "\nwhat the tight test cannot see is not known: " + why + "\n";
  const std::int64_t wrong = blind.tried - blind.same;
  out += fmt::format(
      "\nwhat the tight test cannot see, tried with {} of {} mutants of {} on this case's data ({}the others "
      "belong to other forms or contracts):\n"
      "  let pass by assert_close    {}\n  let pass by the RMS ratio   {}\n"
      "  let pass by samestate here  {}; its whole gate lets none pass (docs/understand/score.md)\n"
      "  {} more give the right values on these data, so that no test of this case can see them\n",
      blind.tried, blind.all, c.system,
      blind.unreached == 0 ? "" : fmt::format("no time was left for {}, ", blind.unreached),
      percent(blind.close, wrong), percent(blind.by_rms, wrong), percent(blind.judge, wrong), blind.same);
  for (const std::string& example : blind.examples) out += "  missed, as " + example + "\n";
  return out;
}

nlohmann::ordered_json json_of(double x) {
  if (std::isfinite(x)) return x;
  return nullptr;
}

/// Leaves out the tests that the kernel's errors would give if it fails, and all tests if the case is vacuous.
nlohmann::ordered_json json_of(const Measured& m, const Study& study) {
  const auto tight = [&](double x) { return json_of(study.gives_tests() ? x : kNaN); };
  const auto safe = [&](double x) { return json_of(study.vacuous.empty() ? x : kNaN); };
  const auto sizes = [](const ErrorSize& e) {
    return nlohmann::ordered_json{
        {"rms", json_of(e.rms)}, {"row", json_of(e.row)}, {"element", json_of(e.element)}};
  };
  return {{"output", m.of.output},
          {"size", json_of(m.of.size)},
          {"largest", json_of(m.of.largest)},
          {"measured", sizes(m.of.measured)},
          {"predicted_rms", json_of(m.of.predicted)},
          {"limit", sizes(m.of.limit)},
          {"worst_case_row", json_of(m.of.worst_case)},
          {"rtol", json_of(m.rtol)},
          {"atol", tight(m.atol)},
          {"rms_ratio", tight(m.rms_ratio)},
          {"bound_atol", safe(m.bound_atol)},
          {"bound_rms_ratio", safe(m.bound_ratio)}};
}

std::string json_text(const Study& study, const BlindSpot& blind,
                      const std::vector<ObservedAnswer>& answers) {
  nlohmann::ordered_json out = {{"line", study.first.record.line},
                                {"kernel", study.first.record.kernel},
                                {"against", study.other},
                                {"seeds", study.seeds},
                                {"failure", study.failure},
                                {"vacuous", study.vacuous},
                                {"outputs", nlohmann::ordered_json::array()}};
  for (const Measured& m : study.outputs) out["outputs"].push_back(json_of(m, study));
  for (const ObservedAnswer& answer : answers)
    out["observed"].push_back({{"output", answer.output},
                               {"norm", name_of(answer.norm)},
                               {"observed", json_of(answer.observed)},
                               {"expected", json_of(answer.expected)},
                               {"allowed", json_of(answer.allowed)},
                               {"answer", answer.word()},
                               {"sentence", answer.sentence}});
  out["mutants"] = {{"all", blind.all},
                    {"tried", blind.tried},
                    {"no_time_for", blind.unreached},
                    {"same_values", blind.same},
                    {"passed_by_assert_close", blind.close},
                    {"passed_by_rms_ratio", blind.by_rms},
                    {"passed_by_samestate_on_this_case", blind.judge}};
  return out.dump(2) + "\n";
}

/// Returns the line's case and cases that differ from it in one key each: T, chunk, width or contract.
std::vector<std::pair<std::string, Case>> variations(const Case& c, const KernelTable& table) {
  std::vector<std::pair<std::string, Case>> out = {{"as the line", c}};
  const Resolved r(c);
  const System& system = *r.system;
  const auto put = [&](const std::string& part) {
    try {
      const Case other = with_keys(c, part);
      if (!(other == c) && possible(other) && system.work(other, kGatePolicy) <= 60.0)
        out.emplace_back(part, other);
    } catch (const Error&) {  // for example a packed case, whose lengths determine T
    }
  };
  for (const int T : {16, 64, 256, 1024}) put(fmt::format("T={}", T));
  if (r.form->chunked && c.chunk > 0) {
    for (const int chunk : {16, 32, 64, 128}) put(fmt::format("chunk={}", chunk));
  }
  // The width is that of keys and values together, or else the system's first size.
  const bool key_width = std::any_of(system.sizes.begin(), system.sizes.end(),
                                     [](const CaseSize& size) { return size.name == "dk"; });
  for (const int width : {32, 64, 128, 256}) {
    if (key_width) {
      put(fmt::format("dk={0} dv={0}", width));
    } else if (!system.sizes.empty()) {
      put(fmt::format("{}={}", system.sizes.front().name, width));
    }
  }
  for (const std::string& contract : table.choose(r).named->contracts) put("contract=" + contract);
  return out;
}

/// Returns the exit code followed by the text to print, which is how the measuring process answers.
std::string with_code(Exit code, const std::string& text) {
  return fmt::format("{}\n{}", static_cast<int>(code), text);
}

std::string table_text(const Case& c, const KernelTable& table, const StudyOptions& options, bool json,
                       std::size_t columns) {
  std::vector<std::vector<std::string>> rows = {{"changed", "output", "RMS / size", "predicted", "at most",
                                                 "element / size", "rtol", "atol", "RMS ratio"}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string failures, vacuous;
  bool judged = false;
  for (const auto& [changed, other] : variations(c, table)) {
    if (interrupted()) break;
    const Study study = study_of(other, table, options);
    const bool fails = !study.failure.empty();
    if (fails) failures += fmt::format("fails, so no test is made from it: {}: {}\n", changed, study.failure);
    if (!study.vacuous.empty()) vacuous += fmt::format("vacuous: {}: {}\n", changed, study.vacuous);
    judged = judged || study.vacuous.empty();
    for (const Measured& m : study.outputs) {
      const OutputTolerance& of = m.of;
      rows.push_back({changed, of.output, relative(of.measured.rms, of.size), relative(of.predicted, of.size),
                      relative(of.limit.rms, of.size), relative(of.measured.element, of.size), figure(m.rtol),
                      figure(study.gives_tests() ? m.atol : kNaN),
                      figure(study.gives_tests() ? m.rms_ratio : kNaN)});
      nlohmann::ordered_json row = json_of(m, study);
      row["failure"] = study.failure;
      row["vacuous"] = study.vacuous;
      row["changed"] = changed;
      row["line"] = study.first.record.line;
      list.push_back(std::move(row));
    }
  }
  const Exit code = !failures.empty() ? kFail : judged ? kPass : kVacuous;
  if (json) return with_code(code, list.dump(2) + "\n");
  return with_code(
      code,
      fmt::format("case      {}\n{}RMS and element are the largest that were measured over {} seed(s); "
                  "predicted and at "
                  "most come from the bound; rtol, atol and RMS ratio allow {:g} times what was measured.\n",
                  format_case(c), aligned(rows, columns), options.seeds, kRoom) +
          failures + vacuous);
}

/// Measures in a process of its own, because a plugin's kernel runs in it.
int run_tolerance(const ToleranceOptions& options) {
  Case c = parse_case(options.line);
  const SubjectLog log(options.plugins);
  const KernelTable table = table_for(kernel_table(options.plugins), c);
  if (!options.kernel.empty()) c.kernel = options.kernel;
  c = about_brought(std::move(c), table);
  require_promise(c, table);
  const std::vector<Observed> observed = observed_of(options.observed);
  StudyOptions how{options.seeds, options.threads};
  if (!options.against.empty()) {
    how.against = about_brought(other_case(c, options.against), table);
    require_promise(*how.against, table);
  }
  if (planned_record(c, table).device != "cpu") how.threads = 1;
  if (options.table && (how.against || !observed.empty()))
    throw Error(
        "--table prints many settings, but --observed and --against ask about one: leave one of them out");
  const double mutants = seconds_of("--mutants", options.mutants);
  const std::size_t columns = columns_of_stdout();  // asked here, since the measuring process has no terminal
  note_interrupts();
  const JobResult done = run_interruptibly(
      [&]() -> std::string {
        try {
          if (options.table) return table_text(c, table, how, options.json, columns);
          const Study study = study_of(c, table, how);
          const std::vector<ObservedAnswer> answers = answers_of(observed, norm_named(options.norm), study);
          if (!answers.empty() && !options.json)
            return with_code(code_of(answers),
                             laid_out(head_of(c, study) + observed_text(answers), columns, false));
          // Mutants are compared with the expected values; with --against, another kernel takes their place.
          const bool blinded = study.gives_tests() && answers.empty() && study.other.empty();
          const BlindSpot blind =
              blinded ? blind_spot(c, study.first, rules_of(study), mutants) : BlindSpot();
          const Exit code = answers.empty() ? study.code() : code_of(answers);
          return with_code(
              code, options.json ? json_text(study, blind, answers) : text_of(c, study, blind, columns));
        } catch (const NothingRan& nothing) {
          return with_code(kNothingRan, fmt::format("samestate: {}\n", nothing.what()));
        }
      },
      seconds_of("--timeout", options.timeout));
  if (const std::optional<Judgement> lost = judgement_of_loss(done)) {
    fmt::print(stderr, "samestate: {}\n", judgement_line(*lost));
    return exit_code_of(lost->verdict);
  }
  const std::size_t end = done.text.find('\n');
  const int code = std::stoi(done.text.substr(0, end));
  fmt::print(code == kNothingRan ? stderr : stdout, "{}", std::string_view(done.text).substr(end + 1));
  if (!interrupted() || code != kPass) return code;
  fmt::print(stderr, "samestate: interrupted: the result is of fewer seeds or mutants than asked for\n");
  return kVacuous;
}

}  // namespace

Command add_tolerance(CLI::App& app) {
  auto options = std::make_shared<ToleranceOptions>();
  app.footer(
      "Prints three things about the errors of the case: the error to expect (measured on this kernel over "
      "the seeds, and predicted by the bound where the bound is statistical); the largest error that a "
      "correct kernel may have; and the rtol and atol, or the RMS ratio, that a plain test needs, with the "
      "share of the mutants that such a test lets pass on these data.\n\n"
      "  samestate tolerance 'v1 gated_delta_rule T=256 Hv=2 dk=64 contract=bf16'\n"
      "  samestate tolerance 'v1 rms_norm form=fused T=64 D=128 contract=bf16' --json\n"
      "  samestate tolerance 'v1 retention T=64 dk=32' --table          for other T, chunk, width and "
      "contract\n"
      "  samestate tolerance LINE --observed 0.02                       is an error of 0.02 right?\n"
      "  samestate tolerance LINE --against form=recurrent --observed 0.02\n\n"
      "A case of a few thousand tokens and channels takes some seconds per seed, and the mutants take up to "
      "20 s more; --seeds 2 and --mutants 0 make it faster.\n\n"
      "The exit code is 0 if all is well, 1 if the kernel fails on a seed or an observed error is wrong, 2 "
      "for bad input, 3 if nothing can be judged or an interrupt left out seeds or mutants, and 5 if the "
      "kernel crashed.");
  app.add_option("line", options->line, "the case line, quoted")->required();
  app.add_option("--kernel", options->kernel, "measure this kernel instead of the one that the line names")
      ->check(named());
  add_plugin_option(app, options->plugins);
  app.add_option("--seeds", options->seeds,
                 "number of seeds of the data, beginning with the seed of the line")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--mutants", options->mutants, "time for running the mutants (0: run none)")
      ->capture_default_str();
  app.add_option(
         "--observed", options->observed,
         "an error that you measured, either ERROR of the first output or OUTPUT=ERROR (repeatable); says "
         "whether it is as expected, allowed or wrong")
      ->take_all()
      ->allow_extra_args(false)
      ->check(named());
  app.add_option("--norm", options->norm,
                 "how --observed was measured: max, the largest error of an element; rms, the root of the "
                 "errors' mean "
                 "square; rel, the 2-norm of the errors divided by that of the output")
      ->capture_default_str()
      ->check(CLI::IsMember({"max", "rms", "rel"}));
  app.add_option("--against", options->against,
                 "compare with a second kernel on the same data instead of with the equations; give the keys "
                 "in which "
                 "its line differs, such as 'form=recurrent contract=fp32'")
      ->check(named());
  app.add_flag("--table", options->table,
               "print a row for the line and for other values of T, chunk, width and contract");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_option("--threads", options->threads, "number of seeds that run at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options->timeout, "a run that takes longer is a timeout (0: no limit)")
      ->capture_default_str();
  return [options] { return run_tolerance(*options); };
}

}  // namespace samestate::cli
