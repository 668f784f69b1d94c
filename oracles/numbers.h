#pragma once

#include <limits>

/// Infinity and NaN under short names. For sources only; a header spells them out.
namespace samestate {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

}  // namespace samestate
