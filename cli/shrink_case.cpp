#include "cli/shrink_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "cli/case_sizes.h"
#include "cli/interrupt.h"
#include "fuzz/mutants/likeness.h"
#include "fuzz/search/search.h"
#include "harness/cases/resolved.h"
#include "harness/processes/history.h"
#include "harness/processes/pool.h"
#include "harness/run/run_case.h"

namespace samestate::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns the faults of the mutants that give the same wrong values as the failing case.
std::vector<std::string> faults_like(const Case& c, const KernelTable& table, double seconds) {
  const JobResult done = run_apart(
      [&]() -> std::string {
        Trace trace;
        if (run_case(c, table, 1, &trace).judgement.verdict != Verdict::fail) return "";
        std::string names;
        for (const Mutant* m : mutants_like(Resolved(c), trace, seconds).mutants)
          names += std::string(m->fault) + "\n";
        return names;
      },
      4.0 * seconds, interrupted);
  std::vector<std::string> out;
  if (done.kind != JobResult::Kind::answered) return out;
  for (std::size_t begin = 0; begin < done.text.size();) {
    const std::size_t end = done.text.find('\n', begin);
    out.push_back(done.text.substr(begin, end - begin));
    begin = end == std::string::npos ? done.text.size() : end + 1;
  }
  return out;
}

/// Shrinks a case that fails only after other cases.
ShrunkCase shrink_behind(const Case& c, std::vector<Case> after, const KernelTable& table,
                         const ShrinkCaseOptions& options) {
  const Clock::time_point begin = Clock::now();
  const auto left = [&] {
    return options.budget - std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const CaseRunner run = runner_of(table);
  ReplayOptions replays{options.timeout, options.budget / 3};
  const Replayed needed = replay(std::move(after), c, run, replays);
  if (!needed.repeated)
    throw NothingToShrink(
        fmt::format("the case passes even after the {} case(s) of --after, so there is nothing to shrink",
                    needed.after.size()));
  ShrunkCase out{{}, needed.after};
  ShrinkOptions how;
  how.stop = interrupted;
  how.budget = std::max(left() / 2, 0.0);
  how.reruns = 2;
  out.small = shrink(
      c, [&](const Case& smaller) { return run_behind(out.after, smaller, run, replays); }, how);
  // The cases before it are shrunk as if each were the failing case; the cases that run after it stay the same.
  for (std::size_t i = 0; i < out.after.size() && left() > 0.0 && !interrupted(); ++i) {
    how.budget = left() / static_cast<double>(out.after.size() - i);
    const auto with = [&](const Case& other) {
      std::vector<Case> changed = out.after;
      changed[i] = other;
      return run_behind(changed, out.small.smallest, run, replays);
    };
    Shrunk other = shrink(out.after[i], with, how);
    out.small.runs += other.runs;
    out.small.complete = out.small.complete && other.complete;
    if (other.finding.judgement.verdict != Verdict::flaky) out.after[i] = std::move(other.smallest);
  }
  out.small.seconds = options.budget - left();
  return out;
}

ShrunkCase shrink_alone(const Case& c, const KernelTable& table, const ShrinkCaseOptions& options) {
  Workers worker(runner_of(table), {1, options.timeout});
  ShrinkOptions how;
  how.fresh = [&](const Case& smaller) { return worker.run_fresh(smaller); };
  how.budget = options.budget;
  how.stop = interrupted;
  if (c.law.empty())
    how.looks_like = [&](const Case& smaller, double seconds) {
      return faults_like(smaller, table, seconds);
    };
  return {shrink(
              c, [&](const Case& smaller) { return worker.run_one(smaller); }, how),
          {}};
}

}  // namespace

ShrunkCase shrink_case(const Case& c, std::vector<Case> after, const KernelTable& table,
                       const ShrinkCaseOptions& options) {
  note_interrupts();
  ShrunkCase out =
      after.empty() ? shrink_alone(c, table, options) : shrink_behind(c, std::move(after), table, options);
  if (!options.say) return out;
  const Shrunk& small = out.small;
  fmt::print("shrunk    {} elements of {:.0f} in {} runs, {:.1f} s{}\n",
             size_of_case(Resolved(small.smallest)), size_of_case(Resolved(c)), small.runs, small.seconds,
             small.complete  ? ""
             : interrupted() ? "; interrupted: the smallest so far"
                             : "; not finished; give more time with --shrink-budget");
  fmt::print("sizes     {}\n", sizes_in_full(Resolved(small.smallest)));
  return out;
}

}  // namespace samestate::cli
