#pragma once

#include <string>
#include <vector>

#include "fuzz/plan/dice.h"
#include "harness/cases/case_filter.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The case with a value of each condition that it does not meet, where one can be put there, and with what the kernel's system
/// makes of that (sizes that are multiples of others). The case itself where that is no case, or none of the kernel's.
[[nodiscard]] Case brought_within(Case c, const KernelRow& kernel, const CaseFilter& filter,
                                  const Dice& dice);

/// The places of the cases that the filter takes.
[[nodiscard]] std::vector<std::size_t> places_taken(const std::vector<Case>& cases, const KernelTable& table,
                                                    const CaseFilter& filter);

/// Drops the cases that the filter refuses.
void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter);

/// The values that the filter lists and no case has, as "T=63"; of ranges and patterns none.
[[nodiscard]] std::vector<std::string> values_not_met(const CaseFilter& filter,
                                                      const std::vector<Case>& cases,
                                                      const KernelTable& table);

}  // namespace samestate
