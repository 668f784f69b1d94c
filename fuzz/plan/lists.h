#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"

namespace samestate {

class EdgeCases;
class KernelTurns;

/// One list of the cases that a plan tries: what it adds, how many, and why.
struct PlanList {
  /// The kernels that have the list, by what their form divides among ranks.
  enum Kernels : std::uint8_t { undivided = 1, over_tokens = 2, over_heads = 4, all = 7 };
  /// The cases from which its cases are made (start_of): one; one under each contract; or one under the first
  /// contract and one under the contract that rounds. For kernels that divide heads it is always one.
  enum class Under : std::uint8_t { start, each_contract, two_contracts };

  std::string_view name;
  std::string_view adds;  ///< its cases
  std::string_view why;   ///< a sentence: the pairs, faults or adversary that it exists for
  /// The share of its cases that a plan contains. Edges and pairs together take at most half of the kernel's
  /// time.
  std::string_view share = "all, or evenly spread ones where time is short";
  std::uint8_t kernels = all;
  Under under = Under::start;
  /// The System::work up to which the list enlarges its cases.
  double most = std::numeric_limits<double>::infinity();
  /// Adds the edge cases that are made from `base`; null for lists that are not edges.
  void (*edges)(EdgeCases& to, const Case& base, double most) = nullptr;
  /// Makes the cases that take turns with those of other kernels, after all edges; null for edges.
  std::vector<Case> (*turns)(KernelTurns& of) = nullptr;
  bool joins = false;  ///< its cases are spread over the plan together with those of the preceding row

  /// "ADDS (SHARE). WHY", for a person.
  [[nodiscard]] std::string text() const;
};

/// A case of a plan, and the list that it comes from.
struct PlannedCase {
  Case c;
  const PlanList* list = nullptr;
};

/// Every list, in the order of the plan. The corpus, which gates replay before the plan, comes first.
[[nodiscard]] std::span<const PlanList> plan_lists();

/// The row of that name. Throws Error if there is none.
[[nodiscard]] const PlanList& plan_list(std::string_view name);

/// The names of rows whose cases are also made elsewhere: by gates, and in the time that ordinary calls
/// leave.
inline constexpr std::string_view kCorpusList = "corpus";
inline constexpr std::string_view kDrawnList = "drawn cases";

}  // namespace samestate
