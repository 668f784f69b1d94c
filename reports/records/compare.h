#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/records/record.h"
#include "reports/records/json_lines.h"

/// The changes between two records of runs, case by case.
namespace samestate {

struct Change {
  enum class Kind {
    verdict_worse,
    ratio_grew,   ///< the ratio grew by more than the factor, or to NaN
    new_failure,  ///< a case that only the second file contains, and that fails
    verdict_better,
    ratio_fell,
    ratio_changed,  ///< within the factor, in either direction
    appeared,
    gone,
  };
  Kind kind;
  Record before;  ///< for a case in only one file, the other record is empty
  Record after;
};
[[nodiscard]] const char* name_of(Change::Kind kind);

/// True for a case that fails now and did not before, that is not judged any more, or whose ratio grew.
[[nodiscard]] bool is_regression(Change::Kind kind);

/// The number of cases for which a kernel still writes the same bits, among those for which both records have
/// hashes (Record::outputs).
struct BitsOfKernel {
  struct Difference {
    Record after;
    std::string output;  ///< the first output whose hash differs
  };
  std::string kernel;  ///< its name in the second record
  std::int64_t equal = 0;
  std::vector<Difference> differences;  ///< as in the second record
  [[nodiscard]] std::int64_t cases() const { return equal + std::ssize(differences); }
};

/// Cases in both records that were judged under different policies (Record::policy): one may have found
/// something that the other did not look for.
struct OtherPolicy {
  std::string before, after;
  std::int64_t cases = 0;
};

struct Comparison {
  std::vector<Change> changes;  ///< regressions first, and within each kind the largest ratio first
  std::int64_t before = 0, after = 0;
  std::int64_t common = 0;
  std::int64_t unchanged = 0;  ///< the same verdict and the same ratio, bit for bit
  std::int64_t repeated = 0;   ///< cases that a file contained more than once; the last record counts
  double factor = 2.0;
  std::vector<BitsOfKernel> bits;                      ///< by name; empty if no case has hashes in both
  std::vector<std::string> before_short, after_short;  ///< why the runs are incomplete (json_lines.h)
  bool before_cut = false, after_cut = false;          ///< the end of the file is missing (is_cut)
  std::int64_t not_judged = 0;  ///< cases of the first file that the second did not reach because it is
                                ///< incomplete; not counted as gone
  std::vector<std::string> unlike =
      {};  ///< why the runs have different cases: "seed 1 and 2", "shard 0/2 and 1/2"
  std::vector<OtherPolicy> policies = {};  ///< by both names
  [[nodiscard]] std::int64_t count(Change::Kind kind) const;
  [[nodiscard]] std::int64_t regressions() const;
};

/// Only the records and points of one kernel, under another name and without it in their lines, so that two
/// kernels of one system can be compared. Throws Error if there are none.
[[nodiscard]] RecordFile of_kernel(RecordFile file, const std::string& kernel, const std::string& as);

/// True if the file comes from a run that was killed or still runs, or is only part of a file: its closing
/// line, the end of its last line, or points are missing. A run that says that it was interrupted is complete
/// in this sense. Files from before RunPart have no closing line.
[[nodiscard]] bool is_cut(const RecordFile& file);

/// Cases are the same if line, kernel and law are; points of sweeps also need the same series and curve.
/// Verdicts get worse in the order pass, skipped, unsupported, vacuous, flaky, fail, timeout, crash.
[[nodiscard]] Comparison compare(const RecordFile& before, const RecordFile& after, double factor);

}  // namespace samestate
