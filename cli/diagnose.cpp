#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/probe_apart.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "fuzz/plan/probed_limits.h"
#include "harness/diagnose/diagnose.h"
#include "harness/processes/campaign.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

struct DiagnoseOptions {
  std::string kernel, timeout = "10m";
  std::vector<std::string> plugins;
  bool json = false;
};

/// Seconds for finding the sizes that a kernel takes.
constexpr double kProbeSeconds = 120.0;

/// Returns what differs from the declaration.
std::vector<std::string> names_of(const FoundReading& finding) {
  std::vector<std::string> names;
  for (const Deviation* d : finding.deviations) names.emplace_back(d->name);
  if (finding.limit != kNoLimit) names.push_back(clip_text({finding.limit}));
  return names;
}

/// Returns "g is the decay itself (alpha), and the initial state is ignored".
std::string reading_text(const FoundReading& finding) {
  const std::vector<std::string> names = names_of(finding);
  return names.empty() ? "as declared" : fmt::format("{}", fmt::join(names, ", and "));
}

/// Returns the declaration that states it; empty if part of it is a defect that no declaration states.
std::string declaration_of(const FoundReading& finding) {
  if (finding.limit != kNoLimit) return "";
  std::string text;
  for (const Deviation* d : finding.deviations) {
    if (d->declare.empty()) return "";
    text += fmt::format("{}{}", text.empty() ? "" : ",", d->declare);
  }
  return text.empty() ? "" : fmt::format("\"conventions\":{{{}}}", text);
}

/// Returns the distance that the roundings of the kernel's contract cause over six tokens.
double usual_distance(const std::string& name) {
  constexpr double kRoundings = 32.0;
  const Contract& contract = contract_named(name);
  return kRoundings *
         std::max({unit_roundoff(contract.output), unit_roundoff(contract.qk), unit_roundoff(Format::fp32)});
}

/// Returns the "limits" lines: what is refused and what to declare; empty if nothing was refused.
std::string limits_page(const ProbedLimits& probed) {
  std::string page;
  if (!probed.by_values.empty())
    page += fmt::format("refused   because of its values, with some data of a size but not with others: {}\n",
                        probed.by_values);
  if (!probed.refusal.empty())
    page += fmt::format("refused   {} of the sizes and settings that were tried, with any data: {}\n",
                        probed.refused, probed.refusal);
  if (!probed.limits.empty())
    page += fmt::format("limits    it takes calls with {}, and every refused call breaks {}{}\n",
                        fmt::join(probed.limits, " and "), probed.limits.size() == 1 ? "it" : "one of them",
                        probed.stopped ? ", of those that the time allowed" : "");
  else if (probed.refused > 0)
    page += probed.took_any ? "limits    no size or setting distinguishes the calls that it refuses from "
                              "those that it takes\n"
                            : "limits    it refused all sizes and settings that were tried\n";
  return page;
}

/// Returns the limits as a declaration writes them, and as the option for a Python function writes them.
std::string limits_declaration(const ProbedLimits& probed) { return nlohmann::json(probed.limits).dump(); }

std::string page_of(const KernelRow& kernel, const std::vector<DiagnosticCall>& calls,
                    const Diagnosis& diagnosis, const ProbedLimits& probed) {
  std::string page = fmt::format("kernel    {}, {} {}, called as {}\n", kernel.name, kernel.system->name,
                                 kernel.form, calls.front().contract);
  page += limits_page(probed);
  for (const std::string& why : diagnosis.refused) page += fmt::format("not run   {}\n", why);
  for (const FoundReading& f : diagnosis.fits)
    page += fmt::format("found     {} ({:.2g} off)\n", reading_text(f), f.distance);
  if (diagnosis.fits.empty() && !diagnosis.nothing_ran)
    page +=
        fmt::format("found     nothing that fits; nearest: {} ({:.2g} off, a reading fits below {:.2g})\n",
                    reading_text(diagnosis.nearest), diagnosis.nearest.distance, kFits);
  if (diagnosis.fits.size() == 1 && diagnosis.fits.front().distance > usual_distance(calls.front().contract))
    page +=
        "note      that is more than its roundings explain: the conventions fit, and `samestate gate` judges "
        "the values\n";
  if (!diagnosis.fits.empty() && diagnosis.strong_distance >= kFits)
    page += fmt::format(
        "note      with decays of e^-1 to e^-60 the outputs are {:.2g} off, and no limit of the exponents "
        "explains that:\n"
        "          `samestate gate --kernel {} --regime strong` judges them\n",
        diagnosis.strong_distance, kernel.name);
  if (diagnosis.fits.size() > 1) page += "          the calls that ran cannot tell these apart\n";
  if (diagnosis.fits.size() == 1) {
    const FoundReading& only = diagnosis.fits.front();
    if (const std::string declare = declaration_of(only); !declare.empty())
      page += fmt::format("declare   {}\n", declare);
    else if (!names_of(only).empty())
      page +=
          "declare   no convention describes that: it is a defect, or the arguments are in another order\n";
  }
  if (!probed.limits.empty())
    page += fmt::format("declare   \"limits\":{}, or ?limits={} after the name of a Python function\n",
                        limits_declaration(probed), fmt::join(probed.limits, ";"));
  return page;
}

std::string json_of(const KernelRow& kernel, const std::vector<DiagnosticCall>& calls,
                    const Diagnosis& diagnosis, const ProbedLimits& probed) {
  const auto finding = [](const FoundReading& f) {
    return nlohmann::ordered_json{
        {"deviations", names_of(f)}, {"distance", f.distance}, {"declare", declaration_of(f)}};
  };
  nlohmann::ordered_json out{{"kernel", kernel.name},
                             {"contract", calls.front().contract},
                             {"refused", diagnosis.refused},
                             {"limits", probed.limits},
                             {"refusal", probed.refusal},
                             {"refused_by_values", probed.by_values},
                             {"fits", nlohmann::ordered_json::array()}};
  for (const FoundReading& f : diagnosis.fits) out["fits"].push_back(finding(f));
  if (diagnosis.fits.empty() && !diagnosis.nothing_ran) out["nearest"] = finding(diagnosis.nearest);
  return out.dump(1) + "\n";
}

/// Returns the named kernel, or else the only added one that can be diagnosed.
const KernelRow& chosen(const KernelTable& table, const std::string& name) {
  if (!name.empty()) return table.row_named(name);
  std::vector<std::string> names;
  for (const KernelRow& row : table.added()) {
    if (row.system->of_family()) names.push_back(row.name);
  }
  if (names.size() == 1) return table.row_named(names.front());
  if (names.empty())
    throw Error(
        "--kernel: which one? `samestate list kernels` shows them; with --plugin or --subject of one kernel "
        "of "
        "the recurrent "
        "family it need not be named");
  throw Error(fmt::format("--kernel: which one? {}", fmt::join(names, ", ")));
}

std::vector<ProbeRun> runs_of(const KernelRow& kernel, const std::vector<DiagnosticCall>& calls,
                              const DeclaredLimits& further, double timeout) {
  std::vector<ProbeRun> runs;
  for (const DiagnosticCall& call : calls)
    runs.push_back(probe_apart([&] { return run_diagnostic(kernel, call, further); }, timeout));
  return runs;
}

/// Returns true if it refuses a call that its limits allow.
bool is_refused(const std::vector<DiagnosticCall>& calls, const std::vector<ProbeRun>& runs) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].refusal && !calls[i].outside) return true;
  }
  return false;
}

ProbedLimits probed_limits(const KernelTable& table, const KernelRow& kernel, double timeout) {
  fmt::print(stderr,
             "samestate: the kernel refuses a call; looking for the sizes and settings that it takes\n");
  const auto begin = std::chrono::steady_clock::now();
  note_interrupts();
  Workers one(case_runner(table), shared_process(1, timeout, kernel.device != "cpu"));
  return probe_limits(
      kernel, [&](const Case& c) { return one.run_one(c); },
      [&] {
        const std::chrono::duration<double> since = std::chrono::steady_clock::now() - begin;
        return interrupted() || since.count() > kProbeSeconds;
      });
}

int run_diagnose(const DiagnoseOptions& options) {
  const SubjectLog log(options.plugins);
  const KernelTable table = kernel_table(options.plugins);
  const KernelRow& kernel = chosen(table, options.kernel);
  if (!kernel.system->of_family())
    throw Error(
        fmt::format("kernel {} computes {}, but diagnose is only for the recurrent family, that is "
                    "gated_delta_rule, delta_rule, "
                    "retention and linear_attention; `samestate repro` explains a failure of any system",
                    kernel.name, kernel.system->name));
  const Family& family = family_named(kernel.system->name);
  const double timeout = seconds_of("--timeout", options.timeout);
  std::vector<DiagnosticCall> calls = diagnostic_calls(family, kernel);
  std::vector<ProbeRun> runs = runs_of(kernel, calls, {}, timeout);
  ProbedLimits probed;
  if (is_refused(calls, runs)) {
    probed = probed_limits(table, kernel, timeout);
    if (const DeclaredLimits further(probed.limits, *kernel.system); !further.none()) {
      calls = diagnostic_calls(family, kernel, further);
      runs = runs_of(kernel, calls, further, timeout);
    }
  }
  const Diagnosis diagnosis = diagnose(family, calls, runs);
  fmt::print("{}", options.json ? json_of(kernel, calls, diagnosis, probed)
                                : page_of(kernel, calls, diagnosis, probed));
  if (diagnosis.nothing_ran && !probed.took_any) return kNothingRan;
  if (diagnosis.fits.size() != 1) return kVacuous;
  return names_of(diagnosis.fits.front()).empty() && probed.limits.empty() ? kPass : kFail;
}

}  // namespace

Command add_diagnose(CLI::App& app) {
  auto options = std::make_shared<DiagnoseOptions>();
  app.footer(
      "Runs a kernel of the recurrent family on four or five calls of a few tokens, and compares "
      "its outputs with those of\n"
      "every known deviation, alone and in pairs, and with up to five conventions together: state "
      "transposed, decay linear or\n"
      "base 2, beta a logit, another scale, another map of heads, q and k exchanged, the initial "
      "state ignored, exponents of\n"
      "the decay clipped, .. It needs no declaration. What it finds is relative to the existing "
      "declaration, and the last line\n"
      "is what to add to it. If the kernel refuses a call before it runs anything, calls that vary "
      "one size or setting at a\n"
      "time show what it supports: these are limits to declare, and the conventions are then "
      "determined within them.\n"
      "\n"
      "  samestate diagnose --subject python:my_module:my_function --kernel "
      "my.gated_delta_rule.recurrent\n"
      "\n"
      "Exit 0 if the kernel is as declared, 1 if another reading fits or limits should be "
      "declared, 3 if no reading fits or\n"
      "several do, 77 if no call was run.");
  app.add_option("--kernel", options->kernel, "which kernel (default: the only one that was added)")
      ->check(named());
  add_plugin_option(app, options->plugins);
  app.add_option("--timeout", options->timeout, "a call that takes longer counts as not run (0: no limit)")
      ->capture_default_str();
  app.add_flag("--json", options->json, "machine-readable");
  return [options] { return run_diagnose(*options); };
}

}  // namespace samestate::cli
