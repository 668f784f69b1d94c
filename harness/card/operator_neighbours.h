#pragma once

#include <span>
#include <vector>

#include "harness/card/neighbours.h"

/// Contracts near that of a case of named tensors: operators have fewer points that a contract names than the family.
namespace samestate {

/// One or two changes away from `c`, in this order: other operands of the matrix unit (fp32, tf32, tf32_truncated; of data
/// in fp32), the other exponential, another format of the outputs (fp32, the data's, those that all of them are `written` in).
[[nodiscard]] std::vector<Contract> operator_contracts_near(const Contract& c, int changes,
                                                            std::span<const Format> written = {});

/// As neighbours_of, of a case of named tensors. Contracts that pass are those under which the worst case, the twin and
/// drawn roundings together judge the outputs right; none is called nearest, since each has a twin of its own choice.
[[nodiscard]] Neighbours operator_neighbours_of(const Resolved& r, const Trace& run, double seconds,
                                                const std::function<bool()>& stop);

}  // namespace samestate
