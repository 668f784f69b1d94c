#include "harness/cases/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "harness/cases/case_line.h"
#include "harness/cases/system.h"
#include "oracles/judge_policy.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// The unit in which work is counted: a plan's unit is the most that a seeded case may take (System::work),
/// and a millionth of it is less than starting a case takes.
constexpr double kSteps = 1e6;
/// The most that one item counts, so that any sum that fits in memory stays far from overflow.
constexpr double kMost = 1e12;

std::int64_t counted_work(double work) {
  return work > 0.0 ? std::llround(std::min(kMost, work * kSteps)) : 0;
}

}  // namespace

std::vector<std::int64_t> shards_by_work(std::span<const double> work, std::int64_t count) {
  if (count < 1 || count > kMostShards)
    throw Error(fmt::format("{} shards: 1 to {} can be made", count, kMostShards));
  std::vector<std::int64_t> counted(work.size());
  std::transform(work.begin(), work.end(), counted.begin(), counted_work);
  std::vector<std::size_t> order(work.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return counted[a] > counted[b]; });
  using Load =
      std::pair<std::int64_t, std::int64_t>;  // the work so far and the number of items, so that items that
                                              // take no time are spread too
  struct Filled {
    Load load;
    std::int64_t shard;
    bool operator>(const Filled& other) const {
      return std::pair(load, shard) > std::pair(other.load, other.shard);
    }
  };
  std::priority_queue<Filled, std::vector<Filled>, std::greater<>> least;
  for (std::int64_t shard = 0; shard < count; ++shard) least.push({{0, 0}, shard});
  std::vector<std::int64_t> out(work.size());
  for (const std::size_t i : order) {
    Filled to = least.top();
    least.pop();
    out[i] = to.shard;
    to.load.first += counted[i];
    ++to.load.second;
    least.push(to);
  }
  return out;
}

std::vector<std::size_t> part_of(std::span<const double> work, const Shard& shard) {
  if (shard.index < 0 || shard.index >= shard.count)
    throw Error(fmt::format("shard {}/{}: the first of them is 0, the last {}", shard.index, shard.count,
                            shard.count - 1));
  const std::vector<std::int64_t> of = shards_by_work(work, shard.count);
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < of.size(); ++i) {
    if (of[i] == shard.index) out.push_back(i);
  }
  return out;
}

double measured_share(std::string_view system) {
  constexpr double kNamed = 0.25, kScan = 1.2;
  return system == "selective_scan" || system == "normalised_retention_recurrence" ? kScan : kNamed;
}

double judging_work(const Case& c) { return kStartingWork + system_named(c.system).work(c, kGatePolicy); }

}  // namespace samestate
