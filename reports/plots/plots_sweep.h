#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/records/measurement.h"
#include "harness/records/record.h"
#include "reports/plots/plots.h"

/// Which plots a set of measurements gives. Selection only: every drawn number is one of a record.
namespace samestate {

/// A measurement of one of several files.
struct SweepPoint {
  Measurement measurement;
  std::size_t source = 0;  ///< index of its file
};

/// The plots of one series, for chunk sizes also of one system and regime.
struct FigureGroup {
  std::string series;
  std::string heading;  ///< of the series, for a person
  std::string title;
  std::string about;  ///< what all its points share
  std::vector<Figure> figures;
};

/// Points that are measured again (the same series, curve, kernel, case and file) replace the earlier ones.
/// In order of first appearance.
[[nodiscard]] std::vector<SweepPoint> latest(std::span<const SweepPoint> points);

/// Groups in the order in which a reader needs them: chunk sizes first. The indices in the marks are those of
/// `points`. A series that this version does not know is drawn against its x, by contract. `sizes`: the keys of case
/// lines that are sizes of tensors.
[[nodiscard]] std::vector<FigureGroup> sweep_figures(std::span<const SweepPoint> points,
                                                     std::span<const std::string> sources,
                                                     const std::set<std::string>& sizes);

/// The distribution of the ratio over judged cases; counted in bins of 0.05. Empty without any.
[[nodiscard]] Figure ratio_figure(std::span<const Record> records);

/// Contracts in the order of their precision, others behind, and so their colours.
[[nodiscard]] std::vector<std::string> contracts_of(std::span<const SweepPoint> points);

/// What the error says about the chunk, for one system, kernel, contract and regime.
struct ChunkAdvice {
  std::string system, kernel, contract, regime;
  std::int64_t least_error = -1;  ///< indices of points
  std::int64_t flat_to = -1;      ///< the largest chunk whose RMS error is at most `kFlatFactor` of the least
  std::int64_t least_flops = -1, least_bytes = -1;  ///< -1 without a cost model
  std::int64_t worst_ratio = -1;
  std::int64_t worst_condition = -1;
  std::int64_t failing = 0;  ///< of its points: advice from a wrong kernel is of that kernel alone
};
inline constexpr double kFlatFactor = 1.25;
[[nodiscard]] std::vector<ChunkAdvice> chunk_advice(std::span<const SweepPoint> points);

}  // namespace samestate
