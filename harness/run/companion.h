#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/resolved.h"

/// Calls with chunks and calls without are two kernels' in the recurrent family, of one name but for its last part. A case
/// that makes both takes the other kernel too.
namespace samestate {

struct KernelRow;

/// The kernel of the other kind that stands beside a row, as far as a plan asks of it.
struct Companion {
  std::string name;  ///< also where there is none: what it would be called
  bool there = false;
  std::string form;
  std::vector<std::string> contracts = {};
  bool any_contract = false;
};

/// A name of the same kernels in another form: it differs in its last part alone.
[[nodiscard]] std::string with_form(std::string_view kernel, std::string_view form);

/// Whether a kernel of that form that promises `contracts` keeps the case's, or one of which its form makes the same.
[[nodiscard]] bool keeps(std::string_view form, const std::vector<std::string>& contracts, bool any_contract,
                         const Resolved& r);

/// Whether every call of the case has a kernel: this row, or its companion, which is asked where it keeps the contract. False
/// for what is no case. Of operators true: their calls are all the kernel's own.
[[nodiscard]] bool has_kernels(const KernelRow& kernel, const Case& c);

/// What is not planned of a kernel that stands alone, and what it would take: a sentence; empty where nothing is left out.
[[nodiscard]] std::string not_planned(const KernelRow& kernel);

}  // namespace samestate
