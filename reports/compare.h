#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/records/record.h"
#include "reports/json_lines.h"

/// What changed between two records of runs, case by case.
namespace samestate {

struct Change {
  enum class Kind {
    verdict_worse,
    ratio_grew,   ///< beyond the factor, or to NaN
    new_failure,  ///< a case that only the second holds, and that fails
    verdict_better,
    ratio_fell,
    ratio_changed,  ///< within the factor, either way
    appeared,
    gone,
  };
  Kind kind;
  Record before;  ///< of a case that only one file holds, the other is empty
  Record after;
};
[[nodiscard]] const char* name_of(Change::Kind kind);

/// A case that fails now and did not, or is judged no more, or whose ratio grew.
[[nodiscard]] bool is_regression(Change::Kind kind);

struct Comparison {
  std::vector<Change> changes;  ///< regressions first, each kind the largest ratio first
  std::int64_t before = 0, after = 0;
  std::int64_t common = 0;
  std::int64_t unchanged = 0;  ///< the same verdict and the same ratio, bit for bit
  std::int64_t repeated = 0;   ///< cases that a file held more than once: its last record counts
  double factor = 2.0;
  [[nodiscard]] std::int64_t count(Change::Kind kind) const;
  [[nodiscard]] std::int64_t regressions() const;
};

/// Cases are the same when line, kernel and law are, points of sweeps when series and curve are too. A
/// verdict is worse in the order pass, skipped, unsupported, vacuous, flaky, fail, timeout, crash.
[[nodiscard]] Comparison compare(const RecordFile& before, const RecordFile& after, double factor);

/// For a terminal: counts, then up to `most` changes a kind, each with the command that repeats it.
[[nodiscard]] std::string compare_text(const Comparison& comparison, std::size_t most = 10);
/// {"regressions": n, ..., "changes": [{"kind", "line", "before": {..}, "after": {..}} ..]}
[[nodiscard]] std::string compare_json(const Comparison& comparison);
[[nodiscard]] std::string compare_markdown(const Comparison& comparison, const std::string& before,
                                           const std::string& after);

}  // namespace samestate
