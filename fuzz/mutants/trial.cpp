#include "fuzz/mutants/trial.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "fuzz/plan.h"

namespace samestate {
namespace {

/// Seconds of computing that this thread has done.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

MutantResult try_mutant(const Mutant& mutant, const MutantOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  MutantResult result;
  result.mutant = &mutant;
  const KernelTable table = mutant.table();
  PlanOptions plan;
  plan.seed = options.seed;
  plan.effort = options.effort;
  plan.kernel = mutant.kernel();
  const std::vector<Case> cases = plan_cases(table, plan);
  result.planned = std::ssize(cases);
  for (const Case& c : cases) {
    const double computed = thread_seconds();
    const Record record = run_case(c, table);
    ++result.cases;
    const Judgement& j = record.judgement;
    // A busy machine makes a case wait as well, but in proportion to what it computes.
    const bool hung = record.seconds > kCaseSeconds + 20.0 * (thread_seconds() - computed);
    result.killed = j.verdict == Verdict::fail || j.verdict == Verdict::crash || hung;
    result.ratio = result.killed ? j.ratio : std::max(result.ratio, j.ratio);
    if (!result.killed) continue;
    result.gate = j.verdict == Verdict::fail ? j.gate : j.verdict == Verdict::crash ? "crash" : "timeout";
    result.line = record.line;
    result.reason = j.reason;
    break;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

std::vector<MutantResult> try_mutants(std::span<const Mutant* const> list, const MutantOptions& options,
                                      int threads, const std::function<void(const MutantResult&)>& finished) {
  std::vector<MutantResult> results(list.size());
  std::atomic<std::size_t> next{0};
  std::mutex observing;
  std::exception_ptr broken;
  const auto work = [&] {
    for (std::size_t i = next++; i < list.size(); i = next++) {
      try {
        results[i] = try_mutant(*list[i], options);
        const std::lock_guard lock(observing);
        if (finished) finished(results[i]);
      } catch (...) {
        const std::lock_guard lock(observing);
        broken = std::current_exception();
        next = list.size();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < std::min<int>(threads, static_cast<int>(list.size())); ++i)
      helpers.emplace_back(work);
    work();
  }
  if (broken) std::rethrow_exception(broken);
  return results;
}

}  // namespace samestate
