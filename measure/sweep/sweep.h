#pragma once

#include <string>
#include <vector>

#include "harness/records/measurement.h"
#include "harness/run/run_case.h"

/// Sweeps vary one quantity, hold everything else fixed, and measure the error against the bound at each
/// point.
namespace samestate {

/// A point to be measured.
struct SweepCase {
  std::string series;
  std::string curve;
  double x = 0.0;  ///< NaN if it is taken from the data (decay: mean |g|; condition: that of I + A)
  Case c;
  std::int64_t profile =
      128;  ///< the largest number of points in a profile over tokens or chunk positions; others are averaged
            ///< in windows
  double work = 1.0;  ///< a rough relative cost of measuring it, to estimate the remaining time
  /// The output whose error is measured; empty means the first, and the largest state beside it.
  std::string output = {};
};

/// A key of the case line and the values that a sweep gives it.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
};

struct SweepOptions {
  bool quick = false;  ///< smaller shapes and fewer points
  std::string series;  ///< only this one; empty means all
  std::string system;  ///< only this one; empty means all
  std::string kernel;  ///< the chunked kernel under test of its system; empty means the CPU kernels
  /// Axes of a sweep of one's own instead of the series: the first is drawn, the others are curves. The kernel may then be
  /// of any form.
  std::vector<SweepAxis> over = {};
  std::string from =
      {};  ///< the case line whose keys `over` varies; if empty, a head of 128 x 128 in each contract
  std::int64_t T = 0;  ///< the number of tokens with `over`; 0 means that of the line
};

/// Parses an axis such as "chunk=16,64,256". Throws Error if it is not a key with values.
[[nodiscard]] SweepAxis axis_of(const std::string& text);

/// A description of what a series varies, for titles and --help.
struct SweepSeries {
  std::string_view name;
  std::string_view summary;
};
[[nodiscard]] std::span<const SweepSeries> sweep_series();

/// The points, in order. Throws Error for an unknown series, system or kernel.
[[nodiscard]] std::vector<SweepCase> plan_sweep(const KernelTable& table, const SweepOptions& options);

/// Runs the case and measures it. Whatever the kernel does becomes the record's verdict, and the figures are
/// NaN if there was nothing to measure.
[[nodiscard]] Measurement measure(const SweepCase& point, const KernelTable& table);

/// A point that has this judgement and no figures.
[[nodiscard]] Measurement unmeasured(const SweepCase& point, const KernelTable& table, Judgement judgement);

}  // namespace samestate
