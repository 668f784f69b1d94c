#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Divides a plan for several machines: each case is in exactly one part, and all parts take about the same
/// time.
namespace samestate {

struct Case;

/// The largest number of shards; more would be useless, and indices stay far from the end of their type.
inline constexpr std::int64_t kMostShards = 1'000'000;

/// One part out of `count`.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

/// The shard of each item, out of `count`, such that all have about the same sum of `work`: the most
/// expensive items are assigned first, each to the shard with the smallest sum so far, the lowest-numbered
/// among equals (Graham 1969, longest processing time first: at most 4/3 of the best division, and within one
/// item's work of equal). The result is the same on every machine, because work is counted in whole
/// millionths, which hide the last bits of a double. Work that is NaN or negative counts as 0. Throws Error
/// if `count` is not in 1..kMostShards.
[[nodiscard]] std::vector<std::int64_t> shards_by_work(std::span<const double> work, std::int64_t count);

/// The indices of the items in one shard, ascending. Throws Error as shards_by_work does, and for an invalid
/// shard index.
[[nodiscard]] std::vector<std::size_t> part_of(std::span<const double> work, const Shard& shard);

/// The cost of starting a case, in the unit of System::work, and the seconds of one core that judging one
/// unit takes.
inline constexpr double kStartingWork = 0.01;
inline constexpr double kSecondsOfWork = 0.06;

/// The factor by which System::work overestimates judging a large case of a system of named tensors. The
/// estimate counts every element as drawn, copied and judged, which is four times too much, as 39,424
/// ordinary calls of the kernels of this repository showed. For scans it is too low, because it counts their
/// exponentials as products.
[[nodiscard]] double measured_share(std::string_view system);

/// The work of judging a case in the unit of System::work, including that of starting it.
[[nodiscard]] double judging_work(const Case& c);

}  // namespace samestate
