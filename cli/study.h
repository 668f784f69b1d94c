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

/// The errors of a case over several seeds, for `samestate tolerance`: of one kernel against the equations, or of two kernels
/// against each other.
namespace samestate::cli {

/// How far above the largest error that was measured a plain test is set: other orders of sums have other errors.
inline constexpr double kRoom = 2.0;

/// The largest over the seeds, RMS over them.
struct Measured {
  OutputTolerance of;
  double rtol = 0.0, atol = 0.0;  ///< kRoom times what was measured
  double bound_atol = 0.0;        ///< that no correct kernel fails, by the gate's limits
  double rms_ratio = 0.0, bound_ratio = 0.0;
  double relative = 0.0,
         relative_limit = 0.0;  ///< RMS of the error over that of what is expected, before rounding
};

struct Study {
  std::vector<Measured> outputs;
  std::map<std::string, std::size_t> place;
  std::int64_t seeds = 0;
  TolerancesOfCase first;
  std::string other = {};    ///< of two kernels: the name of the second
  bool same_inputs = true;   ///< false: two contracts round the data to different formats
  std::string failure = {};  ///< what the judge says of the first seed that fails; empty: none does
  std::string vacuous = {};  ///< why nothing can be judged, of each output; empty: of a seed something was

  [[nodiscard]] bool gives_tests() const { return failure.empty() && vacuous.empty(); }
  [[nodiscard]] Exit code() const { return !failure.empty() ? kFail : !vacuous.empty() ? kVacuous : kPass; }
};

struct StudyOptions {
  int seeds = 8;
  int threads = 1;  ///< seeds at a time
  /// A second case on the same data, whose kernel is compared with the first one's. An error is then the difference of the
  /// two, and its limit the sum of both limits and of what their inputs differ by.
  std::optional<Case> against = {};
};

/// There is no device for the kernel.
class NothingRan : public Error {
 public:
  using Error::Error;
};

/// The case of the line and the next seeds. Throws Error where its kernel does not run here, and where the outputs of the
/// two kernels have different shapes.
[[nodiscard]] Study study_of(const Case& c, const KernelTable& table, const StudyOptions& options);

/// `x` over `size`; infinite for an error of what is zero.
[[nodiscard]] double ratio(double x, double size);

/// The case that differs from `c` by `keys`, as "form=recurrent contract=fp32". Throws Error for a key that changes the
/// data or the outputs.
[[nodiscard]] Case other_case(const Case& c, const std::string& keys);

}  // namespace samestate::cli
