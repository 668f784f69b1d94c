#include "fuzz/mutants/mutant.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "fuzz/mutants/public_rules.h"
#include "fuzz/mutants/trial.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/text/mutants.h"

namespace samestate::cli {
namespace {

struct MutantsOptions {
  std::string system, bug, name, markdown, timeout = "20s";
  bool smoke = false, json = false, rules = false;
  double floor = 100.0;
  MutantOptions trial;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

std::vector<const Mutant*> chosen(const MutantsOptions& options) {
  std::vector<const Mutant*> list;
  for (const Mutant& m : all_mutants()) {
    if (!options.system.empty() && m.system != options.system) continue;
    if (!options.bug.empty() && m.bug != options.bug) continue;
    if (!options.name.empty() && m.name != options.name && m.fault != options.name) continue;
    if (options.smoke && !m.smoke) continue;
    list.push_back(&m);
  }
  if (!list.empty()) return list;
  if (!options.name.empty()) (void)mutant_named(options.name);
  std::string asked;
  if (!options.system.empty()) asked += " --system " + options.system;
  if (!options.bug.empty()) asked += " --bug " + options.bug;
  if (!options.name.empty()) asked += " --name " + options.name;
  if (options.smoke) asked += " --smoke";
  throw Error("no mutant fits" + asked + ": `samestate list mutants` shows them all");
}

MutantRow row_of(const MutantResult& r, const std::vector<PublicVerdict>& rules) {
  const Mutant& m = *r.mutant;
  MutantRow row{m.bug,  m.name,   m.system, m.form,    m.summary, m.equivalent, r.killed, r.gate,
                r.line, r.reason, r.cases,  r.planned, r.ratio,   r.seconds,    {}};
  for (const PublicVerdict& v : rules)
    row.rules.push_back({std::string(v.rule->name), v.killed(), v.tests, v.rejected, v.false_alarms});
  return row;
}

/// The table without its rows.
MutantTable table_of(bool rules) {
  MutantTable table;
  if (rules) {
    for (const PublicRule& rule : public_rules())
      table.rules.push_back({std::string(rule.name), std::string(rule.summary), std::string(rule.source)});
  }
  for (const NotModelled& n : not_modelled())
    table.not_modelled.push_back({std::string(n.bug), std::string(n.reason)});
  return table;
}

int run_mutants(MutantsOptions options) {
  options.trial.timeout = seconds_of("--timeout", options.timeout);
  if (options.trial.timeout <= 0) throw Error("--timeout 0: a case needs some time");
  const std::vector<const Mutant*> list = chosen(options);
  if (!options.markdown.empty()) require_writable(options.markdown);
  note_interrupts();
  options.trial.stop = interrupted;
  Progress progress(std::ssize(list));
  MutantTable table = table_of(options.rules);
  for (const MutantResult& r : try_mutants(list, options.trial, options.threads, [&](const MutantResult& r) {
         progress.step(r.killed ? 0.0 : r.ratio, !r.killed && r.mutant->equivalent.empty());
       })) {
    table.rows.push_back(
        row_of(r, options.rules ? try_public_rules(*r.mutant) : std::vector<PublicVerdict>()));
  }
  progress.clear();
  const MutantSummary summary = summarise(table);
  if (!options.markdown.empty()) write_atomically(options.markdown, mutants_markdown(table, summary));
  if (options.json) {
    fmt::print("{}", mutants_json(table, summary));
  } else {
    fmt::print("{}{} of {} mutants killed, {:.1f} %; {} equivalent; floor {:.1f} %\n",
               mutants_text(table, summary), summary.score.killed, summary.score.all, summary.score.percent(),
               summary.equivalent, options.floor);
  }
  if (interrupted()) {
    fmt::print(stderr, "samestate: interrupted after {} of {} mutants\n", table.rows.size(), list.size());
    return kVacuous;
  }
  if (summary.score.all == 0 && summary.wrongly_killed.empty()) {
    fmt::print(stderr, "samestate: only equivalent mutants were chosen: there is nothing to score\n");
    return kVacuous;
  }
  // The slack is for a floor that was printed with one decimal.
  return summary.score.percent() >= options.floor - 1e-9 && summary.wrongly_killed.empty() ? kPass : kFail;
}

}  // namespace

Command add_mutants(CLI::App& app) {
  auto options = std::make_shared<MutantsOptions>();
  app.footer(
      "Each mutant is a correct kernel with one bug put back that really shipped (M..), with a fault that "
      "nobody is known to\n"
      "have shipped (F), or a subject that cheats (H1.7); the gate runs on it as on a kernel of yours\n"
      "until the first case that fails, in a process of its own: one that dies is killed by crash, one that "
      "hangs by timeout.\n\n"
      "  samestate mutants --smoke\n"
      "  samestate mutants --bug M13 --public\n"
      "Exit: 0 the score reaches the floor, 1 it does not, 2 usage, 3 only equivalent mutants: no score.");
  app.add_option("--system", options->system, "only mutants of this system")->check(named());
  app.add_option("--bug", options->bug, "only this bug, as M13, or F")->check(named());
  app.add_option("--name", options->name, "only this mutant, or this fault in every system and form")
      ->check(named());
  app.add_flag("--smoke", options->smoke, "the fixed subset that CI runs");
  app.add_flag("--public", options->rules, "and under the rules of public kernels' tests");
  app.add_flag("--json", options->json, "machine-readable");
  app.add_option("--markdown", options->markdown, "write a table in Markdown")->check(named());
  app.add_option("--threads", options->threads, "mutants at a time, each in a process of its own")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout")
      ->capture_default_str();
  app.add_option("--effort", options->trial.effort, "multiplies the seeded cases")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--seed", options->trial.seed, "of the seeded cases")
      ->check(seed_number())
      ->capture_default_str();
  app.add_option("--floor", options->floor, "least score in percent for exit 0")
      ->capture_default_str()
      ->check(number_in(0.0, 100.0));
  return [options] { return run_mutants(*options); };
}

}  // namespace samestate::cli
