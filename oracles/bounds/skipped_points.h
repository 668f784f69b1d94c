#pragma once

#include <algorithm>
#include <vector>

#include "reference/point.h"

/// Sets of rounding points. A contract says where a kernel may store; the kernel may leave out any of these
/// points.
namespace samestate {

struct SkippedPoints {
  std::vector<Point> points;

  [[nodiscard]] bool has(Point point) const {
    return std::find(points.begin(), points.end(), point) != points.end();
  }
  void sort() { std::sort(points.begin(), points.end()); }
  /// True if the set contains points of a softmax that takes its keys this way.
  [[nodiscard]] bool takes_keys(PointKeys keys) const {
    return std::any_of(points.begin(), points.end(), [&](Point x) { return x.table().keys == keys; });
  }
  /// Adds the point unless it is in the set.
  void add(Point point) {
    if (!has(point)) points.push_back(point);
  }
};

/// True if a contract that switches these points (null: no point) rounds at this one.
[[nodiscard]] inline bool contract_rounds_at(Point point, const SkippedPoints* switched) {
  return (switched != nullptr && switched->has(point)) == point.row().only_if_named;
}

}  // namespace samestate
