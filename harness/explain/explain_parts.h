#pragma once

#include <string>
#include <vector>

#include "harness/explain/explain.h"
#include "harness/explain/explain_head.h"
#include "oracles/systems/last_axis.h"

/// The parts of explain() that all kinds of systems share.
namespace samestate {

/// Adds the values of a row around its worst column, a position on the last axis.
void show_row(Explanation& out, const std::string& place, const LastAxis& axis, const Matrix<double>& exact,
              const Matrix<double>& actual, Index row);

/// The column of a row in which the two differ most.
[[nodiscard]] Index worst_column(const Matrix<double>& exact, const Matrix<double>& actual, Index row);

/// Says which heads differ and shows values at the worst place of the worst one, which is returned; null if
/// none differs. `r` determines the chunks.
const HeadDifference* show_differences(Explanation& out, const Resolved& r,
                                       const std::vector<HeadDifference>& heads);

[[nodiscard]] Explanation explain_law(const Resolved& r, const Family& family, const Trace& trace);

}  // namespace samestate
