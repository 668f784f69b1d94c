#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "harness/cases/resolved.h"
#include "harness/run/plugin.h"
#include "harness/systems/recurrent_system.h"
#include "harness/systems/tensor_system.h"
#include "oracles/contract_points.h"
#include "reference/error.h"

namespace samestate {
namespace {

template <class Rows>
auto* find(Rows& rows, std::string_view name) {
  const auto at = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return at == rows.end() ? nullptr : &*at;
}

const std::vector<std::unique_ptr<const System>>& table() {
  static const std::vector<std::unique_ptr<const System>> rows = [] {
    std::vector<std::unique_ptr<const System>> all;
    // `parallel` is the chunked form with one chunk: without a delta rule it needs no inverse.
    for (const Family& row : families()) all.push_back(std::make_unique<RecurrentSystem>(row, !row.delta));
    for (const Operator& row : operators()) all.push_back(std::make_unique<TensorSystem>(row));
    return all;
  }();
  return rows;
}

}  // namespace

std::span<const System* const> systems() {
  static const std::vector<const System*> rows = [] {
    std::vector<const System*> all;
    for (const auto& row : table()) all.push_back(row.get());
    return all;
  }();
  return rows;
}

const System& system_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const System* row : systems()) {
    if (row->name == name) return *row;
    known.push_back(row->name);
  }
  const std::vector<std::string_view> near = nearest_names(name, known);
  throw Error(fmt::format("system {}: no such system{}{}; `samestate list systems` prints all {}", name,
                          near.empty() ? "" : "; nearest: ", fmt::join(near, ", "), known.size()));
}

std::vector<TensorSpec> System::taps_of(const Resolved&, std::string_view) const { return {}; }

const CaseForm* System::form(std::string_view wanted) const { return find(forms, wanted); }

std::vector<std::string_view> System::form_names() const {
  std::vector<std::string_view> names;
  for (const CaseForm& row : forms) names.push_back(row.name);
  return names;
}

bool System::native(std::string_view wanted) const {
  const CaseForm* row = form(wanted);
  return row != nullptr && !row->decodes && !row->packed && !row->whole;
}

const CaseForm* System::ranked(bool by_heads) const {
  const auto at = std::find_if(forms.begin(), forms.end(), [by_heads](const CaseForm& row) {
    return row.ranked && row.by_heads == by_heads;
  });
  return at == forms.end() ? nullptr : &*at;
}

const Regime* System::regime(std::string_view wanted) const {
  for (const Regime* row : regimes) {
    if (row->name == wanted) return row;
  }
  return nullptr;
}

const Law* System::law(std::string_view wanted) const {
  const auto at = std::ranges::find(laws, wanted, &Law::name);
  return at == laws.end() ? nullptr : *at;
}

bool System::has(Property wanted) const { return properties.has(wanted); }

bool System::evaluates(const Resolved& r, std::string_view kernel_form) const {
  if (native(r.form->name)) return kernel_form == r.form->name;
  if (r.form->whole) return kernel_form == "chunked";
  // The line decides between calls with chunks and calls without; if it does not, any form will do.
  if (r.form->chunked) {
    const CaseForm* own = form(kernel_form);
    if (own != nullptr && own->ranked)
      return !r.unchunked() && (r.c.ranks == 1 || own->by_heads == r.divides_heads());
    return r.c.ranks == 1 && kernel_form == (r.unchunked() ? "recurrent" : "chunked");
  }
  return native(kernel_form);
}

Case System::standard() const {
  Case c;
  c.system = name;
  c.form = forms.front().name;
  for (const CaseSize& size : sizes) {
    if (size.own) c.parameters.emplace(size.name, size.standard);
  }
  return c;
}

bool System::has_key(std::string_view wanted) const {
  return std::find(keys.begin(), keys.end(), wanted) != keys.end();
}

bool System::carries_state(const Case& c) const {
  const auto of_state = [](const TensorSpec& spec) { return spec.axis == Axis::state; };
  return of_family() || std::ranges::any_of(signature(c).inputs, of_state);
}

}  // namespace samestate
