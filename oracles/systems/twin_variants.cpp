#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "oracles/limits.h"
#include "oracles/systems/in_doubt.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/point_groups.h"

/// The twins that a kernel may have.
namespace samestate {

std::string TwinVariant::words() const {
  std::string out;
  for (const Point& point : skipped.points)
    out += fmt::format("{}{}", out.empty() ? "not stored at " : ", ", point.name());
  const auto add = [&](const std::string& words) { out += (out.empty() ? "" : ", ") + words; };
  if (softmax.divides_last) add("weights divided last");
  if (sums_stored) add("the sum of stored weights");
  if (softmax.key_tile > 0) add(fmt::format("keys in tiles of {}", softmax.key_tile));
  if (softmax.lazy_by > 0.0) add(fmt::format("a maximum raised only by more than {:.3g}", softmax.lazy_by));
  if (softmax.last_keys_first) add("the last keys first");
  const std::string_view under = softmax.largest_of_part ? ", each under its largest score" : "";
  if (softmax.keys_a_part > 0) {
    add(fmt::format("keys in independent parts of {}{}", softmax.keys_a_part, under));
  } else if (softmax.parts > 1) {
    add(fmt::format("keys in {} independent parts{}", softmax.parts, under));
  }
  return out;
}

std::vector<SkippedPoints> groups_of(const SkippedPoints& met) {
  std::vector<SkippedPoints> groups{met};
  const auto by = [&](auto&& alike) {
    for (const Point& point : met.points) {
      SkippedPoints group;
      for (const Point& other : met.points) {
        if (point == other || alike(point, other)) group.add(other);
      }
      const bool begins = group.points.front() == point;
      if (begins && group.points.size() > 1 && group.points.size() < met.points.size())
        groups.push_back(std::move(group));
    }
  };
  const auto same_table = [](const Point& x, const Point& y) { return &x.table() == &y.table(); };
  by([&](const Point& x, const Point& y) {
    return same_table(x, y) && !x.row().alike.empty() && x.row().alike == y.row().alike;
  });
  by(same_table);
  for (const Point& point : met.points) groups.push_back({{point}});
  return groups;
}

std::vector<SkippedPoints> TwinSearch::moves() const { return groups_of(met_); }

std::vector<TwinVariant> TwinSearch::together() const {
  const std::size_t points = met_.points.size();
  std::vector<TwinVariant> variants;
  const auto add = [&](auto&& has) {
    TwinVariant variant;
    for (std::size_t i = 0; i < points; ++i) {
      if (has(i)) variant.skipped.add(met_.points[i]);
    }
    variant.skipped.sort();
    variants.push_back(std::move(variant));
  };
  if (std::ssize(met_.points) <= policy_.twin_subsets) {
    for (std::size_t subset = 1; subset < std::size_t{1} << points; ++subset)
      add([&](std::size_t i) { return ((subset >> i) & 1U) != 0; });
  } else {
    for (std::size_t one = 0; one < points; ++one) {
      for (std::size_t other = one + 1; other < points; ++other)
        add([&](std::size_t i) { return i == one || i == other; });
    }
  }
  for (const auto& change : orders()) {
    for (std::size_t one = 0; one < points; ++one) {
      add([&](std::size_t i) { return i == one; });
      change(variants.back());
    }
  }
  return variants;
}

std::vector<std::function<void(TwinVariant&)>> TwinSearch::orders() const {
  std::vector<std::function<void(TwinVariant&)>> changes{
      [](TwinVariant& x) { x.softmax.divides_last = true; }, [](TwinVariant& x) { x.sums_stored = true; }};
  // If no form takes the keys in tiles, a kernel has its own.
  const bool whole = met_.takes_keys(PointKeys::whole);
  if (whole || met_.takes_keys(PointKeys::tiles)) {
    changes.emplace_back([](TwinVariant& x) { x.softmax.last_keys_first = true; });
    // FlashAttention-4 uses 8 in the exponent of 2.
    constexpr double kTwo = 0.6931471805599453;
    for (const double by : {8.0 * kTwo, 4.0 * kTwo, 16.0 * kTwo, 4.0, 8.0, 16.0})
      changes.emplace_back([by](TwinVariant& x) { x.softmax.lazy_by = by; });
  }
  for (const Index tile : whole ? std::vector<Index>{16, 32, 64, 128} : std::vector<Index>{}) {
    for (const bool last_first : {false, true})
      changes.emplace_back([tile, last_first](TwinVariant& x) {
        x.softmax.divides_last = true;
        x.softmax.key_tile = tile;
        x.softmax.last_keys_first = last_first;
      });
  }
  return changes;
}

std::vector<TwinVariant> TwinSearch::in_parts() const {
  // A form in tiles uses those of its call.
  std::vector<Index> tiles;
  if (met_.takes_keys(PointKeys::whole)) {
    tiles = {16, 32, 64, 128};
  } else if (met_.takes_keys(PointKeys::tiles) && of_.call.chunk > 0) {
    tiles = {of_.call.chunk};
  }
  const Index keys = tokens_met(of_) + of_.call.behind;
  std::vector<TwinVariant> variants;
  const auto add = [&](Index tile, std::int64_t parts, Index length) {
    for (const bool largest : {false, true}) {
      // With one tile per part both are the same.
      if (largest && length == tile) continue;
      TwinVariant x;
      x.softmax.divides_last = true;
      x.softmax.key_tile = tile;
      x.softmax.parts = parts;
      x.softmax.keys_a_part = length;
      x.softmax.largest_of_part = largest;
      variants.push_back(std::move(x));
    }
  };
  for (const Index tile : tiles) {
    const Index blocks = (keys + tile - 1) / tile;
    std::set<Index> lengths;
    for (Index parts = 2; parts <= std::min<Index>(blocks, 128); ++parts) {
      // A call with fewer keys has shorter parts, so the number is not a length there.
      const Index length = (blocks + parts - 1) / parts;
      const bool fresh = lengths.insert(length).second;
      if (!of_.cuts.empty() && (parts & (parts - 1)) == 0) add(tile, parts, 0);
      if (fresh) add(tile, 0, length * tile);
    }
  }
  return variants;
}

}  // namespace samestate
