#pragma once

#include <string_view>

#include "fuzz/plan/dice.h"
#include "harness/cases/case_line.h"
#include "harness/run/kernel_table.h"

/// Cases of one kernel: the starting case, how a combination of choices becomes a valid case, and its work.
namespace samestate {

/// Returns true if the kernel's form reads chunks.
[[nodiscard]] bool is_chunked(const KernelRow& kernel);

/// The first is true if the kernel's form divides tokens or heads among ranks, the second if it divides
/// heads.
[[nodiscard]] bool over_ranks(const KernelRow& kernel);
[[nodiscard]] bool divides_heads(const KernelRow& kernel);

/// Sets the cuts that the kernel's ranks need in the case's form, if only one kind is possible.
void settle_cuts(Case& c, const KernelRow& kernel);

/// Turns a combination of choices into a case: adds what a form or a law needs, makes sizes multiples of
/// others, and sets the lengths of packed sequences. `possible` says if the result is a valid case.
void settle(Case& c, const KernelRow& kernel, const Dice& dice);

/// The work of trying a case, as a share of the maximum that a plan allows one drawn case; infinite for
/// impossible sizes.
[[nodiscard]] double work_of(const KernelRow& kernel, const Case& c);

/// A case of the kernel's system, form and contracts with nothing drawn: plans and draws start from it.
[[nodiscard]] Case start_of(const KernelRow& kernel);

/// Sets part of a line (with_keys) in a case of the kernel; without chunks if the kernel has none.
[[nodiscard]] Case with_part(const KernelRow& kernel, const Case& c, std::string_view part);

}  // namespace samestate
