#pragma once

#include <span>
#include <string_view>

#include "reference/contract.h"

namespace samestate {

/// A contract and what it stands for, for `samestate list contracts`.
struct NamedContract {
  Contract contract;
  std::string_view summary;
};

/// Every contract that a case line may name (BOUNDS 1 and 9: the cards of the validation campaign).
[[nodiscard]] std::span<const NamedContract> contracts();

/// The contract of that name. Throws Error that lists the names.
[[nodiscard]] const Contract& contract_named(std::string_view name);

/// True where some operand, storage or output is rounded below fp32: then the kernel is also held against its
/// twin.
[[nodiscard]] bool low_precision(const Contract& contract);

/// True where the carried state is stored below fp32: errors then add up coherently in time (BOUNDS 9.5).
[[nodiscard]] bool low_precision_state(const Contract& contract);

/// What the recurrent form makes of a contract: it multiplies vectors, so it sums in fp32 and has no chunk
/// operands; only the roundings of q and k, state and output and the exponential remain.
[[nodiscard]] Contract recurrent_contract(const Contract& contract);

/// The contract of a kernel that normalises q and k itself: where its inputs are 16 bit it stores the
/// normalised values in that format again before they are multiplied (BOUNDS 5), so qk is rounded.
[[nodiscard]] Contract with_l2norm(const Contract& contract);

/// The contract with every format at fp32: what is left of its errors is what the order of fp32 sums, the
/// accumulator and the exponential make. Kernel and twin share all the other roundings, so this is how far
/// apart they may be.
[[nodiscard]] Contract sums_only(const Contract& contract);

}  // namespace samestate
