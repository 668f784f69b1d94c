#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"

/// In the recurrent family, calls with chunks and calls without are made by two kernels whose names differ in
/// the last part. A case that makes both kinds uses the other kernel too.
namespace samestate {

struct KernelRow;

/// The kernel of the other kind that belongs to a row, as far as plans need to know it.
struct Companion {
  std::string name;  ///< the name it would have, even if there is none
  bool there = false;
  std::string form;
  std::vector<std::string> contracts = {};
  bool any_contract = false;
};

/// The name of the same kernel in another form: only its last part differs.
[[nodiscard]] std::string with_form(std::string_view kernel, std::string_view form);

/// True if a kernel of that form that promises `contracts` keeps the case's contract, or one that its form
/// treats the same.
[[nodiscard]] bool keeps(std::string_view form, const std::vector<std::string>& contracts, bool any_contract,
                         const Resolved& r);

/// True if every call of the case has a kernel: this row, or its companion, which is used if it keeps the
/// contract. False for an invalid case. True for operators, whose calls all go to the kernel itself.
[[nodiscard]] bool has_kernels(const KernelRow& kernel, const Case& c);

/// A sentence that says what is not planned for a kernel without a companion, and what would be needed; empty
/// if nothing is left out.
[[nodiscard]] std::string not_planned(const KernelRow& kernel);

}  // namespace samestate
