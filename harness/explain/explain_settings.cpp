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

/// Runs of a line before it is taken for one that always does the same: of a failure in half of the runs 1 of 32 is.
constexpr int kRuns = 5;

bool same_bits(const Trace& a, const Trace& b) {
  const auto bits = [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  };
  return std::ranges::equal(a.outputs, b.outputs, [&](const CaseTensor& x, const CaseTensor& y) {
    return std::ranges::equal(x.data, y.data, bits);
  });
}

/// What became of runs of one line.
struct Repeats {
  int runs = 0;
  int failed = 0;
  int passed = 0;
  bool differs = false;  ///< outputs of two of them, in bits
  Trace first;

  void run(const Case& c, const KernelTable& table) {
    Trace trace;
    const Verdict verdict = run_case(c, table, 1, &trace).judgement.verdict;
    failed += verdict == Verdict::fail ? 1 : 0;
    passed += verdict == Verdict::pass ? 1 : 0;
    if (runs++ == 0) {
      first = std::move(trace);
    } else {
      differs = differs || !same_bits(first, trace);
    }
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{} of {} runs failed, {}", failed, runs,
                       differs ? "their outputs differ bitwise" : "their outputs are the same bit for bit");
  }
};

/// The case, again and again. Nothing where it is no case, or ends a run before all are made.
Repeats repeated(const Case& c, const KernelTable& table, int runs) {
  Repeats out;
  try {
    while (out.runs < runs) out.run(c, table);
  } catch (const Error&) {  // no case without this setting
    return {};
  }
  return out;
}

}  // namespace

namespace {

/// Whether the other seed's data fail as well with as many threads as the seed of the failure has.
bool only_with_more_threads(const Key& key, const Case& failing, const Case& without,
                            const KernelTable& table) {
  return key.name == "seed" && threads_of(failing) > threads_of(without) &&
         run_case(without, table, threads_of(failing)).judgement.verdict == Verdict::fail;
}

}  // namespace

std::vector<std::string> settings_that_matter(const Case& failing, const KernelTable& table) {
  const Repeats same = repeated(failing, table, kRuns);
  if (same.failed < same.runs)
    return {fmt::format("{}: of the same line {}; no setting is told to be the cause", kNotDeterministic,
                        same.text())};
  std::vector<std::string> out;
  for (const Key& key : keys()) {
    // Other data are another case.
    if (!key.setting || key.name == "regime" || key.print(failing).empty() || key.smaller == nullptr)
      continue;
    for (const Case& without : key.smaller(failing)) {
      if (!key.print(without).empty() || repeated(without, table, 1).passed == 0) continue;
      const Repeats others = repeated(without, table, kRuns);
      if (others.passed < others.runs)
        return {fmt::format("{}: with {}={} {}; no setting is told to be the cause", kNotDeterministic,
                            key.name, key.value(without), others.text())};
      out.push_back(
          only_with_more_threads(key, failing, without, table)
              ? fmt::format("only with {} threads, which the seed chooses: with them {}={} fails too",
                            threads_of(failing), key.name, key.value(without))
              : fmt::format("only with {0}={1}: passes with {0}={2}", key.name, key.value(failing),
                            key.value(without)));
      break;
    }
  }
  if (same.differs)
    out.push_back(fmt::format("{} in its bits: of the same line {}", kNotDeterministic, same.text()));
  return out;
}

}  // namespace samestate
