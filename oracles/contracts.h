#pragma once

#include <span>
#include <string>
#include <string_view>

#include "reference/contract.h"

namespace samestate {

/// A contract and what it stands for, for `samestate list contracts`.
struct NamedContract {
  Contract contract;
  std::string_view summary;
};

/// Every contract that has a name (BOUNDS 1 and 9: the cards of the validation campaign); a case line may change points
/// of one (contract_points.h).
[[nodiscard]] std::span<const NamedContract> contracts();

/// The contract of that name, or of that name and changes, `bf16+beta_k:bf16`; its own name is the canonical text. It
/// stays where it is while the process lives. Throws Error that names what is wrong, the nearest and all.
[[nodiscard]] const Contract& contract_named(std::string_view name);

/// The same of points, whatever their name.
[[nodiscard]] const Contract& contract_of(Contract points);

/// The text of that contract with a card that is nearest: its twin is reported and does not gate.
[[nodiscard]] std::string nearest_card(std::string_view name);

/// The same with an exact card: the twin gates.
[[nodiscard]] const Contract& exact_contract(std::string_view name);

/// The named contract of which its text is changes.
[[nodiscard]] std::string_view base_of(const Contract& contract);

/// True where some operand, storage or output is rounded below fp32: then the kernel is also held against its
/// twin.
[[nodiscard]] bool low_precision(const Contract& contract);

/// True where the carried state is stored below fp32: errors then add up coherently in time (BOUNDS 9.5).
[[nodiscard]] bool low_precision_state(const Contract& contract);

/// What the recurrent form makes of a contract: it multiplies vectors, so it sums in fp32 and has no chunk
/// operands; only the roundings of q and k, state and output and the exponential remain.
[[nodiscard]] Contract recurrent_contract(const Contract& contract);

/// Whether a recurrent kernel that promises the one keeps the other: its form makes the same of both, names and certainty
/// of their cards apart, or has an exact exponential for ex2; without an l2norm how it is rounded is no difference.
[[nodiscard]] bool recurrent_keeps(const Contract& promised, const Contract& asked, bool l2norm);

/// The contract of a kernel that normalises q and k itself: where its inputs are 16 bit it stores the
/// normalised values in that format again before they are multiplied (BOUNDS 5), so qk is rounded.
[[nodiscard]] Contract with_l2norm(const Contract& contract);

/// The contract with every format at fp32: what is left of its errors is what the order of fp32 sums, the
/// accumulator and the exponential make. Kernel and twin share all the other roundings, so this is how far
/// apart they may be.
[[nodiscard]] Contract sums_only(const Contract& contract);

/// The largest finite value of the narrowest range among the formats of operands, storage and output.
[[nodiscard]] double largest_format_value(const Contract& contract);

/// Up to which size every integer is one of all formats of operands and stored matrices: 1 / u of the coarsest.
[[nodiscard]] double largest_integer(const Contract& contract);

/// To what a matrix unit rounds the operands of an operator's products: tf32, tf32_truncated or tf32x3 of a contract whose storage is
/// fp32; none otherwise, since operands of 16 bit are stored so before they are multiplied.
[[nodiscard]] Format unit_operand(const Contract& contract);

/// Whether what it rounds is tf32 operands: beside them the order of fp32 sums counts for more than beside 16 bits.
[[nodiscard]] bool of_tf32(const Contract& contract);

}  // namespace samestate
