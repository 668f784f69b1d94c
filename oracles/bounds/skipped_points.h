#pragma once

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "reference/rounding_point.h"

/// Sets of rounding points. A contract says where a kernel may store; a kernel may leave any of the places out.
namespace samestate {

[[nodiscard]] inline bool same_place(const PointPlace& x, const PointPlace& y) {
  return x.line() == y.line() && x.column() == y.column() &&
         (x.file_name() == y.file_name() || std::strcmp(x.file_name(), y.file_name()) == 0);
}

struct SkippedPoints {
  std::vector<PointPlace> places;

  [[nodiscard]] bool has(const PointPlace& place) const {
    return !places.empty() && std::any_of(places.begin(), places.end(),
                                          [&](const PointPlace& x) { return same_place(x, place); });
  }
  void sort() {
    std::sort(places.begin(), places.end(), [](const PointPlace& x, const PointPlace& y) {
      const int order = std::strcmp(x.file_name(), y.file_name());
      return order != 0 ? order < 0 : std::pair(x.line(), x.column()) < std::pair(y.line(), y.column());
    });
  }
  /// Unless it is there.
  void add(const PointPlace& place) {
    if (!has(place)) places.push_back(place);
  }
};

}  // namespace samestate
