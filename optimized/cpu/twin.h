#pragma once

#include <string_view>

#include "optimized/kernel.h"

namespace samestate {

/// The twin of a kernel: the same call evaluated on the CPU with the contract's rounding points, scan and
/// exponential, and with its accumulator emulated (BOUNDS 10.3): tensor_core sums of 16 exact terms truncated
/// to fp32, or fp32 sums in an order that the CPU kernels do not use. Much slower than a kernel. `system` and
/// `form` are those of the table of kernels; throws Error if there is no such system or form.
[[nodiscard]] Outcome run_twin(std::string_view system, std::string_view form, const Arguments& arguments,
                               const Contract& contract);

}  // namespace samestate
