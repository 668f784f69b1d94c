#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract.h"

/// The grammar of contracts: a named base and changes, `bf16+beta_k:bf16+inverse:block16/tf32_truncated`. The
/// points of the recurrent family have rows here; those of the other systems are declared next to their
/// equations, `bf16+softmax_attention.weights:fp32` (named_points.h).
namespace samestate {

/// One rounding point, or one setting, of a contract.
struct ContractPoint {
  std::string_view name;
  std::string_view means;
  std::vector<std::string_view> values;  ///< the values it takes
  std::string (*value)(const Contract&) = nullptr;
  /// Throws nothing: `value` is one of `values`.
  void (*set)(Contract&, std::string_view value) = nullptr;
  /// The forms that have the point; in the others it makes no difference.
  bool recurrent = false;  ///< the recurrent form reads it too
  bool delta = false;      ///< only systems with the delta rule have it
};

/// Every point, in the order in which data reach it.
[[nodiscard]] std::span<const ContractPoint> contract_points();

/// The point of that name. Throws Error that names the nearest one and lists all.
[[nodiscard]] const ContractPoint& contract_point(std::string_view name);

/// Gives points that do not exist together with others the value that stands for absence, so that contracts
/// with the same meaning are equal: beta_v, beta_exp_k, U and W if there is a residual, the order of merges
/// if there are none, log2e without ex2.
void settle(Contract& c);

/// True if all points are equal, whatever the names of the contracts.
[[nodiscard]] bool same_points(const Contract& a, const Contract& b);

/// Changes one point of `c` and settles it. Returns false if the value is not valid together with the others;
/// `why`, if given, says which one.
[[nodiscard]] bool changed(Contract& c, std::string_view point, std::string_view value,
                           std::string* why = nullptr);

/// Reads `text` as changes of one of `bases` (names and settled contracts; the first match counts). Throws
/// Error, `contract=..`, that names what is wrong in it, what is allowed and the nearest alternative. The
/// name of the result only keeps the switched points of other systems (named_points.h), for
/// format_contract().
[[nodiscard]] Contract parse_contract(std::string_view text, std::span<const Contract> bases);

/// The contract as a case line writes it: the name of the base that it equals, or else the base that differs
/// from it in the fewest points (the first of several) and the changes in alphabetical order.
[[nodiscard]] std::string format_contract(const Contract& c, std::span<const Contract> bases);

/// Up to `most` of the `known` names that are nearest to `name` by edit distance, without those that are far
/// away.
[[nodiscard]] std::vector<std::string_view> nearest_names(std::string_view name,
                                                          std::span<const std::string_view> known,
                                                          std::size_t most = 3);

[[nodiscard]] std::string_view name_of(Format format);

/// True if every value of `inner` is a value of `outer`.
[[nodiscard]] bool holds(Format outer, Format inner);

}  // namespace samestate
