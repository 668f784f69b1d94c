#pragma once

#include <algorithm>
#include <vector>

#include "reference/rounding_point.h"

/// Sets of rounding points. A contract says where a kernel may store; a kernel may leave any of the places out.
namespace samestate {

struct SkippedPoints {
  std::vector<PointPlace> places;

  [[nodiscard]] bool has(const PointPlace& place) const {
    return std::find(places.begin(), places.end(), place) != places.end();
  }
  void sort() { std::sort(places.begin(), places.end()); }
  /// Unless it is there.
  void add(const PointPlace& place) {
    if (!has(place)) places.push_back(place);
  }
};

}  // namespace samestate
