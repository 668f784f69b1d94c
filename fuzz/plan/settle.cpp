#include "fuzz/plan/settle.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "fuzz/plan/interpreted.h"
#include "fuzz/plan/token_factors.h"
#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "oracles/judge_policy.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr Index kMostDecoded = 48;  // tokens of a decoded case or of a law's case: each may be a call
constexpr Index kMostOfLaw = 130;
constexpr Index kMostWhole = 300;  // tokens in a single chunk
constexpr Index kRanksOfPlan = 3;  // the first rank, one with two neighbours, and the last
// Two groups of three value heads with two heads per rank: the second rank's heads belong to both groups, and
// one rank is empty.
constexpr Index kKeyHeads = 2, kValueHeads = 6, kRanksOfHeads = 4;

void settle_law(Case& c, const KernelRow& kernel) {
  const Law& law = *kernel.system->law(c.law);
  c.form = kernel.form;
  c.lengths.clear();
  if (law.initial_state) c.state = "random";
  c.B = std::max<Index>(c.B, 2);
  c.T = std::clamp<Index>(c.T, 2, kMostOfLaw);
  c.taps = false;
  // A single column of values shows less of how a kernel treats columns than two do.
  if (kernel.system->has(Property::linear)) c.dv = std::max<Index>(c.dv, 2);
  for (const LeastOfLaw& size : law.on_heads.least) {
    if (size.key == "Hk") c.Hk = std::max(c.Hk, size.least);
  }
  // The worst-case bound of a state in low precision is vacuous after a few tokens, so it cannot judge a law;
  // exact data needs no law, and for a growing state every bound is vacuous.
  if (low_precision_state(contract_named(c.contract))) c.contract = kernel.contracts.front();
  const Regime& regime = *kernel.system->regime(c.regime);
  if (regime.exact || regime.expands) c.regime = Case{}.regime;
}

}  // namespace

bool is_chunked(const KernelRow& kernel) {
  const CaseForm* form = kernel.system->form(kernel.form);
  return form != nullptr && form->chunked;
}

bool over_ranks(const KernelRow& kernel) {
  const CaseForm* form = kernel.system->form(kernel.form);
  return form != nullptr && form->ranked;
}

bool divides_heads(const KernelRow& kernel) {
  const CaseForm* form = kernel.system->form(kernel.form);
  return form != nullptr && form->by_heads;
}

void settle_cuts(Case& c, const KernelRow& kernel) {
  if (divides_heads(kernel) && !kernel.system->native(c.form)) c.cuts = kCutHeads;
  if (c.ranks == 1) c.cuts = Case{}.cuts;
}

void settle(Case& c, const KernelRow& kernel, const Dice& dice) {
  const System& system = *kernel.system;
  if (c.lead + c.slack > 0 && c.law.empty()) c.form = "packed";
  if (final_state_named(c.final_state) == FinalState::in_place) c.state = "random";
  c = kernel.limits.nearest(std::move(c));
  if (!c.law.empty()) settle_law(c, kernel);
  const CaseForm& form = *system.form(c.form);
  if (form.chunked && !is_chunked(kernel)) c.chunk = 0;
  settle_cuts(c, kernel);
  if (form.whole) c.T = std::min(c.T, kMostWhole);
  for (const CaseSize& size : system.sizes) {
    if (size.multiple_of.empty()) continue;
    const Index divisor = size_in(c, size.multiple_of);
    Index& value = size_in(c, size.name);
    value = std::max<Index>(value / divisor, 1) * divisor;
  }
  if (system.regime(c.regime)->exact) c.l2norm = false;
  if (c.T == 0) {  // without tokens only the state can be wrong
    if (system.has_key("state"))
      c.state = "random";
    else
      c.T = 1;
  }
  c.prefill = form.decodes ? std::clamp(c.prefill, c.T - kMostDecoded * c.step, c.T) : 0;
  c.prefill = std::max<Index>(c.prefill, 0);
  c.step = std::clamp<Index>(c.T - c.prefill, 1, c.step);
  c.cached = c.cached && form.decodes && c.prefill > 0 && c.prefill < c.T && c.law.empty() && !c.taps;
  if (!form.packed) {
    c.lead = c.slack = 0;
    c.lengths.clear();
    return;
  }
  c.B = 1;
  if (c.lengths.empty() || std::reduce(c.lengths.begin(), c.lengths.end()) != c.T)
    pack(c, c.lengths.empty() ? 1 + dice.below(8) : std::ssize(c.lengths), dice);
}

double work_of(const KernelRow& kernel, const Case& c) {
  // Every row of a far tensor lies on a page of its own, which the machine has to map and unmap.
  constexpr double kFar = 8.0;
  try {
    return std::max(kernel.system->work(c, kGatePolicy) * (c.layout == "far" ? kFar : 1.0),
                    interpreted_seconds(kernel, c));  // a second is what one drawn case may take
  } catch (const Error&) {                            // the sizes are impossible together
    return std::numeric_limits<double>::infinity();
  }
}

Case start_of(const KernelRow& kernel) {
  Case c = kernel.system->standard();
  for (const CaseSize& size : kernel.system->sizes) size_in(c, size.name) = size.start;
  c = with_keys(std::move(c), kernel.system->plan.start);
  c.form = kernel.form;
  c.contract = kernel.contracts.front();
  if (!is_chunked(kernel)) c.chunk = Case{}.chunk;
  if (over_ranks(kernel)) c.ranks = kRanksOfPlan;
  if (divides_heads(kernel)) c.Hk = kKeyHeads, c.Hv = kValueHeads, c.ranks = kRanksOfHeads;
  return kernel.limits.nearest(std::move(c));
}

Case with_part(const KernelRow& kernel, const Case& from, std::string_view part) {
  Case c = with_keys(from, part);
  if (is_chunked(kernel)) return c;
  const CaseForm* form = kernel.system->form(c.form);
  c.chunk = form != nullptr && form->chunked ? 0 : Case{}.chunk;
  return c;
}

}  // namespace samestate
