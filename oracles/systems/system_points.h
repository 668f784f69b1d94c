#pragma once

#include <string_view>
#include <vector>

#include "oracles/systems/operator.h"
#include "reference/point.h"

/// The rounding points of a system: those that its forms reach.
namespace samestate {

/// The points that the forms of an operator reach in a small call, in 16 bits or on a tf32 unit, with and
/// without its optional parts, and in every order in which a softmax is taken; in search order.
[[nodiscard]] std::vector<Point> points_of(const Operator& op);

/// The names of the operators that reach a point, in the order of the table of operators.
[[nodiscard]] std::vector<std::string_view> systems_of(Point point);

}  // namespace samestate
