#pragma once

#include <string_view>

namespace samestate {

/// The equation of a system as Python that needs `import numpy as np` alone and computes in float64; empty where its row has
/// none, since the equation is no short text. It defines one function.
///
/// A system of the recurrent family: `reference(q, k, v, g, beta, S, scale)` of one head of one sequence, q and k [T, dk]
/// (normalised where the case asks), v [T, dv], g the natural log of the decay and beta [T] (None where the system reads
/// none), S [dk, dv]; it returns o [T, dv] and the final state.
///
/// Any other: `reference(x, size)` of one sequence, x the tensors of the row's signature by name in their shapes, size the
/// parameters of the case line by name; it returns the outputs by name in their shapes.
[[nodiscard]] std::string_view numpy_text(std::string_view system);

}  // namespace samestate
