#include "fuzz/plan/edge_cases.h"

#include <algorithm>
#include <utility>

#include "fuzz/plan/draw.h"
#include "fuzz/plan/factors.h"
#include "fuzz/plan/wide_calls.h"
#include "harness/cases/keys.h"

namespace samestate {

EdgeCases::EdgeCases(const KernelTable& table, const KernelRow& kernel)
    : table_(table), kernel_(kernel), start_(start_of(kernel)) {}

Case EdgeCases::under(const std::string& contract) const {
  Case c = start_;
  c.contract = contract;
  return c;
}

const std::string& EdgeCases::rounding_contract() const {
  const auto bf16 = std::ranges::find(kernel_.contracts, "bf16");
  return bf16 != kernel_.contracts.end() ? *bf16 : kernel_.contracts.back();
}

std::vector<std::string> EdgeCases::two_contracts() const {
  std::vector<std::string> both{kernel_.contracts.front()};
  if (rounding_contract() != both.front()) both.push_back(rounding_contract());
  return both;
}

std::vector<Case> EdgeCases::bases(PlanList::Under under_which) const {
  if (under_which == PlanList::Under::start || divides_heads(kernel_)) return {start_};
  std::vector<Case> out;
  for (const std::string& contract :
       under_which == PlanList::Under::each_contract ? kernel_.contracts : two_contracts())
    out.push_back(under(contract));
  return out;
}

bool EdgeCases::chunked() const { return is_chunked(kernel_); }

void EdgeCases::put(Case c) {
  if (c.layout != Case{}.layout && !kernel_.strided) return;
  if (!has_kernels(kernel_, c)) return;
  if (!table_.is_standard(kernel_, c)) c.kernel = kernel_.name;
  if (seen_.insert(format_case(c)).second) out_.push_back({std::move(c), list_});
}

void EdgeCases::put(const Case& c, std::string_view part) { put(with_part(kernel_, c, part)); }

void EdgeCases::put_within(double most, Case c) {
  if (affordable(c, most)) put(std::move(c));
}

bool EdgeCases::affordable(const Case& c, double most) const {
  return possible(c) && work_of(kernel_, c) <= most;
}

Case EdgeCases::few(Case c, Index most) const {
  return few_of_each_size(kernel_, start_, std::move(c), most);
}

bool EdgeCases::fill(Case& c, Index tile, double most) const {
  const auto fits = [&](const Case& of) {
    return possible(of) && within_limits(kernel_, of) && work_of(kernel_, of) <= most;
  };
  c = few(std::move(c), 2);
  if (!fits(c)) return false;
  std::vector<const CaseSize*> largest_first;
  for (const CaseSize& size : system().sizes) {
    if (size.most > 1) largest_first.push_back(&size);
  }
  std::ranges::stable_sort(largest_first, [](const CaseSize* a, const CaseSize* b) {
    return std::pair(a->start, a->most) > std::pair(b->start, b->most);
  });
  for (const CaseSize* size : largest_first) {
    constexpr Index kFew = 3;  // the smallest count tried
    for (Index value = tile; value >= kFew && value > size_in(c, size->name); value /= 2) {
      Case of = c;
      const Index divisor = size->multiple_of.empty() ? 1 : size_in(of, size->multiple_of);
      size_in(of, size->name) = std::max<Index>(std::min(value, size->most) / divisor, 1) * divisor;
      if (!fits(of)) continue;
      c = std::move(of);
      break;
    }
  }
  return true;
}

Case EdgeCases::decoding(Case c, const CaseForm& form) const {
  c.form = form.name;
  if (form.chunked && !chunked()) c.chunk = 0;
  return c;
}

std::vector<PlannedCase> edge_cases_of(const KernelTable& table, const KernelRow& kernel) {
  EdgeCases to(table, kernel);
  const std::uint8_t kind = divides_heads(kernel) ? PlanList::over_heads
                            : over_ranks(kernel)  ? PlanList::over_tokens
                                                  : PlanList::undivided;
  const std::span<const PlanList> lists = plan_lists();
  // Neighbours that are made from the same cases take turns: all of them under one contract, then under the next.
  for (auto first = lists.begin(), last = first; first != lists.end(); first = last) {
    last = std::find_if(first, lists.end(), [&](const PlanList& list) { return list.under != first->under; });
    for (const Case& base : to.bases(first->under)) {
      for (const PlanList& list : std::span(first, last)) {
        if (list.edges == nullptr || (list.kernels & kind) == 0) continue;
        to.list_ = &list;
        list.edges(to, base, list.most);
      }
    }
  }
  return std::move(to.out_);
}

}  // namespace samestate
