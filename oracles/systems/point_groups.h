#pragma once

#include <vector>

#include "oracles/bounds/skipped_points.h"

namespace samestate {

/// The sets of points that a search of twins leaves out together, made from the points that a reference
/// reached: all of them, those that are declared alike, those of one table, and each alone; in this order,
/// and within each kind in the order in which the first point was reached.
[[nodiscard]] std::vector<SkippedPoints> groups_of(const SkippedPoints& met);

}  // namespace samestate
