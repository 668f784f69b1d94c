#include "fuzz/mutants/mutant.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/filter.h"
#include "cli/interrupt.h"
#include "cli/mutants_result.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "fuzz/mutants/public_rules.h"
#include "fuzz/mutants/trial.h"
#include "harness/cases/shards.h"
#include "harness/processes/hand_out.h"
#include "harness/records/hash.h"
#include "reference/error.h"
#include "reports/records/files.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

struct MutantsOptions {
  std::string system, bug, name, markdown, timeout = "20s", shard = "0/1";
  bool smoke = false, json = false, rules = false;
  double floor = 100.0;
  MutantOptions trial;
  int threads = default_threads();
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

/// Returns the mutants of the list that this shard tries, and which part of it they are.
std::vector<const Mutant*> take_shard(const MutantsOptions& options, std::vector<const Mutant*> all,
                                      MutantPart& part) {
  const Shard shard = shard_of(options.shard);
  part = {SAMESTATE_VERSION, shard.index, shard.count, std::ssize(all), "", {}, {}};
  PlanHash hash;
  std::vector<double> work;
  for (const Mutant* m : all) {
    hash.add(m->name, "");
    work.push_back(work_of(*m, options.trial));
  }
  part.plan = hash.text();
  part.options = {{"effort", fmt::format("{}", options.trial.effort)},
                  {"seed", std::to_string(options.trial.seed)},
                  {"timeout", options.timeout},
                  {"public", options.rules ? "on" : "off"}};
  std::vector<const Mutant*> own;
  for (const std::size_t i : part_of(work, shard)) {
    part.places.push_back(static_cast<std::int64_t>(i));
    own.push_back(all[i]);
  }
  return own;
}

MutantRow tried(const MutantResult& r, bool rules) {
  return row_of(r, rules ? try_public_rules(*r.mutant) : std::vector<PublicVerdict>());
}

/// Runs a whole trial, named by its mutant: its cases have processes of their own inside that of the job.
JobRunner trial_runner(const MutantsOptions& options) {
  return [&options](std::int64_t, const std::string& name) {
    return Answer{mutant_line(tried(try_mutant(mutant_named(name), options.trial), options.rules)), {}};
  };
}

/// Returns the rows in the order of the list, without those that an interrupt left out; calls `step` for
/// each.
std::vector<std::pair<const Mutant*, MutantRow>> tried_here(
    const MutantsOptions& options, const std::vector<const Mutant*>& list,
    const std::function<void(const MutantRow&)>& step) {
  std::vector<std::pair<const Mutant*, MutantRow>> rows;
  for (const MutantResult& r : try_mutants(list, options.trial, options.threads,
                                           [&](const MutantResult& r) { step(row_of(r, {})); })) {
    if (options.rules && interrupted()) break;
    rows.emplace_back(r.mutant, tried(r, options.rules));
  }
  return rows;
}

/// Does the same on all ranks. Throws Error if the process of a trial dies, whatever its mutant did in its
/// own processes.
std::vector<std::pair<const Mutant*, MutantRow>> tried_on(HandOut& ranks, const MutantsOptions& options,
                                                          const std::vector<const Mutant*>& list,
                                                          const std::function<void(const MutantRow&)>& step) {
  std::vector<std::optional<MutantRow>> rows(list.size());
  std::vector<std::size_t> order(list.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Trials that may use the whole time limit of a case begin first, at the same time as others.
  std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return list[i]->hostile; });
  double work = 0.0;
  for (const Mutant* m : list) work += work_of(*m, options.trial);
  std::size_t next = 0;
  WorkerOptions processes;
  processes.workers = options.threads;
  processes.timeout = 0.0;  // its cases have limits of their own
  processes.confirm = true;
  Pool pool(trial_runner(options), processes);
  JobObserver observer;
  observer.stop = interrupted;
  observer.finished = [&](const Job& job, const JobResult& result) {
    if (result.kind != JobResult::Kind::answered && result.kind != JobResult::Kind::unrepeated)
      throw Error(
          fmt::format("the process that tried the mutant {} died: {}; try it alone: samestate mutants "
                      "--name {}",
                      job.text, result.reason, job.text));
    rows[static_cast<std::size_t>(job.index)] = parse_mutant_line(result.text);
    step(*rows[static_cast<std::size_t>(job.index)]);
  };
  const NextJob job = [&](std::int64_t) -> std::optional<Job> {
    if (next == order.size() || interrupted()) return std::nullopt;
    const std::size_t i = order[next++];
    // Each trial has its own subject number, so that none runs in a process in which another was tried.
    return Job{static_cast<std::int64_t>(i), std::string(list[i]->name), static_cast<std::int64_t>(i), false,
               work_of(*list[i], options.trial)};
  };
  run_on(&ranks, pool, job, observer, {work, interrupted, {}});
  std::vector<std::pair<const Mutant*, MutantRow>> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (rows[i]) out.emplace_back(list[i], std::move(*rows[i]));
  }
  return out;
}

int run_mutants(MutantsOptions options) {
  options.trial.timeout = seconds_of("--timeout", options.timeout);
  if (options.trial.timeout <= 0) throw Error("--timeout 0: a case needs some time");
  MutantPart part;
  const std::vector<const Mutant*> list = take_shard(options, chosen(options), part);
  options.trial.stop = interrupted;
  if (serves()) return serve({}, trial_runner(options));
  if (!options.markdown.empty()) require_writable(options.markdown);
  note_interrupts();
  Progress progress(std::ssize(list));
  MutantTable table = bare_mutant_table(options.rules);
  const auto step = [&](const MutantRow& row) {
    progress.step(row.killed ? 0.0 : row.ratio, !row.killed && row.equivalent.empty());
  };
  HandOut* ranks = hand_out({});
  const auto rows =
      ranks != nullptr ? tried_on(*ranks, options, list, step) : tried_here(options, list, step);
  progress.clear();
  // Mutants that an interrupt left out have no row.
  std::map<const Mutant*, std::int64_t> place_of;
  for (std::size_t i = 0; i < list.size(); ++i) place_of[list[i]] = part.places[i];
  part.places.clear();
  for (const auto& [mutant, row] : rows) {
    part.places.push_back(place_of.at(mutant));
    table.rows.push_back(row);
  }
  const int code = report_mutants(table, part, {options.markdown, options.json, options.floor});
  if (!interrupted()) return code;
  fmt::print(stderr, "samestate: interrupted after {} of {} mutants\n", table.rows.size(), list.size());
  return kVacuous;
}

}  // namespace

Command add_mutants(CLI::App& app) {
  auto options = std::make_shared<MutantsOptions>();
  app.footer(
      "Each mutant is a correct kernel with one planted bug that really shipped (M..), with a "
      "fault that nobody is known to\n"
      "have shipped (F), or a subject that cheats (H1.7). The gate runs on it as on a kernel of "
      "yours, in a process of its\n"
      "own, until the first case that fails: a mutant that dies is killed by crash, one that hangs "
      "by timeout.\n"
      "\n"
      "  samestate mutants --smoke\n"
      "  samestate mutants --bug M13 --public\n"
      "  samestate mutants --shard 0/4 --json > mutants-0.json     then: samestate merge "
      "mutants-*.json\n"
      "Exit: 0 the score reaches the floor, 1 it does not, 2 usage, 3 only equivalent mutants, so "
      "there is no score.");
  app.add_option("--system", options->system, "only mutants of this system")->check(named());
  app.add_option("--bug", options->bug, "only this bug, for example M13, or F")->check(named());
  app.add_option("--name", options->name, "only this mutant, or this fault in every system and form")
      ->check(named());
  app.add_flag("--smoke", options->smoke, "try only the fixed subset that CI runs");
  app.add_flag("--public", options->rules, "also apply the criteria that the tests of public kernels use");
  app.add_option("--shard", options->shard, kShardHelp)->capture_default_str();
  app.add_flag("--json", options->json, "print JSON, which `samestate merge` can join");
  app.add_option("--markdown", options->markdown, "write a table in Markdown")->check(named());
  app.add_option("--threads", options->threads,
                 "number of mutants tried at once, each in a process of its own")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--timeout", options->timeout, "a case that takes longer is a timeout")
      ->capture_default_str();
  app.add_option("--effort", options->trial.effort, "multiplies the number of random cases")
      ->capture_default_str()
      ->check(number_in(0.0, 1e4));
  app.add_option("--seed", options->trial.seed, "seed of the random cases")
      ->check(seed_number())
      ->capture_default_str();
  app.add_option("--floor", options->floor, "lowest score in percent for exit 0")
      ->capture_default_str()
      ->check(number_in(0.0, 100.0));
  return [options] { return run_mutants(*options); };
}

}  // namespace samestate::cli
