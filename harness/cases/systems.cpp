#include "harness/cases/systems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cases/operator_case.h"
#include "harness/cases/regimes.h"
#include "oracles/contracts.h"
#include "oracles/laws/law.h"
#include "reference/error.h"

namespace samestate {
namespace {

const std::vector<System>& table() {
  // A row a system. `parallel` is the chunked form with one chunk: it needs no inverse only where there is no
  // delta rule.
  static const std::vector<System> rows = {
      {&family_named("gated_delta_rule"), {"recurrent", "chunked", "decode", "packed"}},
      {&family_named("delta_rule"), {"recurrent", "chunked", "decode", "packed"}},
      {&family_named("retention"), {"recurrent", "chunked", "parallel", "decode", "packed"}},
      {&family_named("linear_attention"), {"recurrent", "chunked", "parallel", "decode", "packed"}},
  };
  return rows;
}

}  // namespace

std::span<const System> systems() { return table(); }

const System& system_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const System& row : table()) {
    if (row.name() == name) return row;
    known.push_back(row.name());
  }
  for (const Operator& row : operators()) known.push_back(row.name);
  throw Error(fmt::format("system {}: no such system; known: {}", name, fmt::join(known, ", ")));
}

void check_names(const Case& c) {
  if (is_operator_case(c)) return check_case(c);
  const System& system = system_named(c.system);
  if (std::find(system.forms.begin(), system.forms.end(), c.form) == system.forms.end()) {
    throw Error(fmt::format("form={}: {} has the forms {}", c.form, c.system, fmt::join(system.forms, ", ")));
  }
  (void)contract_named(c.contract);
  const Regime& regime = regime_named(c.regime);
  if (regime.gated && !system.family->gated) {
    throw Error(fmt::format("regime={} is about the decay, which {} does not have", c.regime, c.system));
  }
  if (regime.delta && !system.family->delta) {
    throw Error(fmt::format("regime={} is about beta, which {} does not have", c.regime, c.system));
  }
  if (!c.law.empty()) {
    (void)law_named(c.law);
    if (c.form != "chunked" && c.form != "recurrent") {
      throw Error(fmt::format("law={} is tried on form=chunked or form=recurrent, not {}", c.law, c.form));
    }
  }
  check_case(c);
}

}  // namespace samestate
