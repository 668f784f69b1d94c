#pragma once

#include <string_view>
#include <vector>

#include "oracles/systems/operator.h"
#include "reference/point.h"

/// Returns the rounding points of a system: those that its forms meet.
namespace samestate {

/// Points that the forms of an operator meet in a small call, in 16 bit or on a tf32 unit, with and without its optional parts,
/// in every order that a softmax is taken in; in the order of a search.
[[nodiscard]] std::vector<Point> points_of(const Operator& op);

/// The names of the operators that meet a point, in the order of the table of operators.
[[nodiscard]] std::vector<std::string_view> systems_of(Point point);

}  // namespace samestate
