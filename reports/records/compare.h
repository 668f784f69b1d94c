#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/json_lines.h"

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

/// What became of the bits that a kernel wrote, of the cases of which both records have hashes (Record::outputs).
struct BitsOfKernel {
  struct Difference {
    Record after;
    std::string output;  ///< the first whose hash differs
  };
  std::string kernel;  ///< as the second record names it
  std::int64_t equal = 0;
  std::vector<Difference> differences;  ///< as the second record has them
  [[nodiscard]] std::int64_t cases() const { return equal + std::ssize(differences); }
};

/// Common cases that the two records judged under different policies (Record::policy): the one may have found what the other did
/// not look for.
struct OtherPolicy {
  std::string before, after;
  std::int64_t cases = 0;
};

struct Comparison {
  std::vector<Change> changes;  ///< regressions first, each kind the largest ratio first
  std::int64_t before = 0, after = 0;
  std::int64_t common = 0;
  std::int64_t unchanged = 0;  ///< the same verdict and the same ratio, bit for bit
  std::int64_t repeated = 0;   ///< cases that a file held more than once: its last record counts
  double factor = 2.0;
  std::vector<BitsOfKernel> bits;                      ///< by name; none where no case has hashes in both
  std::vector<std::string> before_short, after_short;  ///< why the runs are not whole (json_lines.h)
  bool before_cut = false, after_cut = false;          ///< the end of the file is missing (is_cut)
  std::int64_t not_judged = 0;  ///< cases of the first that the second, cut, did not come to: not gone
  std::vector<std::string> unlike =
      {};  ///< what makes the runs' cases differ: "seed 1 and 2", "shard 0/2 and 1/2"
  std::vector<OtherPolicy> policies = {};  ///< by both names
  [[nodiscard]] std::int64_t count(Change::Kind kind) const;
  [[nodiscard]] std::int64_t regressions() const;
};

/// The records and points of one kernel alone, under another name and without it on their lines, so that those of two
/// kernels of a system meet. Throws Error if it holds none of them.
[[nodiscard]] RecordFile of_kernel(RecordFile file, const std::string& kernel, const std::string& as);

/// Whether the file is a run's that was killed or still runs, or a part of a file: its closing line, its last line's end or
/// points are missing. A run that was interrupted and says so is none. Files of before RunPart have no closing line.
[[nodiscard]] bool is_cut(const RecordFile& file);

/// Cases are the same when line, kernel and law are, points of sweeps when series and curve are too. A
/// verdict is worse in the order pass, skipped, unsupported, vacuous, flaky, fail, timeout, crash.
[[nodiscard]] Comparison compare(const RecordFile& before, const RecordFile& after, double factor);

}  // namespace samestate
