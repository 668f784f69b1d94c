#include "cli/explained.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "cli/interrupt.h"
#include "fuzz/mutants/likeness.h"
#include "harness/card/neighbours.h"
#include "harness/explain/explain_contract.h"
#include "harness/explain/explain_keys.h"
#include "harness/explain/explain_settings.h"
#include "harness/processes/pool.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "oracles/reasons.h"

namespace samestate::cli {
namespace {

/// Returns true for the rule that only the outputs' bits differ between runs. If every run fails, that says less than
/// the wrong values do.
bool says_less(const std::string& setting) {
  return setting.starts_with(fmt::format("{} in its bits", kNotDeterministic));
}

/// Returns true for a rule about runs of the same line that differ; no other run can then say anything about a key.
bool is_of_runs(const std::string& setting) {
  return setting.starts_with(kNotDeterministic) || setting.starts_with(kByCount) ||
         setting.starts_with("fails in ");
}

/// Returns true for a rule about a key, a setting or the order of runs.
bool is_of_key(const std::string& pattern) {
  return pattern.starts_with("only with ") || pattern.starts_with("only where ") || is_of_runs(pattern) ||
         (pattern.starts_with("only ") && pattern.find(": passes with ") != pattern.npos);
}

std::string text_of(const Mutant& m) { return fmt::format("{}{}{})", m.summary, kOfMutant, m.name); }

/// Returns true if the mutant passes every case that the kernel passes without one of its settings, as far as the
/// mutant can run it.
bool passes_without(const Mutant& m, const std::vector<SettingRule>& settings, Reruns& reruns) {
  const KernelTable table = m.table();
  return std::ranges::all_of(settings, [&](const SettingRule& rule) {
    if (!rule.passes || !reruns.start()) return true;
    Case c = *rule.passes;
    c.kernel = m.kernel();
    try {
      return run_case(c, table).judgement.verdict != Verdict::fail;
    } catch (const Error&) {  // the mutant has another form
      return true;
    }
  });
}

/// Returns the explanation without mutants, and puts the mutants that give the same values into `like`.
Explanation with_likeness(const Resolved& r, const Trace& trace, double seconds, Likeness& like) {
  Explanation e = explain(r, trace);
  like = mutants_like(r, trace, seconds);
  if (like.all > 0)
    e.tried.push_back(fmt::format("{} of {} mutants of {}{}", like.tried, like.all, r.c.system,
                                  like.tried < like.all ? fmt::format(" in {:g} s", seconds) : ""));
  return e;
}

/// Returns true if every failing case on which the contract can be tried passes under it.
bool passes_all(const std::string& own, const std::string& contract, const std::vector<Case>& failing,
                const KernelTable& table, double seconds) {
  const ContractTrial trial = try_contract(own, contract, failing, table, seconds);
  return trial.passes && trial.complete;
}

/// Returns the contracts near the case's under which `others` pass too.
Neighbours tried_neighbours(const Resolved& r, const Trace& run, const std::vector<Case>& others,
                            const KernelTable& table, double seconds) {
  Neighbours near = neighbours_of(r, run, seconds / 2, interrupted);
  const std::size_t found = near.passes.size();
  std::erase_if(near.passes, [&](const std::string& contract) {
    return !passes_all(r.c.contract, contract, others, table, seconds / 2);
  });
  // A contract under which one case passes and another fails does not explain the failures.
  if (near.passes.empty() && found > 0) near.nearest.clear();
  return near;
}

}  // namespace

Explanation explain_with_mutants(const Resolved& r, const Trace& trace, double seconds) {
  Likeness like;
  Explanation e = with_likeness(r, trace, seconds, like);
  std::vector<std::string> known;
  for (const Mutant* m : like.mutants) known.push_back(text_of(*m));
  e.patterns.insert(e.patterns.begin(), known.begin(), known.end());
  if (all_mutants().empty() && !e.differs.empty())
    e.patterns.emplace_back("(this build has no mutants, so it was not compared with known mistakes)");
  return e;
}

Explanation explain_failure(const Resolved& r, const Trace& trace, const KernelTable& table,
                            const std::vector<Case>& others, double seconds) {
  Likeness like;
  Explanation e = with_likeness(r, trace, seconds / 2, like);
  std::vector<ContractHint> hints = std::move(e.contracts);
  e.contracts.clear();
  Reruns reruns(seconds / 2);
  reruns.slice(0.4);
  std::vector<SettingRule> settings = settings_that_matter(r.c, table, reruns);
  const bool of_runs = !settings.empty() && is_of_runs(settings.front().text);
  KeyRules keys;
  if (!of_runs) keys = keys_that_matter(r.c, table, reruns);
  reruns.slice(1.0);
  // The order is: mistakes that are known by name, what turns the failure on and off, what the values look like, and
  // last what says little.
  std::vector<std::string> first, turned_on, last;
  for (const SettingRule& rule : settings) (says_less(rule.text) ? last : turned_on).push_back(rule.text);
  for (const Mutant* m : like.mutants) {
    // A failure that depends on a setting is not a mistake in the equation, which would also show without the setting.
    const bool fits = turned_on.empty() || (!of_runs && passes_without(*m, settings, reruns));
    (fits ? first : turned_on).push_back(text_of(*m));
  }
  const bool by_name = !like.mutants.empty();
  turned_on.insert(turned_on.end(), keys.rules.begin(), keys.rules.end());
  // A fault that sizes or settings turn on and off is not a matter of rounding.
  if (turned_on.empty() && !by_name) {
    const std::vector<Case> near = others.empty() ? cases_near(r.c) : others;
    for (const ContractHint& hint : hints) {
      if (passes_all(r.c.contract, hint.contract, near, table, seconds / 4)) e.contracts.push_back(hint);
    }
  }
  first.insert(first.end(), turned_on.begin(), turned_on.end());
  e.patterns.insert(e.patterns.begin(), first.begin(), first.end());
  for (const ContractHint& hint : e.contracts) e.patterns.push_back(hint.text);
  e.patterns.insert(e.patterns.end(), keys.weak.begin(), keys.weak.end());
  e.patterns.insert(e.patterns.end(), last.begin(), last.end());
  e.tried.push_back(reruns.text());
  return e;
}

Case exactly(Case c) {
  c.contract = exact_contract(c.contract).name;
  return c;
}

void print_neighbours(const RunFile& file, double seconds, const KernelTable* table) {
  if (seconds <= 0.0) return;
  const Resolved r(parse_case(file.case_line));
  const Trace run = run_in_file(r, file);
  note_interrupts();
  if (table == nullptr) {
    fmt::print("contract  {}\n", neighbours_of(r, run, seconds, interrupted).text());
    return;
  }
  // The kernel runs again, which may end its process.
  const JobResult done =
      run_apart([&] { return tried_neighbours(r, run, cases_near(r.c), *table, seconds).text(); },
                2.0 * seconds, interrupted);
  if (done.kind == JobResult::Kind::answered) fmt::print("contract  {}\n", done.text);
}

std::string run_left_in(const RunFile& run) {
  std::string path = (std::filesystem::temp_directory_path() / "samestate-run-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return "";
  ::close(file);
  write_run_file(path, run, named_shapes);
  return path;
}

std::string known_mistakes(const std::vector<std::string>& patterns) {
  const auto other = std::ranges::find_if(
      patterns, [](const std::string& text) { return text.find(kOfMutant) == text.npos; });
  const auto known = other - patterns.begin();
  if (known == 0) return "";
  return fmt::format("{}{}{}", patterns[0], known > 1 ? "; or " + patterns[1] : "",
                     known > 2 ? fmt::format("; or {} more that give the same values", known - 2) : "");
}

std::string looks_like(const Record& failed, const std::vector<Case>& others, const KernelTable& table,
                       double seconds) {
  const JobResult done = run_apart(
      [&]() -> std::string {
        const Case c = parse_case(failed.line);
        Trace trace;
        const Record record = run_case(c, table, 1, &trace);
        if (record.judgement.verdict != Verdict::fail) return "";
        const Resolved r(c);
        const Explanation e = explain_failure(r, trace, table, others, seconds / 2);
        // A known mistake says more than the places where it shows.
        if (const std::string known = known_mistakes(e.patterns); !known.empty()) return known;
        if (e.patterns.empty() || !is_of_key(e.patterns.front())) {
          // If the roundings stay within their bound, neither a place nor a setting is the cause.
          if (!trace.outputs.empty() && is_about_the_contract(r, record.judgement)) {
            const std::vector<Case> near = others.empty() ? cases_near(c) : others;
            const Neighbours found = tried_neighbours(r, trace, near, table, seconds / 4);
            if (!found.passes.empty()) return found.text();
          }
          return e.patterns.empty() ? "" : e.patterns.front();
        }
        const auto values = std::ranges::find_if_not(e.patterns, is_of_key);
        return values == e.patterns.end() || is_of_runs(e.patterns.front())
                   ? e.patterns.front()
                   : fmt::format("{}; {}", e.patterns.front(), *values);
      },
      2.0 * seconds, interrupted);  // runs that began in time may end later
  return done.kind == JobResult::Kind::answered ? done.text : "";
}

}  // namespace samestate::cli
