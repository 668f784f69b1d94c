#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/contract.h"

/// The grammar of contracts: a named base and changes, `bf16+beta_k:bf16+inverse:block16/tf32_truncated`. Points of the recurrent
/// family have rows here; those of the other systems stand beside their equations, `bf16+softmax_attention.weights:fp32`
/// (named_points.h).
namespace samestate {

/// One rounding point, or one setting, of a contract.
struct ContractPoint {
  std::string_view name;
  std::string_view means;
  std::vector<std::string_view> values;  ///< that it takes
  std::string (*value)(const Contract&) = nullptr;
  /// Throws nothing: `value` is one of `values`.
  void (*set)(Contract&, std::string_view value) = nullptr;
  /// Which forms have the point: in the other two it makes no difference.
  bool recurrent = false;  ///< the recurrent form reads it too
  bool delta = false;      ///< only systems with the delta rule have it
};

/// Every point, in the order in which data reach it.
[[nodiscard]] std::span<const ContractPoint> contract_points();

/// Throws Error that names the nearest and all.
[[nodiscard]] const ContractPoint& contract_point(std::string_view name);

/// Points that do not exist beside others at the value that stands for it, so that contracts which mean the same are
/// equal: beta_v, beta_exp_k, U and W beside a residual, the order of merges without any, log2e without ex2.
void settle(Contract& c);

/// Whether all points are equal, whatever the names.
[[nodiscard]] bool same_points(const Contract& a, const Contract& b);

/// `c` with one point changed and settled; empty where its value has no place in it (`why`, if given, says which).
[[nodiscard]] bool changed(Contract& c, std::string_view point, std::string_view value,
                           std::string* why = nullptr);

/// `text` read as changes of `bases` (names and settled contracts, the first match counts). Throws Error, `contract=..`,
/// that names what is wrong in it, what is allowed and the nearest. Of the name there are only the points of systems that
/// are switched (named_points.h), for format_contract().
[[nodiscard]] Contract parse_contract(std::string_view text, std::span<const Contract> bases);

/// The contract as the case line has it: the name of the base that it equals, else the base that it differs from in the
/// fewest points (of several the first) and the changes in alphabetical order.
[[nodiscard]] std::string format_contract(const Contract& c, std::span<const Contract> bases);

/// The `most` of `known` that are nearest to `name` by edits, those that are far left out.
[[nodiscard]] std::vector<std::string_view> nearest_names(std::string_view name,
                                                          std::span<const std::string_view> known,
                                                          std::size_t most = 3);

[[nodiscard]] std::string_view name_of(Format format);

/// Whether every value of `inner` is one of `outer`.
[[nodiscard]] bool holds(Format outer, Format inner);

}  // namespace samestate
