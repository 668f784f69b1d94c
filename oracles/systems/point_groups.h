#pragma once

#include <vector>

#include "oracles/bounds/skipped_points.h"

namespace samestate {

/// Returns what a search of twins leaves out together, of the points that a reference met: all of them, those that are declared
/// alike, those of one table, and each alone; in this order, and each kind in the order in which its first point was met.
[[nodiscard]] std::vector<SkippedPoints> groups_of(const SkippedPoints& met);

}  // namespace samestate
