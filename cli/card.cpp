#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/probe_apart.h"
#include "cli/progress.h"
#include "cli/subject_log.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "harness/card/card_cases.h"
#include "harness/card/operator_card.h"
#include "harness/card/probe_files.h"
#include "harness/card/read_card.h"
#include "harness/processes/pool.h"
#include "harness/processes/workers.h"
#include "reference/error.h"
#include "reports/text/card.h"

namespace samestate::cli {
namespace {

struct CardVerb {
  std::string kernel, form, contract, write, read, timeout = "1m";
  std::vector<std::string> plugins;
  bool json = false, force = false;
};

/// Finds NAME, or NAME.FORM if a form was given.
const KernelRow& kernel_of(const KernelTable& table, const CardVerb& options) {
  const std::string with_form = options.kernel + "." + options.form;
  for (const KernelRow& row : table.all()) {
    const bool named = row.name == options.kernel || (!options.form.empty() && row.name == with_form);
    if (named && (options.form.empty() || row.form == options.form)) return row;
  }
  if (const KernelRow& row = table.row_named(options.kernel); row.form != options.form)
    throw Error(fmt::format("kernel {} has form {}, not {}", row.name, row.form, options.form));
  return table.row_named(options.kernel);
}

CardCase judged_apart(const KernelTable& table, const KernelRow& kernel, const CardRow& card,
                      std::string_view regime, double timeout) {
  const JobResult done = run_interruptibly(
      [&] {
        const CardCase c = judged_under(table, kernel, card.declared, card.contract, regime);
        return fmt::format("{}\t{}\t{}\t{}\t{}", c.twin, c.ratio, c.gate, c.verdict, c.line);
      },
      timeout);
  if (const std::optional<Judgement> lost = judgement_of_loss(done))
    return {fmt::format("regime={}", regime), std::string(name_of(lost->verdict))};
  std::vector<std::string> fields(1);
  for (const char x : done.text) x == '\t' ? (void)fields.emplace_back() : fields.back().push_back(x);
  return {fields.at(4), fields.at(3), std::stod(fields.at(0)), std::stod(fields.at(1)), fields.at(2)};
}

/// True, with a message, if no probe has outputs because the kernel's device is missing.
bool nothing_ran(const KernelRow& kernel, const std::vector<ProbeRun>& runs) {
  if (!std::ranges::all_of(runs, &ProbeRun::no_device)) return false;
  fmt::print(stderr, "samestate: kernel {}: {}: no card is read\n", kernel.name, runs.front().refused);
  return true;
}

void print_card(const CardRow& card, bool json) {
  fmt::print("{}", json ? card_json(card) : for_terminal(card_text(card, columns_of_tables())));
}

int run_operator_card(const KernelTable& table, const KernelRow& kernel, CardOptions how,
                      const CardVerb& options, double timeout) {
  for (const auto& [option, value] : {std::pair{"--write", options.write}, {"--read", options.read}}) {
    if (value.empty()) continue;
    throw Error(fmt::format(
        "{} {}: probes are written and read for the recurrent family, and {} is a system of named "
        "tensors; leave {} out, so that the kernel is called",
        option, value, kernel.system->name, option));
  }
  const std::vector<Case> probes = operator_probes(kernel, declared_contract(kernel, how));
  std::vector<ProbeRun> runs;
  Progress progress(0);
  how.progress = [&](const std::string& stage) { progress.at("data " + stage); };
  for (const Case& probe : probes) {
    if (interrupted()) return kVacuous;
    how.progress(probe.regime);
    runs.push_back(probe_apart([&] { return run_operator_probe(table, kernel, probe); }, timeout));
  }
  if (nothing_ran(kernel, runs)) return kNothingRan;
  const CardRow card = operator_card(kernel, probes, runs, how);
  progress.clear();
  print_card(card, options.json);
  if (interrupted()) return kVacuous;
  return card_holds(card) ? kPass : kFail;
}

int run_card(const CardVerb& options) {
  note_interrupts();
  const SubjectLog log(options.plugins);
  KernelTable table = kernel_table(options.plugins);
  if (!options.contract.empty()) table.keep(options.contract);
  const double timeout = seconds_of("--timeout", options.timeout);
  const KernelRow& kernel = kernel_of(table, options);
  CardOptions how;
  how.contract = options.contract;
  how.stop = interrupted;
  if (!kernel.system->of_family()) return run_operator_card(table, kernel, how, options, timeout);
  const std::string declared = declared_contract(kernel, how);
  const std::vector<Probe> probes = probes_of(kernel, declared);
  if (!options.write.empty()) {
    if (const std::string filled = first_filled(options.write, probes); !filled.empty() && !options.force)
      throw Error(fmt::format("--write {}: {} has outputs already; --force writes empty probes over them",
                              options.write, filled));
    for (const std::string& file : write_probes(options.write, kernel, probes)) fmt::print("{}\n", file);
    return kPass;
  }
  std::vector<ProbeRun> runs;
  if (!options.read.empty() && !std::filesystem::is_directory(options.read))
    throw Error("--read " + options.read + ": no such folder; name the one that --write made");
  if (!options.read.empty()) runs = read_probes(options.read, probes);
  for (const Probe& probe : probes) {
    if (runs.size() == probes.size() || interrupted()) break;
    runs.push_back(probe_apart([&] { return run_probe(table, probe); }, timeout));
  }
  if (interrupted()) {
    fmt::print(stderr, "samestate: interrupted after {} of {} probes; no card is read\n", runs.size(),
               probes.size());
    return kVacuous;
  }
  runs.resize(probes.size());
  if (nothing_ran(kernel, runs)) return kNothingRan;
  Progress progress(0);
  how.progress = [&](const std::string& stage) { progress.at("data " + stage); };
  CardRow card = card_of(kernel, probes, runs, how);
  // Outputs that were made elsewhere have no kernel to run again, and invalid outputs have no contract.
  const bool asks = options.read.empty() && card.stopped.empty() && !card.contract.empty();
  const std::vector<std::string_view> regimes = asks ? card_regimes(kernel) : std::vector<std::string_view>{};
  card.cases_planned = std::ssize(regimes);
  for (const std::string_view regime : regimes) {
    if (interrupted()) break;
    progress.at(fmt::format("the gate, regime {}", regime));
    CardCase judged = judged_apart(table, kernel, card, regime, timeout);
    // A kernel that ended because of an interrupt did not crash.
    if (interrupted() && failed_under_it(judged)) break;
    card.cases.push_back(std::move(judged));
  }
  progress.clear();
  print_card(card, options.json);
  if (interrupted()) return kVacuous;
  const auto without =
      std::ranges::count_if(card.probes, [](const CardProbe& p) { return !p.refused.empty(); });
  if (!options.read.empty() && without > 0)
    fmt::print(
        stderr,
        "samestate: --read {}: {} of {} probes have no outputs, so what only they would show is unknown\n",
        options.read, without, card.probes.size());
  return card_holds(card) ? kPass : kFail;
}

}  // namespace

Command add_card(CLI::App& app) {
  auto options = std::make_shared<CardVerb>();
  app.footer(
      "Finds out from a kernel's outputs what it rounds, and where. It runs the kernel on about "
      "seventeen probes, data that\n"
      "isolate a few rounding points each, and searches for the contract whose twin is nearest to "
      "the outputs. For each point\n"
      "it prints the value found, how many times farther the twin with the next best value is, and "
      "which values no output\n"
      "distinguishes. The last line is the contract to paste into the kernel's row, into a case "
      "line or after --contract.\n"
      "\n"
      "  samestate card --plugin ./mine.so --kernel my.gated_delta_rule.chunked\n"
      "  samestate card --kernel cpu.gated_delta_rule.chunked --contract bf16_fused --json\n"
      "  samestate card --kernel cpu.delta_rule --form chunked --contract "
      "fp32+input:bf16+output:bf16\n"
      "\n"
      "For a function that cannot be called from here: --write the probes as run files, let the "
      "function put o and\n"
      "final_state into each, and --read them. --contract is then the contract that the function "
      "was called with, and --kernel\n"
      "any kernel of the same system and form.\n"
      "\n"
      "For a system of named tensors (gradients, attention, layers) the probes are cases of the gate, and "
      "the "
      "card says which of\n"
      "the points that the contract rounds at the kernel has, and which others (`samestate list points`).\n"
      "\n"
      "Exit 0: the contract explains the probes (those that have outputs; the output says how many "
      "have none), and no case of\n"
      "the gate fails under it. 1: no contract of the grammar explains all probes (the nearest is "
      "printed, with card:nearest),\n"
      "or a case fails; the line `verdict` says which. 2: bad input. 3: interrupted; during the "
      "search no card is read.\n"
      "77: no device for the kernel. `samestate list contracts --long` shows every point; "
      "docs/understand/card.md says more.");
  app.add_option("--kernel", options->kernel, "the kernel whose card is read")->required()->check(named());
  app.add_option("--form", options->form, "form of the kernel, if its name is given without it")
      ->check(named());
  app.add_option("--contract", options->contract,
                 "the contract it is called with (default: the first that its row promises)")
      ->check(named());
  add_plugin_option(app, options->plugins);
  auto* write =
      app.add_option("--write", options->write, "only write the probes, as run files into this folder")
          ->check(named());
  app.add_option("--read", options->read, "take the outputs from run files in this folder, and run nothing")
      ->check(named())
      ->excludes(write);
  app.add_option("--timeout", options->timeout, "a probe that takes longer counts as refused (0: no limit)")
      ->capture_default_str();
  app.add_flag("--force", options->force, "with --write: overwrite probes that already have outputs")
      ->needs(write);
  app.add_flag("--json", options->json, "machine-readable");
  return [options] { return run_card(*options); };
}

}  // namespace samestate::cli
