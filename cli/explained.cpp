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
#include "harness/explain/explain_settings.h"
#include "harness/processes/pool.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"

namespace samestate::cli {
namespace {

/// That other data pass, or that bits differ where every run fails, says less than any other setting, and than what the
/// wrong values show.
bool says_less(const std::string& setting) {
  return setting.starts_with("only with seed=") ||
         setting.starts_with(fmt::format("{} in its bits", kNotDeterministic));
}

}  // namespace

Explanation explain_with_mutants(const Resolved& r, const Trace& trace, double seconds) {
  Explanation e = explain(r, trace);
  if (e.differs.empty()) return e;
  const Likeness like = mutants_like(r, trace, seconds);
  for (const Mutant* m : like.mutants)
    e.patterns.push_back(fmt::format("{} (mutant {})", m->summary, m->name));
  if (like.tried < like.all)
    e.patterns.push_back(
        fmt::format("(the time was up after {} of {} mutants of {})", like.tried, like.all, r.c.system));
  return e;
}

Explanation explain_failure(const Resolved& r, const Trace& trace, const KernelTable& table, double seconds) {
  Explanation e = explain_with_mutants(r, trace, seconds);
  std::vector<std::string> settings = settings_that_matter(r.c, table);
  const auto data = std::ranges::stable_partition(settings, std::not_fn(says_less));
  e.patterns.insert(e.patterns.end(), data.begin(), data.end());
  e.patterns.insert(e.patterns.begin(), settings.begin(), data.begin());
  return e;
}

Case exactly(Case c) {
  c.contract = exact_contract(c.contract).name;
  return c;
}

void print_neighbours(const RunFile& run, double seconds) {
  if (seconds <= 0.0) return;
  const Resolved r(parse_case(run.case_line));
  note_interrupts();
  fmt::print("contract  {}\n", neighbours_of(r, run, seconds, interrupted).text());
}

std::string run_left_in(const RunFile& run) {
  std::string path = (std::filesystem::temp_directory_path() / "samestate-run-XXXXXX").string();
  const int file = ::mkstemp(path.data());
  if (file < 0) return "";
  ::close(file);
  write_run_file(path, run);
  return path;
}

std::string looks_like(const Record& failed, const KernelTable& table, double seconds) {
  const JobResult done = run_apart(
      [&]() -> std::string {
        const Case c = parse_case(failed.line);
        Trace trace;
        const Record record = run_case(c, table, 1, &trace);
        if (record.judgement.verdict != Verdict::fail) return "";
        // Of roundings within their bound no place and no setting is the cause, which other data would show as well.
        if (const Resolved r(c); !trace.outputs.empty() && is_about_the_contract(r, record.judgement)) {
          const Neighbours near = neighbours_of(r, run_file_of(record, trace), seconds / 4);
          if (!near.passes.empty()) return near.text();
        }
        const Explanation e = explain_with_mutants(Resolved(c), trace, seconds / 4);
        // What one setting makes is told by it.
        const std::vector<std::string> settings = settings_that_matter(c, table);
        const auto setting = std::ranges::find_if(settings, std::not_fn(says_less));
        if (setting != settings.end()) return *setting;
        // A known mistake says more than the places where it shows.
        const auto known = std::find_if(e.patterns.begin(), e.patterns.end(), [](const std::string& pattern) {
          return pattern.find("(mutant ") != std::string::npos;
        });
        if (known != e.patterns.end()) return *known;
        return !e.patterns.empty() ? e.patterns.front() : settings.empty() ? "" : settings.front();
      },
      seconds, interrupted);
  // The last pattern of an explanation may say that the time was up.
  return done.kind == JobResult::Kind::answered && !done.text.starts_with('(') ? done.text : "";
}

}  // namespace samestate::cli
