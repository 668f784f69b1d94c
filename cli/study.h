#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "harness/systems/tolerances.h"

/// The errors of a case over several seeds, for `samestate tolerance`: those of one kernel against the equations, or
/// the differences between two kernels.
namespace samestate::cli {

/// A plain test allows this many times the largest measured error, because other orders of summation have other errors.
inline constexpr double kRoom = 2.0;

/// The largest errors over the seeds, and the tests that follow from them.
struct Measured {
  OutputTolerance of;
  double rtol = 0.0, atol = 0.0;  ///< kRoom times what was measured
  double bound_atol = 0.0;        ///< the atol that no correct kernel fails, by the gate's limits
  double rms_ratio = 0.0, bound_ratio = 0.0;
  double relative = 0.0,
         relative_limit = 0.0;  ///< RMS of the error over that of the expected values, before rounding
};

struct Study {
  std::vector<Measured> outputs;
  std::map<std::string, std::size_t> place;
  std::int64_t seeds = 0;
  TolerancesOfCase first;
  std::string other = {};    ///< the name of the second kernel, if two are compared
  bool same_inputs = true;   ///< false: two contracts round the data to different formats
  std::string failure = {};  ///< what the judge says about the first seed that fails; empty if none does
  std::string vacuous = {};  ///< why no output can be judged; empty if any seed judged something

  [[nodiscard]] bool gives_tests() const { return failure.empty() && vacuous.empty(); }
  [[nodiscard]] Exit code() const { return !failure.empty() ? kFail : !vacuous.empty() ? kVacuous : kPass; }
};

struct StudyOptions {
  int seeds = 8;
  int threads = 1;  ///< number of seeds that run at once
  /// A second case on the same data, whose kernel is compared with the first one's. An error is then the difference
  /// between the two, and its limit is the sum of both limits and of the difference between their inputs.
  std::optional<Case> against = {};
};

/// Thrown if there is no device for the kernel.
class NothingRan : public Error {
 public:
  using Error::Error;
};

/// Runs the case of the line and its next seeds. Throws Error if its kernel does not run here, or if the outputs of the
/// two kernels have different shapes.
[[nodiscard]] Study study_of(const Case& c, const KernelTable& table, const StudyOptions& options);

/// Returns `x` / `size`; infinite for an error where the size is zero.
[[nodiscard]] double ratio(double x, double size);

/// Returns the case that differs from `c` by `keys`, such as "form=recurrent contract=fp32". Throws Error for a key
/// that changes the data or the outputs.
[[nodiscard]] Case other_case(const Case& c, const std::string& keys);

}  // namespace samestate::cli
