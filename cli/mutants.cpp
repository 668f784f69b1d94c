#include "fuzz/mutants/mutant.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/commands.h"
#include "cli/duration.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "fuzz/mutants/public_rules.h"
#include "fuzz/mutants/trial.h"
#include "reference/error.h"
#include "reports/files.h"

namespace samestate::cli {
namespace {

struct MutantsOptions {
  std::string system, bug, name, markdown, timeout = "20s";
  bool smoke = false, json = false, rules = false;
  double floor = 100.0;
  MutantOptions trial;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

/// What was found of one mutant.
struct Row {
  MutantResult gate;
  std::vector<PublicVerdict> rules;
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

/// Killed and all of a group, equivalent mutants left out.
struct Score {
  std::int64_t killed = 0, all = 0;
  void add(bool dead) {
    killed += dead ? 1 : 0;
    ++all;
  }
  [[nodiscard]] double percent() const {
    return all == 0 ? 0.0 : 100.0 * static_cast<double>(killed) / static_cast<double>(all);
  }
};

struct Summary {
  Score score;
  std::map<std::string, Score> by_bug, by_system, by_gate, by_rule;
  std::vector<std::int64_t> cases;
  double slowest = 0.0;
  std::int64_t equivalent = 0;
  std::vector<const Row*> survivors, wrongly_killed;
};

Summary summarised(const std::vector<Row>& rows) {
  Summary out;
  for (const Row& row : rows) {
    const MutantResult& r = row.gate;
    if (!r.mutant->equivalent.empty()) {
      ++out.equivalent;
      if (r.killed) out.wrongly_killed.push_back(&row);
      continue;
    }
    out.score.add(r.killed);
    out.by_bug[r.mutant->bug].add(r.killed);
    out.by_system[r.mutant->system].add(r.killed);
    for (const PublicVerdict& v : row.rules) out.by_rule[std::string(v.rule->name)].add(v.killed());
    if (!r.killed) {
      out.survivors.push_back(&row);
      continue;
    }
    out.by_gate[r.gate].add(true);
    out.cases.push_back(r.cases);
    out.slowest = std::max(out.slowest, r.seconds);
  }
  std::sort(out.cases.begin(), out.cases.end());
  return out;
}

std::string rules_text(const Row& row) {
  std::string text;
  for (const PublicVerdict& v : row.rules) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", v.rule->name, v.killed() ? "killed" : "passes");
  }
  return text;
}

/// Text for a cell of a table.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string markdown(const std::vector<Row>& rows, const Summary& summary, bool rules) {
  std::string text = fmt::format("## Mutants\n\n{} of {} killed ({:.1f} %).\n\n", summary.score.killed,
                                 summary.score.all, summary.score.percent());
  text +=
      "M01..M90 shipped in a public project; F is a fault in a system's equations that nobody is known to "
      "have "
      "shipped; H1.7 is a subject that cheats the gate or breaks its process.\n\n";
  if (rules) {
    text += "| judged by | killed | share |\n|---|---|---|\n";
    text += fmt::format("| samestate gate | {} of {} | {:.1f} % |\n", summary.score.killed, summary.score.all,
                        summary.score.percent());
    for (const PublicRule& rule : public_rules()) {
      const auto found = summary.by_rule.find(std::string(rule.name));
      const Score score = found == summary.by_rule.end() ? Score{} : found->second;
      text += fmt::format("| {}: {} ({}) | {} of {} | {:.1f} % |\n", rule.name, cell(rule.summary),
                          rule.source, score.killed, score.all, score.percent());
    }
    text += "\n";
  }
  text += "| bug | mutant | what is wrong | gate | cases | ratio |";
  if (rules) {
    for (const PublicRule& rule : public_rules()) text += fmt::format(" {} |", rule.name);
  }
  text += "\n|---|---|---|---|---|---|";
  for (std::size_t i = 0; rules && i < public_rules().size(); ++i) text += "---|";
  text += "\n";
  for (const Row& row : rows) {
    const MutantResult& r = row.gate;
    text += fmt::format("| {} | {} | {} | {} | {} | {:.3g} |", r.mutant->bug, r.mutant->name,
                        r.mutant->summary, r.killed ? r.gate : "survives", r.cases, r.ratio);
    for (const PublicVerdict& v : row.rules) text += v.killed() ? " killed |" : " passes |";
    for (std::size_t i = row.rules.size(); rules && i < public_rules().size(); ++i) text += " |";
    text += "\n";
  }
  return text;
}

nlohmann::json json_of(const Row& row) {
  const MutantResult& r = row.gate;
  nlohmann::json out = {{"bug", r.mutant->bug},
                        {"name", r.mutant->name},
                        {"system", r.mutant->system},
                        {"form", r.mutant->form},
                        {"summary", r.mutant->summary},
                        {"equivalent", r.mutant->equivalent},
                        {"killed", r.killed},
                        {"gate", r.gate},
                        {"case", r.line},
                        {"reason", r.reason},
                        {"cases", r.cases},
                        {"planned", r.planned},
                        {"seconds", r.seconds}};
  // JSON has no infinity.
  out["ratio"] = std::isfinite(r.ratio) ? nlohmann::json(r.ratio) : nlohmann::json("inf");
  for (const PublicVerdict& v : row.rules) {
    out["rules"][std::string(v.rule->name)] = {{"killed", v.killed()},
                                               {"tests", v.tests},
                                               {"rejected", v.rejected},
                                               {"false_alarms", v.false_alarms}};
  }
  return out;
}

void print(const std::vector<Row>& rows, const Summary& summary) {
  for (const Row& row : rows) {
    const MutantResult& r = row.gate;
    const std::string verdict =
        r.killed ? fmt::format("killed by {} after {} cases, ratio {:.3g}", r.gate, r.cases, r.ratio)
                 : fmt::format("SURVIVES {} cases, worst ratio {:.3g}{}", r.cases, r.ratio,
                               r.mutant->equivalent.empty() ? "" : " (equivalent)");
    fmt::print("{:<4} {:<58} {}\n", r.mutant->bug, r.mutant->name, verdict);
    if (!row.rules.empty()) fmt::print("     {}\n", rules_text(row));
  }
  const auto table = [](const char* what, const std::map<std::string, Score>& scores) {
    fmt::print("{}", what);
    for (const auto& [key, score] : scores) fmt::print("  {} {}/{}", key, score.killed, score.all);
    fmt::print("\n");
  };
  table("by bug   ", summary.by_bug);
  table("by system", summary.by_system);
  table("by gate  ", summary.by_gate);
  if (!summary.by_rule.empty()) table("by public rule", summary.by_rule);
  for (const Row* row : summary.survivors) {
    fmt::print("survivor: {}: {}\n", row->gate.mutant->name, row->gate.mutant->summary);
  }
  for (const Row* row : summary.wrongly_killed) {
    fmt::print("false alarm: {} is equivalent ({}) and was killed: samestate repro '{}'\n",
               row->gate.mutant->name, row->gate.mutant->equivalent, row->gate.line);
  }
  if (!summary.cases.empty()) {
    fmt::print("cases to kill: median {}, most {}; slowest {:.1f} s\n",
               summary.cases[summary.cases.size() / 2], summary.cases.back(), summary.slowest);
  }
}

int run_mutants(MutantsOptions options) {
  options.trial.timeout = seconds_of("--timeout", options.timeout);
  if (options.trial.timeout <= 0) throw Error("--timeout 0: a case needs some time");
  const std::vector<const Mutant*> list = chosen(options);
  if (!options.markdown.empty()) require_writable(options.markdown);
  Progress progress(std::ssize(list));
  std::vector<Row> rows;
  for (MutantResult& r : try_mutants(list, options.trial, options.threads, [&](const MutantResult& r) {
         progress.step(r.killed ? 0.0 : r.ratio, !r.killed && r.mutant->equivalent.empty());
       })) {
    Row row{std::move(r), {}};
    if (options.rules) row.rules = try_public_rules(*row.gate.mutant);
    rows.push_back(std::move(row));
  }
  const Summary summary = summarised(rows);
  if (!options.markdown.empty()) write_atomically(options.markdown, markdown(rows, summary, options.rules));
  if (options.json) {
    nlohmann::json out = {{"killed", summary.score.killed},
                          {"all", summary.score.all},
                          {"equivalent", summary.equivalent},
                          {"score", summary.score.percent()}};
    for (const Row& row : rows) out["mutants"].push_back(json_of(row));
    for (const NotModelled& n : not_modelled()) out["not_modelled"][std::string(n.bug)] = n.reason;
    fmt::print("{}\n", out.dump(2));
  } else {
    print(rows, summary);
    fmt::print("{} of {} mutants killed, {:.1f} %; {} equivalent; floor {:.1f} %\n", summary.score.killed,
               summary.score.all, summary.score.percent(), summary.equivalent, options.floor);
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
