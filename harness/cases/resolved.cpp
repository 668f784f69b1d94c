#include "harness/cases/resolved.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

template <class Rows>
std::string names_of(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(row)>>) {
      names.push_back(row->name);
    } else {
      names.push_back(row.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const Regime& regime_of(const System& system, const std::string& name) {
  if (const Regime* found = system.regime(name)) return *found;
  const auto of_family = std::find_if(regimes().begin(), regimes().end(),
                                      [&](const Regime& other) { return other.name == name; });
  const bool family = system.regimes.front() == &regimes().front();
  if (family && of_family != regimes().end()) {
    throw Error(fmt::format("regime={} is about {}, which {} does not have", name,
                            of_family->gated ? "the decay" : "beta", system.name));
  }
  throw Error(fmt::format("regime={}: {} has the regimes {}", name, system.name, names_of(system.regimes)));
}

}  // namespace

Resolved::Resolved(const Case& from) : c(from), system(&system_named(from.system)) {
  form = system->form(c.form);
  if (form == nullptr) {
    throw Error(fmt::format("form={}: {} has the forms {}", c.form, c.system, names_of(system->forms)));
  }
  check_common(c);
  if (!form->decodes && c.prefill != 0) throw Error("prefill belongs to form=decode");
  if (form->decodes && c.prefill > c.T) {
    throw Error(fmt::format("prefill={} is more than T={}: it counts the tokens before the decoded ones",
                            c.prefill, c.T));
  }
  contract = &contract_named(c.contract);
  promised = c.l2norm ? with_l2norm(*contract) : *contract;
  regime = &regime_of(*system, c.regime);
  layout = layout_named(c.layout);
  if (!c.law.empty()) {
    law = system->law(c.law);
    if (law == nullptr) {
      throw Error(system->laws.empty() ? fmt::format("law={}: no law is tried on {}", c.law, c.system)
                                       : fmt::format("law={}: no such law of {}; known: {}", c.law, c.system,
                                                     names_of(system->laws)));
    }
    if (!system->native(c.form)) {
      throw Error(
          fmt::format("law={} is tried on a form that kernels are written for, not form={}", c.law, c.form));
    }
  }
  system->check(c);
  chunk = form->whole ? std::max<Index>(c.T, 1) : form->chunked ? c.chunk : 0;
}

Path Resolved::path(Index tokens) const {
  if (form->decodes) return prefill_and_decode(tokens, chunk, c.prefill);
  return whole(tokens, chunk);
}

bool possible(const Case& c) {
  try {
    (void)Resolved(c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

double size_of_case(const Case& c) {
  const System& system = system_named(c.system);
  const Signature signature = system.signature(c);
  const auto sequences = static_cast<double>(c.lengths.empty() ? c.B : std::ssize(c.lengths));
  double size = 0.0;
  for (const auto* list : {&signature.inputs, &signature.outputs}) {
    for (const TensorSpec& spec : *list) {
      const double count = spec.axis == Axis::whole   ? 1.0
                           : spec.axis == Axis::state ? sequences
                                                      : static_cast<double>(c.B);
      size += count * static_cast<double>(spec.size());
    }
  }
  return size;
}

}  // namespace samestate
