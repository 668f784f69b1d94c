#include "harness/run/companion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "harness/run/kernel_table.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// Returns true if the law's runs use calls of both kinds.
bool calls_both(const Law& law, bool chunked) {
  return law.calls == Law::Calls::both || (chunked && law.calls == Law::Calls::both_where_chunked);
}

bool calls_both(const KernelRow& kernel, const Resolved& r) {
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  if (r.law != nullptr && calls_both(*r.law, chunked)) return true;
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
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  std::vector<std::string> kinds, without;
  if (chunked) kinds.emplace_back("form=decode");
  Case c = kernel.system->standard();
  c.form = kernel.form;
  for (const Law* law : kernel.system->laws) {
    if (!calls_both(*law, chunked)) continue;
    kinds.push_back(fmt::format("law={}", law->name));
    if (c.law.empty()) c.law = law->name;
  }
  for (const std::string& contract : kernel.contracts) {
    c.contract = contract;
    if (!has_kernels(kernel, c)) without.push_back(contract);
  }
  if (without.empty()) return "";
  return fmt::format(
      "{}: cases that call with chunks and without ({}) are not planned{}: they take {} too.", kernel.name,
      fmt::join(kinds, ", "),
      without.size() == kernel.contracts.size() ? "" : fmt::format(" under {}", fmt::join(without, ", ")),
      kernel.companion.name);
}

}  // namespace samestate
