#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/records/measurement.h"
#include "harness/records/record.h"
#include "reports/plots/plots.h"

/// Selects the plots for a set of measurements. It computes nothing: every number drawn is in a record.
namespace samestate {

/// A measurement from one of several files.
struct SweepPoint {
  Measurement measurement;
  std::size_t source = 0;  ///< index of its file
};

/// The plots of one series, for chunk sizes also of one system and regime.
struct FigureGroup {
  std::string series;
  std::string heading;  ///< title of the series, for a person
  std::string title;
  std::string about;  ///< the settings that all its points share
  std::vector<Figure> figures;
};

/// The points without those that were measured again: a later point with the same series, curve, kernel, case
/// and file replaces an earlier one. In order of first appearance.
[[nodiscard]] std::vector<SweepPoint> latest(std::span<const SweepPoint> points);

/// Groups in the order in which a reader needs them: chunk sizes first. The indices in the marks are those of
/// `points`. A series that this version does not know is drawn against its x, by contract. `sizes`: the keys
/// of case lines that are sizes of tensors.
[[nodiscard]] std::vector<FigureGroup> sweep_figures(std::span<const SweepPoint> points,
                                                     std::span<const std::string> sources,
                                                     const std::set<std::string>& sizes);

/// The distribution of the ratio over judged cases, in bins of 0.05. Empty if there are none.
[[nodiscard]] Figure ratio_figure(std::span<const Record> records);

/// Contracts in order of precision, with others at the end; this determines their colours.
[[nodiscard]] std::vector<std::string> contracts_of(std::span<const SweepPoint> points);

/// The chunk that the errors suggest, for one system, kernel, contract and regime.
struct ChunkAdvice {
  std::string system, kernel, contract, regime;
  std::int64_t least_error = -1;  ///< indices of points
  std::int64_t flat_to = -1;      ///< largest chunk with an RMS error <= `kFlatFactor` times the smallest
  std::int64_t least_flops = -1, least_bytes = -1;  ///< -1 without a cost model
  std::int64_t worst_ratio = -1;
  std::int64_t worst_condition = -1;
  std::int64_t failing = 0;  ///< number of its points that fail: advice from a wrong kernel applies to that
                             ///< kernel only
};
inline constexpr double kFlatFactor = 1.25;
[[nodiscard]] std::vector<ChunkAdvice> chunk_advice(std::span<const SweepPoint> points);

}  // namespace samestate
