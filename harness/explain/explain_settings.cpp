#include "harness/explain/explain_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "harness/cases/keys.h"
#include "harness/run/run_case.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// How often a line is run before it counts as always doing the same. A failure that occurs in half of the
/// runs is missed once in 32.
constexpr int kRuns = 5;

bool same_bits(const Trace& a, const Trace& b) {
  const auto bits = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return std::ranges::equal(a.outputs, b.outputs, [&](const CaseTensor& x, const CaseTensor& y) {
    return std::ranges::equal(x.data, y.data, bits);
  });
}

/// How often a line is run whose verdicts are not all alike, before a rule in their order is looked for.
constexpr int kRunsForOrder = 12;

/// The results of several runs of one line.
struct Repeats {
  int runs = 0;
  int failed = 0;
  int passed = 0;
  bool differs = false;  ///< true if the outputs of two runs differ in any bit
  std::vector<bool> fails;
  std::string reason;  ///< the reason of the first run that failed
  Trace first;

  void run(const Case& c, const KernelTable& table) {
    Trace trace;
    const Judgement j = run_case(c, table, 1, &trace).judgement;
    failed += j.verdict == Verdict::fail ? 1 : 0;
    passed += j.verdict == Verdict::pass ? 1 : 0;
    fails.push_back(j.verdict == Verdict::fail);
    if (j.verdict == Verdict::fail && reason.empty()) reason = j.reason;
    // A run that was ended early, for example by a write outside of a tensor, leaves no outputs.
    if (first.outputs.empty()) {
      first = std::move(trace);
    } else if (!trace.outputs.empty()) {
      differs = differs || !same_bits(first, trace);
    }
    ++runs;
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} of {} runs failed, {}", failed, runs,
                       differs ? "their outputs differ bitwise" : "their outputs are the same bit for bit");
  }

  /// Returns the rule in the order in which runs failed, as a kernel shows it that counts its calls or keeps
  /// what the first one left; empty if there is none.
  [[nodiscard]] std::string order() const {
    const auto count = std::ssize(fails);
    if (count < kRunsForOrder || failed == 0 || failed == runs) return "";
    const auto from = std::ranges::find(fails, true) - fails.begin();
    if (from > 0 && std::all_of(fails.begin() + from, fails.end(), [](bool x) { return x; }))
      return fmt::format("passes in the first {} and fails from run {} on",
                         from == 1 ? "run" : fmt::format("{} runs", from), from + 1);
    const auto until = std::ranges::find(fails, false) - fails.begin();
    if (until > 0 && std::none_of(fails.begin() + until, fails.end(), [](bool x) { return x; }))
      return fmt::format("fails in the first {} alone and passes from run {} on",
                         until == 1 ? "run" : fmt::format("{} runs", until), until + 1);
    for (std::ptrdiff_t period = 2; 3 * period <= count; ++period) {
      bool repeats = true;
      for (std::ptrdiff_t i = period; i < count; ++i)
        repeats =
            repeats && fails[static_cast<std::size_t>(i)] == fails[static_cast<std::size_t>(i - period)];
      if (!repeats) continue;
      const auto each = std::count(fails.begin(), fails.begin() + period, true);
      return each == 1 ? fmt::format("fails in every {} run", ordinal(period))
                       : fmt::format("fails in {} of every {} runs, always the same ones", each, period);
    }
    return "";
  }

 private:
  static std::string ordinal(std::ptrdiff_t n) {
    return n == 2 ? "second" : n == 3 ? "third" : n == 4 ? "fourth" : fmt::format("{}th", n);
  }
};

/// Runs the case until `runs` runs are made, or until no more are allowed.
void repeat(Repeats& out, const Case& c, const KernelTable& table, int runs, Reruns& reruns) {
  while (out.runs < runs && reruns.start()) out.run(c, table);
}

/// Runs the case several times. The result is empty if the case is invalid, or if a run ends before all are
/// made.
Repeats repeated(const Case& c, const KernelTable& table, int runs, Reruns& reruns) {
  Repeats out;
  try {
    repeat(out, c, table, runs, reruns);
  } catch (const Error&) {  // the case is not valid without this setting
    return {};
  }
  return out;
}

}  // namespace

namespace {

/// Describes a failure that does not occur in every run.
std::string told_of_runs(const Repeats& runs, const std::string& with) {
  if (const std::string order = runs.order(); !order.empty())
    return fmt::format("{}: the same line{} {} ({} of {} failed)", kByCount,
                       with.empty() ? "" : " with " + with, order, runs.failed, runs.runs);
  if (!runs.differs)
    return fmt::format("fails in {} of {} runs{}, though what it returns is the same bit for bit: {}",
                       runs.failed, runs.runs, with.empty() ? "" : " with " + with, runs.reason);
  return fmt::format("{}: {} {}; no setting is told to be the cause", kNotDeterministic,
                     with.empty() ? "of the same line" : "with " + with, runs.text());
}

/// Names the number of threads, which the seed chooses, if one thread alone makes the case pass.
std::string threads_text(const Case& failing, const KernelTable& table, Reruns& reruns) {
  const int threads = threads_of(failing);
  if (threads == 1) return "";
  constexpr std::uint64_t kSeeds = 4;
  for (std::uint64_t i = 0; i < kSeeds; ++i) {
    Case c = failing;
    c.seed = 3 * i;  // a seed that chooses one thread
    if (!reruns.start() || run_case(c, table).judgement.verdict != Verdict::pass || !reruns.start() ||
        run_case(c, table, threads).judgement.verdict != Verdict::fail)
      return "";
  }
  return fmt::format(
      "only with {} threads, which the seed chooses: {} other seeds pass with one thread and fail with {}",
      threads, kSeeds, threads);
}

}  // namespace

std::vector<SettingRule> settings_that_matter(const Case& failing, const KernelTable& table, Reruns& reruns) {
  Repeats same = repeated(failing, table, kRuns, reruns);
  if (same.failed < same.runs) {
    repeat(same, failing, table, kRunsForOrder, reruns);
    return {{told_of_runs(same, "")}};
  }
  std::vector<SettingRule> out;
  for (const Key& key : keys()) {
    // Keys that change the data are handled by keys_that_matter.
    if (!key.setting || key.name == "regime" || key.name == "seed" || key.print(failing).empty() ||
        key.smaller == nullptr)
      continue;
    for (const Case& without : key.smaller(failing)) {
      if (!key.print(without).empty() || repeated(without, table, 1, reruns).passed == 0) continue;
      Repeats others = repeated(without, table, kRuns, reruns);
      if (others.runs == 0) continue;  // no run was left to check that it always passes
      if (others.passed < others.runs) {
        repeat(others, without, table, kRunsForOrder, reruns);
        return {{told_of_runs(others, fmt::format("{}={}", key.name, key.value(without)))}};
      }
      out.push_back({fmt::format("only with {0}={1}: passes with {0}={2}", key.name, key.value(failing),
                                 key.value(without)),
                     without});
      break;
    }
  }
  if (std::string threads = threads_text(failing, table, reruns); !threads.empty())
    out.push_back({std::move(threads)});
  if (same.differs)
    out.push_back({fmt::format("{} in its bits: of the same line {}", kNotDeterministic, same.text())});
  return out;
}

}  // namespace samestate
