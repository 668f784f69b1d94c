#include "harness/run/kernel_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "harness/run/makes_calls.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Names the key that the kernel does not fit: its form, the ranks or the chunk.
std::string why_no_calls(const Resolved& r, const KernelRow& row) {
  const CaseForm& own = *r.system->form(row.form);
  const std::string kernel = fmt::format("kernel={}", row.name);
  if (r.system->native(r.c.form)) {
    return fmt::format("{} is of form={} and makes no calls of form={}; write form={}", kernel, row.form,
                       r.c.form, row.form);
  }
  if (r.c.ranks > 1 && !own.ranked)
    return fmt::format("{} has no ranks, but the case has ranks={}; leave ranks and cuts out", kernel,
                       r.c.ranks);
  if (r.c.ranks > 1 && own.by_heads != r.divides_heads()) {
    return fmt::format("{} divides {}, but cuts={} of form={} divides {}; write {}", kernel,
                       own.by_heads ? "value heads" : "tokens", r.c.cuts, r.c.form,
                       own.by_heads ? "tokens" : "value heads",
                       own.by_heads ? "cuts=heads" : "cuts=even or cuts=drawn");
  }
  if (!r.form->chunked)
    return fmt::format("{} is of form={} and makes no calls of form={}, which is one chunk; write form={}",
                       kernel, row.form, r.c.form, row.form);
  return fmt::format(
      "{} makes no calls of form={} with chunk={}: its own form is {}, and chunk=0 means without chunks; "
      "write "
      "chunk={}",
      kernel, r.c.form, r.c.chunk, row.form, own.chunked ? Case{}.chunk : 0);
}

/// Returns ", or kernel=NAME" for a kernel that evaluates the case, preferably on the row's device; empty if
/// there is none.
std::string instead_of(std::span<const KernelRow> all, const KernelRow& row, const Resolved& r) {
  const KernelRow* found = nullptr;
  for (const KernelRow& other : all) {
    if (other.system != r.system || !r.system->evaluates(r, other.form)) continue;
    if (found == nullptr || (other.device == row.device && found->device != row.device)) found = &other;
  }
  return found == nullptr ? "" : fmt::format(", or kernel={}", found->name);
}

}  // namespace

KernelChoice KernelTable::choose(const Resolved& r) const {
  const std::string& wanted = r.c.kernel;
  // Without a name, take the first kernel that evaluates the form; decoded and packed runs are calls of other
  // forms.
  const KernelRow* row = wanted.empty() ? nullptr : &row_named(wanted);
  if (row != nullptr && row->system != r.system) {
    throw Error(fmt::format("kernel={} computes {}, not {}", wanted, row->system->name, r.c.system));
  }
  std::vector<std::string_view> known;
  std::vector<std::string> forms;
  for (const KernelRow& other : all_) {
    if (other.system != r.system) continue;
    known.push_back(other.name);
    const std::string form = "form=" + other.form;
    if (std::ranges::find(forms, form) == forms.end()) forms.push_back(form);
    if (row == nullptr && wanted.empty() && r.system->evaluates(r, other.form)) row = &other;
  }
  if (row != nullptr && !makes_calls(r, row->form))
    throw Error(fmt::format("{}{}", why_no_calls(r, *row), instead_of(all_, *row, r)));
  if (row == nullptr) {
    throw Error(
        fmt::format("no kernel of {} evaluates form={}{}; write {}: {}", r.c.system, r.c.form,
                    r.c.form == r.system->forms.front().name ? ", which a line without form= means" : "",
                    fmt::join(forms, " or "), fmt::join(known, ", ")));
  }
  const bool chunked = row->system->form(row->form)->chunked;
  const CaseForm* over_ranks = r.c.ranks > 1 ? row->system->ranked(r.divides_heads()) : nullptr;
  const KernelRow* other = find(with_form(row->name, chunked                 ? "recurrent"
                                                     : over_ranks != nullptr ? over_ranks->name
                                                                             : "chunked"));
  // Its calls are judged by the case's contract, so it is used only if it keeps that contract.
  if (other != nullptr && !keeps(other->form, other->contracts, other->any_contract, r)) other = nullptr;
  return {row, chunked ? row : other, chunked ? other : row};
}

bool KernelTable::is_standard(const KernelRow& row, Case c) const {
  // A line that runs on a plugin's kernel names it: without the name, other commands would search the plugin
  // for any kernel.
  if (std::ranges::find(added(), row.name, &KernelRow::name) != added().end()) return false;
  c.kernel.clear();
  return choose(Resolved(c)).named == &row;
}

}  // namespace samestate
