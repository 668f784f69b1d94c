#pragma once

#include <limits>

/// The two doubles that are no numbers. For sources; a header spells them out.
namespace samestate {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace samestate
