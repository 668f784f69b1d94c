#pragma once

#include <string>
#include <vector>

#include "harness/records/measurement.h"
#include "harness/run/run_case.h"

/// Sweeps: one quantity varied, everything else held, the error measured against the bound at each point.
namespace samestate {

/// A point to be measured.
struct SweepCase {
  std::string series;
  std::string curve;
  double x = 0.0;  ///< NaN: taken from the data (decay: mean |g|; condition: that of I + A)
  Case c;
  std::int64_t profile =
      128;            ///< points of a profile over tokens or chunk positions, at most; windows between
  double work = 1.0;  ///< what it costs to measure beside the others, roughly: for the time that is left
};

struct SweepOptions {
  bool quick = false;  ///< smaller shapes and fewer points
  std::string series;  ///< only this one; empty: all
  std::string system;  ///< only this one; empty: all
  std::string kernel;  ///< the chunked kernel under test of its system; empty: the CPU kernels
};

/// What a series varies, for titles and --help.
struct SweepSeries {
  std::string_view name;
  std::string_view summary;
};
[[nodiscard]] std::span<const SweepSeries> sweep_series();

/// The points, in order. Throws Error for a series, system or kernel that does not exist.
[[nodiscard]] std::vector<SweepCase> plan_sweep(const KernelTable& table, const SweepOptions& options);

/// Runs the case and measures it. Whatever the kernel does becomes the record's verdict, and the figures are
/// NaN then.
[[nodiscard]] Measurement measure(const SweepCase& point, const KernelTable& table);

}  // namespace samestate
