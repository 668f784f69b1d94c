#include "harness/run/companion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "harness/run/kernel_table.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// Laws whose runs are of both kinds, where the kernel has chunks or whatever it is (oracles/laws/).
constexpr std::string_view kOfChunked = "serving";
constexpr std::string_view kOfAny = "path_equivalence";

bool calls_both(const KernelRow& kernel, const Resolved& r) {
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  if (r.c.law == kOfAny || (chunked && r.c.law == kOfChunked)) return true;
  return std::ranges::any_of(r.path(r.c.T), [&](const Segment& segment) {
    return segment.tokens > 0 && (segment.chunk > 0) != chunked;
  });
}

}  // namespace

std::string with_form(std::string_view kernel, std::string_view form) {
  const std::size_t dot = kernel.rfind('.');
  return std::string(kernel.substr(0, dot == kernel.npos ? 0 : dot + 1)) + std::string(form);
}

bool keeps(std::string_view form, const std::vector<std::string>& contracts, bool any_contract,
           const Resolved& r) {
  return any_contract || std::ranges::any_of(contracts, [&](const std::string& promised) {
           return promised == r.c.contract ||
                  (form == "recurrent" &&
                   recurrent_keeps(contract_named(promised), contract_named(r.c.contract), r.c.l2norm));
         });
}

bool has_kernels(const KernelRow& kernel, const Case& c) {
  const std::optional<Resolved> r = resolved(c);
  if (!r) return false;
  if (kernel.companion.name.empty() || !calls_both(kernel, *r)) return true;
  const Companion& other = kernel.companion;
  return other.there && keeps(other.form, other.contracts, other.any_contract, *r);
}

std::string not_planned(const KernelRow& kernel) {
  if (kernel.companion.name.empty()) return "";
  std::vector<std::string> without;
  for (const std::string& contract : kernel.contracts) {
    Case c = kernel.system->standard();
    c.form = kernel.form;
    c.law = kOfAny;
    c.contract = contract;
    if (!has_kernels(kernel, c)) without.push_back(contract);
  }
  if (without.empty()) return "";
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  return fmt::format(
      "{}: cases that call with chunks and without ({}law={}{}) are not planned{}: they take {} too.",
      kernel.name, chunked ? "form=decode, " : "", kOfAny, chunked ? fmt::format(", law={}", kOfChunked) : "",
      without.size() == kernel.contracts.size() ? "" : fmt::format(" under {}", fmt::join(without, ", ")),
      kernel.companion.name);
}

}  // namespace samestate
