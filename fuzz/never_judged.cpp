#include "fuzz/never_judged.h"

#include <algorithm>
#include <array>

#include "harness/cases/case_line.h"

namespace samestate {
namespace {

bool carries_state(const System& system, const Case& c) {
  if (system.has_key("state")) return true;
  const std::vector<TensorSpec> inputs = system.signature(c).inputs;
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const TensorSpec& spec) { return spec.axis == Axis::state; });
}

}  // namespace

std::span<const NeverJudged> never_judged() {
  static constexpr std::array rows{
      NeverJudged{"", [](const Case& c) { return c.T == 0; }, "T=0",
                  "without tokens and without a state there is no output"},
  };
  return rows;
}

const NeverJudged* never_judged(const System& system, const Case& c) {
  for (const NeverJudged& row : never_judged()) {
    if (!row.system.empty() && row.system != system.name) continue;
    if (row.holds(c) && (!row.system.empty() || !carries_state(system, c))) return &row;
  }
  return nullptr;
}

}  // namespace samestate
