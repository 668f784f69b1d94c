#pragma once

#include <string_view>

#include "fuzz/plan/dice.h"
#include "harness/cases/case_line.h"
#include "harness/run/kernel_table.h"

/// Cases of one kernel: where they begin, what makes a case of choices that were put together, and the work that it takes.
namespace samestate {

/// Returns true if the kernel's form reads chunks.
[[nodiscard]] bool is_chunked(const KernelRow& kernel);

/// Return true if the kernel's form divides tokens or heads among ranks, and if it divides heads.
[[nodiscard]] bool over_ranks(const KernelRow& kernel);
[[nodiscard]] bool divides_heads(const KernelRow& kernel);

/// The cuts that the kernel's ranks have in the case's form, where only one kind is possible.
void settle_cuts(Case& c, const KernelRow& kernel);

/// Makes a case of what was put: what a form or a law needs, sizes that are multiples of others, the lengths of
/// packed sequences. What then is no case all the same, `possible` says.
void settle(Case& c, const KernelRow& kernel, const Dice& dice);

/// Returns the work of trying a case, as a share of the most that a plan gives one drawn case; infinite for sizes that are
/// impossible together.
[[nodiscard]] double work_of(const KernelRow& kernel, const Case& c);

/// A case of the kernel's system, form and contracts with nothing drawn: where plans and draws begin.
[[nodiscard]] Case start_of(const KernelRow& kernel);

/// Puts part of a line (with_keys) into a case of the kernel; without chunks where the kernel has none.
[[nodiscard]] Case with_part(const KernelRow& kernel, const Case& c, std::string_view part);

}  // namespace samestate
