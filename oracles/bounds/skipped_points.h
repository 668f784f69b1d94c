#pragma once

#include <algorithm>
#include <vector>

#include "reference/point.h"

/// Sets of rounding points. A contract says where a kernel may store; a kernel may leave any of the points out.
namespace samestate {

struct SkippedPoints {
  std::vector<Point> points;

  [[nodiscard]] bool has(Point point) const {
    return std::find(points.begin(), points.end(), point) != points.end();
  }
  void sort() { std::sort(points.begin(), points.end()); }
  /// Returns true if there are points of a softmax that takes its keys so.
  [[nodiscard]] bool takes_keys(PointKeys keys) const {
    return std::any_of(points.begin(), points.end(), [&](Point x) { return x.table().keys == keys; });
  }
  /// Unless it is there.
  void add(Point point) {
    if (!has(point)) points.push_back(point);
  }
};

}  // namespace samestate
