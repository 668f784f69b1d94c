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
#include "cli/options.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "fuzz/mutants/plain_test.h"
#include "harness/cases/keys.h"
#include "harness/processes/workers.h"
#include "oracles/judge_policy.h"
#include "reports/records/summary.h"
#include "reports/text/aligned.h"

namespace samestate::cli {
namespace {

/// How far above the largest error that was measured a plain test is set: other orders of sums have other errors.
constexpr double kRoom = 2.0;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct ToleranceOptions {
  std::string line, kernel, timeout = "10m", mutants = "20s";
  std::vector<std::string> plugins;
  int seeds = 8;
  bool table = false, json = false;
};

/// The largest over the seeds, RMS over them.
struct Measured {
  OutputTolerance of;
  double rtol = 0.0, atol = 0.0;  ///< kRoom times what was measured
  double bound_atol = 0.0;        ///< that no correct kernel fails, by the gate's limits
  double rms_ratio = 0.0, bound_ratio = 0.0;
};

double ratio(double error, double size) {
  return size > 0.0 ? error / size : error > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

/// A power of two below which a relative error of the output's format lies.
double rtol_of(const Contract& contract, bool state) {
  const Format format = state ? contract.state : contract.output;
  return format == Format::bf16 ? 0x1p-7 : format == Format::fp16 ? 0x1p-10 : 0x1p-20;
}

/// Two digits, rounded up: a test is written by hand.
double rounded_up(double x) {
  if (!(x > 0.0) || !std::isfinite(x)) return x;
  const double step = std::pow(10.0, std::floor(std::log10(x)) - 1.0);
  return std::ceil(x / step - 1e-9) * step;
}

struct Study {
  std::vector<Measured> outputs;
  std::map<std::string, std::size_t> place;
  std::int64_t seeds = 0;
  TolerancesOfCase first;
  std::string failure = {};  ///< what the judge says of the first seed that fails; empty: none does
  std::string vacuous = {};  ///< why nothing can be judged, of each output; empty: of a seed something was

  [[nodiscard]] bool gives_tests() const { return failure.empty() && vacuous.empty(); }
  [[nodiscard]] Exit code() const { return !failure.empty() ? kFail : !vacuous.empty() ? kVacuous : kPass; }
};

/// Of a case of which nothing was judged on any seed: each output, and why no error of it would show.
std::string why_vacuous(const std::vector<Measured>& outputs) {
  std::vector<std::string> parts;
  for (const Measured& m : outputs) {
    const char* why = !(m.of.largest > 0.0)                ? "nothing but zeros is expected"
                      : !std::isfinite(m.of.limit.element) ? "the bound is infinite"
                                                           : "its bound is beyond what is expected";
    parts.push_back(fmt::format("{} ({})", m.of.output, why));
  }
  return fmt::format("nothing can be judged of {}: take more tokens, another contract or regime",
                     fmt::join(parts, ", "));
}

/// There is no device for the kernel.
class NothingRan : public Error {
 public:
  using Error::Error;
};

/// The case of the line and the next seeds. Throws Error where its kernel does not run here.
Study study_of(const Case& c, const KernelTable& table, int seeds) {
  Study study;
  const Contract& contract = *Resolved(c).contract;
  bool judged = false;
  for (int i = 0; i < seeds; ++i) {
    Case one = c;
    one.seed += static_cast<std::uint64_t>(i);
    TolerancesOfCase now = tolerances_of(one, table);
    if (now.outputs.empty()) {
      const std::string why = fmt::format("{}: {}; name another --kernel", now.record.kernel,
                                          judgement_line(now.record.judgement));
      if (now.record.judgement.verdict == Verdict::skipped) throw NothingRan(why);
      throw Error(why);
    }
    judged = judged || now.record.judgement.verdict != Verdict::vacuous;
    if (is_failure(now.record.judgement.verdict) && study.failure.empty())
      study.failure = fmt::format("seed {:#x}: {}", one.seed, judgement_line(now.record.judgement));
    for (std::size_t k = 0; k < now.outputs.size(); ++k) {
      const OutputTolerance& of = now.outputs[k];
      const auto [at, added] = study.place.try_emplace(of.output, study.outputs.size());
      if (added) study.outputs.push_back({of, rtol_of(contract, of.state)});
      Measured& m = study.outputs[at->second];
      const auto widest = [](double& a, double b) { a = std::isnan(b) ? b : std::max(a, b); };
      for (double OutputTolerance::*field : {&OutputTolerance::size, &OutputTolerance::largest,
                                             &OutputTolerance::predicted, &OutputTolerance::worst_case}) {
        widest(m.of.*field, of.*field);
      }
      for (double ErrorSize::*field : {&ErrorSize::rms, &ErrorSize::row, &ErrorSize::element}) {
        widest(m.of.measured.*field, of.measured.*field);
        widest(m.of.limit.*field, of.limit.*field);
      }
      widest(m.rms_ratio, kRoom * ratio(of.measured.rms, of.size));
      widest(m.bound_ratio, ratio(of.limit.rms, of.size));
    }
    for (std::size_t b = 0; b < now.expected.size(); ++b) {
      Measured& m = study.outputs[study.place.at(now.expected[b].output)];
      const Matrix<double> size = now.expected[b].values.cwiseAbs();
      const Matrix<double> error = (now.actual[b].values - now.expected[b].values).cwiseAbs();
      for (Index e = 0; e < size.size(); ++e) {
        m.atol = std::max(m.atol, kRoom * error.data()[e] - m.rtol * size.data()[e]);
        m.bound_atol = std::max(m.bound_atol, now.limits[b].data()[e] - m.rtol * size.data()[e]);
      }
    }
    if (i == 0) study.first = std::move(now);
    ++study.seeds;
    if (interrupted()) break;
  }
  for (Measured& m : study.outputs) {
    // What has no error at all is held to the last bit of its format.
    const double last_bit = m.of.largest * 0x1p-24;
    m.bound_atol = rounded_up(std::max(m.bound_atol, last_bit));
    m.bound_ratio = rounded_up(std::max(m.bound_ratio, 0x1p-24));
    // More than a correct kernel can make is no tight test: of an output that is rounded once the largest error is near
    // its bound, and twice that beyond.
    const auto at_most = [](double x, double bound) { return std::isfinite(bound) ? std::min(x, bound) : x; };
    m.atol = at_most(rounded_up(std::max(m.atol, last_bit)), m.bound_atol);
    m.rms_ratio = at_most(rounded_up(std::max(m.rms_ratio, 0x1p-24)), m.bound_ratio);
  }
  if (!judged) study.vacuous = why_vacuous(study.outputs);
  return study;
}

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

/// Why no mutant says what a plain test lets pass; empty: some do.
std::string nothing_tried(const Case& c, const BlindSpot& blind) {
  if (blind.tried > blind.same) return "";
  const std::string left = blind.unreached == 0 ? ""
                                                : fmt::format(
                                                      "; of {} others no time was left, give more "
                                                      "--mutants",
                                                      blind.unreached);
  if (blind.all == 0) return fmt::format("there is no mutant of {}", c.system);
  if (blind.tried > 0)
    return fmt::format("all of {} mutants tried give the right values on these data{}", blind.tried, left);
  if (blind.unreached == blind.all)
    return fmt::format("there was no time for any of {} mutants of {}, give --mutants", blind.all, c.system);
  return fmt::format("none of {} mutants of {} applies to a case of form={} contract={}{}",
                     blind.all - blind.unreached, c.system, c.form, c.contract, left);
}

std::string text_of(const Case& c, const Study& study, const BlindSpot& blind) {
  const Record& record = study.first.record;
  std::string out = fmt::format("case      {}\nkernel    {} on {}, {} seed(s) from {:#x} on: {}\n\n",
                                record.line, record.kernel, record.device, study.seeds, c.seed,
                                study.failure.empty() ? name_of(record.judgement.verdict) : "fail");
  std::vector<std::vector<std::string>> rows = {
      {"error of", "what", "RMS", "RMS / size", "row, 2-norm", "element", "element / size"}};
  for (const Measured& m : study.outputs) {
    const OutputTolerance& of = m.of;
    const auto row = [&](const char* what, double rms, double a_row, double element) {
      rows.push_back({of.output, what, figure(rms), relative(rms, of.size), figure(a_row), figure(element),
                      relative(element, of.size)});
    };
    row("expect: measured, the largest of the seeds", of.measured.rms, of.measured.row, of.measured.element);
    if (!std::isnan(of.predicted)) row("expect: predicted by the bound", of.predicted, kNaN, kNaN);
    row("at most: a correct kernel, by the gate", of.limit.rms, of.limit.row, of.limit.element);
    row("at most: any rounding, worst case", kNaN, of.worst_case, kNaN);
  }
  out += aligned(rows);
  out += "size: the RMS of what is expected:";
  for (const Measured& m : study.outputs) out += fmt::format(" {} {:.3g}", m.of.output, m.of.size);
  out += ". A row of a state is the state of a head (Frobenius norm).\n\n";
  if (!study.vacuous.empty()) return out + "vacuous: " + study.vacuous + "\n";
  if (!study.failure.empty()) {
    out += fmt::format(
        "plain tests, as tight as this kernel allows: none, since it fails and a test made from its errors "
        "would "
        "pass it\n  {}\n",
        study.failure);
  } else {
    out += fmt::format(
        "plain tests, as tight as this kernel allows ({:g} times the largest error of the seeds):\n", kRoom);
  }
  for (const Measured& m : study.failure.empty() ? study.outputs : std::vector<Measured>()) {
    out += fmt::format("  torch.testing.assert_close({0}, {0}_expected, rtol={1:.3g}, atol={2:.3g})\n",
                       m.of.output, m.rtol, m.atol);
    out += fmt::format("  assert ({0} - {0}_expected).norm() <= {1:.3g} * {0}_expected.norm()\n", m.of.output,
                       m.rms_ratio);
  }
  out += "plain tests that no correct kernel fails, by the gate's limits:\n";
  for (const Measured& m : study.outputs) {
    if (!std::isfinite(m.bound_atol)) {
      out += fmt::format("  {}: none, the bound says nothing here\n", m.of.output);
      continue;
    }
    out += fmt::format("  torch.testing.assert_close({0}, {0}_expected, rtol={1:.3g}, atol={2:.3g})",
                       m.of.output, m.rtol, m.bound_atol);
    out += fmt::format("    # or an RMS ratio of {:.3g}\n", m.bound_ratio);
  }
  if (!study.failure.empty()) return out;
  if (const std::string why = nothing_tried(c, blind); !why.empty())
    return out + "\nwhat the tight test cannot see is not known: " + why + "\n";
  const std::int64_t wrong = blind.tried - blind.same;
  out += fmt::format(
      "\nwhat the tight test cannot see, tried with {} of {} mutants of {} on this case's data ({}the others "
      "are of other forms or contracts):\n"
      "  let pass by assert_close    {}\n  let pass by the RMS ratio   {}\n"
      "  let pass by samestate here  {}; its whole gate lets none pass (docs/understand/score.md)\n"
      "  {} more give the right values on these data: no test of this case can see them\n",
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

/// Of a kernel that fails no test is derived, and of a vacuous case none at all.
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

std::string json_text(const Study& study, const BlindSpot& blind) {
  nlohmann::ordered_json out = {{"line", study.first.record.line},
                                {"kernel", study.first.record.kernel},
                                {"seeds", study.seeds},
                                {"failure", study.failure},
                                {"vacuous", study.vacuous},
                                {"outputs", nlohmann::ordered_json::array()}};
  for (const Measured& m : study.outputs) out["outputs"].push_back(json_of(m, study));
  out["mutants"] = {{"all", blind.all},
                    {"tried", blind.tried},
                    {"no_time_for", blind.unreached},
                    {"same_values", blind.same},
                    {"passed_by_assert_close", blind.close},
                    {"passed_by_rms_ratio", blind.by_rms},
                    {"passed_by_samestate_on_this_case", blind.judge}};
  return out.dump(2) + "\n";
}

/// One key at a time changed from the line's case: T, chunk, width, contract.
std::vector<std::pair<std::string, Case>> variations(const Case& c, const KernelTable& table) {
  std::vector<std::pair<std::string, Case>> out = {{"as the line", c}};
  const Resolved r(c);
  const System& system = *r.system;
  const auto put = [&](const std::string& part) {
    try {
      const Case other = with_keys(c, part);
      if (!(other == c) && possible(other) && system.work(other, kGatePolicy) <= 60.0)
        out.emplace_back(part, other);
    } catch (const Error&) {  // of a packed case, say, whose tokens are its lengths'
    }
  };
  for (const int T : {16, 64, 256, 1024}) put(fmt::format("T={}", T));
  if (r.form->chunked && c.chunk > 0) {
    for (const int chunk : {16, 32, 64, 128}) put(fmt::format("chunk={}", chunk));
  }
  // The width: of keys and values together, or the first size.
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

/// An exit code and what is printed.
std::string with_code(Exit code, const std::string& text) {
  return fmt::format("{}\n{}", static_cast<int>(code), text);
}

std::string table_text(const Case& c, const KernelTable& table, int seeds, bool json) {
  std::vector<std::vector<std::string>> rows = {{"changed", "output", "RMS / size", "predicted", "at most",
                                                 "element / size", "rtol", "atol", "RMS ratio"}};
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  std::string failures, vacuous;
  bool judged = false;
  for (const auto& [changed, other] : variations(c, table)) {
    if (interrupted()) break;
    const Study study = study_of(other, table, seeds);
    const bool fails = !study.failure.empty();
    if (fails)
      failures += fmt::format("fails, so that no test is made from it: {}: {}\n", changed, study.failure);
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
      fmt::format(
          "case      {}\n{}RMS and element are measured, the largest of {} seed(s); predicted and at most "
          "are the bound's; rtol, atol and RMS ratio leave {:g} times what was measured.\n",
          format_case(c), aligned(rows), seeds, kRoom) +
          failures + vacuous);
}

/// In a process of its own: a kernel of a plugin runs in it.
int run_tolerance(const ToleranceOptions& options) {
  Case c = parse_case(options.line);
  const SubjectLog log(options.plugins);
  const KernelTable table = table_for(kernel_table(options.plugins), c);
  if (!options.kernel.empty()) c.kernel = options.kernel;
  c = about_brought(std::move(c), table);
  require_promise(c, table);
  const double mutants = seconds_of("--mutants", options.mutants);
  note_interrupts();
  const JobResult done = run_interruptibly(
      [&]() -> std::string {
        try {
          if (options.table) return table_text(c, table, options.seeds, options.json);
          const Study study = study_of(c, table, options.seeds);
          const BlindSpot blind =
              study.gives_tests() ? blind_spot(c, study.first, rules_of(study), mutants) : BlindSpot();
          return with_code(study.code(), options.json ? json_text(study, blind) : text_of(c, study, blind));
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
  fmt::print(stderr, "samestate: interrupted: of fewer seeds or mutants than asked for\n");
  return kVacuous;
}

}  // namespace

Command add_tolerance(CLI::App& app) {
  auto options = std::make_shared<ToleranceOptions>();
  app.footer(
      "Of the case's contract, form and sizes: the error to expect (measured on this kernel over the seeds, "
      "and "
      "predicted by the bound\n"
      "where that is statistical), the largest that a correct kernel may have, and the rtol and atol or the "
      "RMS ratio "
      "that a plain\n"
      "test needs, with the share of the mutants that such a test lets pass on these data.\n\n"
      "  samestate tolerance 'v1 gated_delta_rule T=256 Hv=2 dk=64 contract=bf16'\n"
      "  samestate tolerance 'v1 rms_norm form=fused T=64 D=128 contract=bf16' --json\n"
      "  samestate tolerance 'v1 retention T=64 dk=32' --table          over T, chunk, width and contract\n\n"
      "A case of a few thousand tokens and channels takes seconds a seed, and the mutants up to 20 s more: "
      "--seeds 2, --mutants 0.\n\n"
      "Exit 0, 1 where the kernel fails on a seed, 2 for bad input, 3 where nothing can be judged or an "
      "interrupt left seeds or\nmutants out, 5 where it crashed.");
  app.add_option("line", options->line, "the case line, quoted")->required();
  app.add_option("--kernel", options->kernel, "measure this kernel instead of the one that the line names")
      ->check(named());
  add_plugin_option(app, options->plugins);
  app.add_option("--seeds", options->seeds, "seeds of data, from that of the line on")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--mutants", options->mutants, "time for the mutants (0: none)")->capture_default_str();
  app.add_flag("--table", options->table, "a row for each T, chunk, width and contract beside the line's");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_option("--timeout", options->timeout, "more time is a timeout (0: no limit)")
      ->capture_default_str();
  return [options] { return run_tolerance(*options); };
}

}  // namespace samestate::cli
