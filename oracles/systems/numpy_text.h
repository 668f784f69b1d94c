#pragma once

#include <string_view>

namespace samestate {

/// The equation of a system as Python that needs only `import numpy as np` and computes in float64; empty if
/// its row has none, because the equation is not short enough. It defines one function.
///
/// For a system of the recurrent family: `reference(q, k, v, g, beta, S, scale)` for one head of one
/// sequence, with q and k [T, dk] (normalised if the case asks for it), v [T, dv], g the natural log of the
/// decay and beta [T] (None if the system does not read it), S [dk, dv]; it returns o [T, dv] and the final
/// state.
///
/// For any other: `reference(x, size)` for one sequence, with x the tensors of the row's signature by name in
/// their shapes, and size the parameters of the case line by name; it returns the outputs by name in their
/// shapes.
[[nodiscard]] std::string_view numpy_text(std::string_view system);

}  // namespace samestate
