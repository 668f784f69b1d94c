#pragma once

#include <string>
#include <vector>

#include "fuzz/plan/dice.h"
#include "harness/cases/case_filter.h"
#include "harness/run/kernel_table.h"

namespace samestate {

/// The case with a value for each condition that it does not fulfil, if one can be set, and with the
/// adjustments that the kernel's system then needs (sizes that are multiples of others). Returns the case
/// unchanged if the result is not valid, or not for this kernel.
[[nodiscard]] Case brought_within(Case c, const KernelRow& kernel, const CaseFilter& filter,
                                  const Dice& dice);

/// The indices of the cases that the filter accepts.
[[nodiscard]] std::vector<std::size_t> places_taken(const std::vector<Case>& cases, const KernelTable& table,
                                                    const CaseFilter& filter);

/// Drops the cases that the filter refuses.
void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter);

/// The values that the filter lists and no case has, such as "T=63"; ranges and patterns are not included.
[[nodiscard]] std::vector<std::string> values_not_met(const CaseFilter& filter,
                                                      const std::vector<Case>& cases,
                                                      const KernelTable& table);

}  // namespace samestate
