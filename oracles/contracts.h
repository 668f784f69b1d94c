#pragma once

#include <span>
#include <string>
#include <string_view>

#include "reference/contract.h"

namespace samestate {

/// A contract and its description, for `samestate list contracts`.
struct NamedContract {
  Contract contract;
  std::string_view summary;
};

/// Every contract that has a name (BOUNDS 1 and 9: the cards of the validation campaign). A case line may
/// change points of one (contract_points.h).
[[nodiscard]] std::span<const NamedContract> contracts();

/// The contract of that name, or of that name with changes, `bf16+beta_k:bf16`; its own name is the canonical
/// text. The reference stays valid as long as the process lives. Throws Error that says what is wrong, names
/// the nearest one and lists all.
[[nodiscard]] const Contract& contract_named(std::string_view name);

/// The same from points, whatever their name.
[[nodiscard]] const Contract& contract_of(Contract points);

/// The text of that contract as a nearest card: the distance to its twin is reported and does not gate.
[[nodiscard]] std::string nearest_card(std::string_view name);

/// The same contract as an exact card: the twin gates.
[[nodiscard]] const Contract& exact_contract(std::string_view name);

/// The named contract from which this one is derived.
[[nodiscard]] std::string_view base_of(const Contract& contract);

/// True if some operand, storage or output is rounded below fp32: then the kernel is also compared with its
/// twin.
[[nodiscard]] bool low_precision(const Contract& contract);

/// True if the carried state is stored below fp32: errors then add up coherently over time (BOUNDS 9.5).
[[nodiscard]] bool low_precision_state(const Contract& contract);

/// The part of a contract that applies to the recurrent form: it multiplies vectors, so it sums in fp32 and
/// has no chunk operands; only the roundings of q and k, state and output and the exponential remain.
[[nodiscard]] Contract recurrent_contract(const Contract& contract);

/// True if a recurrent kernel that promises one contract keeps the other: both mean the same for its form,
/// apart from names and the certainty of their cards, or the promise has an exact exponential where ex2 is
/// asked. Without an l2norm, the way it is rounded makes no difference.
[[nodiscard]] bool recurrent_keeps(const Contract& promised, const Contract& asked, bool l2norm);

/// The contract of a kernel that normalises q and k itself: if its inputs have 16 bits, it stores the
/// normalised values in that format again before they are multiplied (BOUNDS 5), so qk is rounded.
[[nodiscard]] Contract with_l2norm(const Contract& contract);

/// The contract with every format at fp32: its errors come only from the order of fp32 sums, the accumulator
/// and the exponential. Kernel and twin share all other roundings, so this bounds their distance.
[[nodiscard]] Contract sums_only(const Contract& contract);

/// The largest finite value of the narrowest range among the formats of operands, storage and output.
[[nodiscard]] double largest_format_value(const Contract& contract);

/// The size up to which every integer is a number of all formats of operands and stored matrices: 1 / u of
/// the coarsest.
[[nodiscard]] double largest_integer(const Contract& contract);

/// The format to which a matrix unit rounds the operands of an operator's products: tf32, tf32_truncated or
/// tf32x3 for a contract with fp32 storage; none otherwise, since operands of 16 bits are stored in their
/// format before they are multiplied.
[[nodiscard]] Format unit_operand(const Contract& contract);

/// True if its rounded operands are tf32: compared with them, the order of fp32 sums matters more than it
/// does in 16 bits.
[[nodiscard]] bool of_tf32(const Contract& contract);

}  // namespace samestate
