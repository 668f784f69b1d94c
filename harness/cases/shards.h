#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// Parts of a plan for several machines: each case is in one of them, and all take alike long.
namespace samestate {

struct Case;

/// More shards than that are no plan, and indices stay far from the end of their type.
inline constexpr std::int64_t kMostShards = 1'000'000;

/// One part of `count`.
struct Shard {
  std::int64_t index = 0;
  std::int64_t count = 1;
};

/// By thing, which of `count` shards it is of, so that all have about the same sum of `work`: the dearest first, each to
/// the shard that has least so far, the lowest of alike ones (Graham 1969, longest processing time first: at most 4/3 of
/// the best division, and within one thing's work of equal). The same on every machine: work counts in whole millionths,
/// in which the last bits of a double do not show. Work that is no number or below 0
/// counts as 0. Throws Error where `count` is not in 1..kMostShards.
[[nodiscard]] std::vector<std::int64_t> shards_by_work(std::span<const double> work, std::int64_t count);

/// The places of those of one shard, ascending. Throws as shards_by_work does, and for an index that is none.
[[nodiscard]] std::vector<std::size_t> part_of(std::span<const double> work, const Shard& shard);

/// What starting a case takes, in the unit of System::work, and seconds of one core that judging one unit takes.
inline constexpr double kStartingWork = 0.01;
inline constexpr double kSecondsOfWork = 0.06;

/// The share of System::work that judging a large case of a system of named tensors really takes. The estimate counts every
/// element as drawn, copied and judged, which is four times too much: so 39,424 ordinary calls of the house's kernels showed. For
/// scans it is too little, since it takes their exponentials for products.
[[nodiscard]] double measured_share(std::string_view system);

/// What judging a case takes in the unit of System::work, what starting it takes included.
[[nodiscard]] double judging_work(const Case& c);

}  // namespace samestate
