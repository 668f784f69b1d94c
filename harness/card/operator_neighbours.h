#pragma once

#include <span>
#include <vector>

#include "harness/card/neighbours.h"

/// Contracts near that of a case of named tensors. For operators a contract names fewer points than for the
/// recurrent family.
namespace samestate {

/// The contracts one or two changes away from `c`, in this order: other operands of the matrix unit (fp32,
/// tf32, tf32_truncated; for data in fp32), the other exponential, another format of the outputs (fp32, that
/// of the data, or those in which all of them are `written`).
[[nodiscard]] std::vector<Contract> operator_contracts_near(const Contract& c, int changes,
                                                            std::span<const Format> written = {});

/// As neighbours_of, for a case of named tensors. A contract passes if the worst case, the twin and drawn
/// roundings together accept the outputs under it. None is called nearest, since each has a twin of its own
/// choice.
[[nodiscard]] Neighbours operator_neighbours_of(const Resolved& r, const Trace& run, double seconds,
                                                const std::function<bool()>& stop);

}  // namespace samestate
