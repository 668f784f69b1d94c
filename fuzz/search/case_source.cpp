#include "fuzz/search/case_source.h"

#include <fmt/format.h>
#include <rapidcheck/Gen.h>
#include <rapidcheck/Random.h>
#include <rapidcheck/gen/Arbitrary.h>
#include <rapidcheck/gen/Exec.h>
#include <rapidcheck/gen/Numeric.h>

#include <algorithm>
#include <cmath>

#include "fuzz/plan/draw.h"
#include "fuzz/plan/filtered.h"
#include "fuzz/plan/plan.h"
#include "harness/records/hash.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

/// This number changes whenever the drawing changes, so that a checkpoint of another drawing is refused.
constexpr std::uint64_t kDrawing = 7;
constexpr double kLargeCase = 20.0;
constexpr double kMostSeconds = 2 * kSecondsOfCall;  // for an ordinary call with another setting put in

/// After this many draws for one case, a filter is assumed to leave none.
constexpr std::uint64_t kMostDraws = 20'000;

/// Returns an ordinary call; every other one gets a level of one factor that no program asked for. Empty if
/// there is none.
Case widened(const SearchKernel& of, const Dice& dice) {
  const KernelRow& kernel = *of.row;
  if (of.calls.models() == 0) return {};
  Case c = of.calls.draw(dice.below(of.calls.round()), dice).c;
  if (c.system.empty() || dice.one_in(2)) return c;
  Case other = c;
  const Factor& factor = dice.pick(of.factors);
  factor.put(other, static_cast<int>(dice.below(std::ssize(factor.levels))), dice);
  settle(other, kernel, dice);
  return seconds_of_call(kernel, other) <= kMostSeconds && within_limits(kernel, other) ? other : c;
}

}  // namespace

CaseSource::CaseSource(const KernelTable& table, const SearchFilter& filter, std::uint64_t seed)
    : table_(table), filter_(filter.cases), seed_(seed) {
  for (const KernelRow* row : wanted_kernels(table, filter.system, filter.device, filter.kernel)) {
    if (!may_fit(*row, filter.cases)) continue;
    const auto known = std::find_if(systems_.begin(), systems_.end(),
                                    [&](const SearchSystem& s) { return s.system == row->system; });
    SearchSystem& of =
        known != systems_.end() ? *known : systems_.emplace_back(SearchSystem{row->system, {}});
    of.kernels.push_back({row, factors_of(*row), OrdinaryCalls(*row)});
  }
  if (systems_.empty()) {
    throw Error(
        "no kernel is left to search: widen --system, --device, --kernel or --where; `samestate list "
        "kernels`");
  }
  if (!filter_.empty()) (void)draw(0);
}

Case CaseSource::draw(std::int64_t index) const {
  if (filter_.empty()) return draw(index, 0);
  for (std::uint64_t attempt = 0; attempt < kMostDraws; ++attempt) {
    Case c = draw(index, attempt);
    const std::string& kernel =
        c.kernel.empty() && filter_.reads_kernel() ? table_.choose(Resolved(c)).named->name : c.kernel;
    if (filter_.takes(c, kernel)) return c;
  }
  throw Error(fmt::format("none of {} drawn cases fits {}: widen it, or name a --system that has such cases",
                          kMostDraws, filter_.text()));
}

Case CaseSource::draw(std::int64_t index, std::uint64_t attempt) const {
  const rc::Gen<Case> gen = rc::gen::exec([this, attempt] {
    // At nominal size RapidCheck's inRange covers the whole range (HARNESS 2).
    const Dice dice{[](std::int64_t n) { return n <= 1 ? 0 : *rc::gen::inRange<std::int64_t>(0, n); }};
    const SearchKernel& of = dice.pick(dice.pick(systems_).kernels);
    const KernelRow& kernel = *of.row;
    // One case in six is an ordinary call, half of these with another setting put in; of the others one in 64
    // may be large.
    Case c = dice.one_in(6) ? widened(of, dice) : Case{};
    if (c.system.empty()) c = draw_case(kernel, of.factors, dice, dice.one_in(64) ? kLargeCase : 1.0);
    c.seed = *rc::gen::arbitrary<std::uint64_t>();
    // Every other attempt is changed to fit the filter, if the result is affordable.
    if (attempt % 2 == 1) {
      const Case within = brought_within(c, kernel, filter_, dice);
      if (possible(within) && kernel.system->work(within, kGatePolicy) <= 1.0) c = within;
    }
    if (!table_.is_standard(kernel, c)) c.kernel = kernel.name;
    return c;
  });
  const rc::Random random(rc::Random::Key{seed_, static_cast<std::uint64_t>(index), kDrawing, attempt});
  return gen(random, rc::kNominalSize).value();
}

std::string CaseSource::fingerprint() const {
  std::string text = fmt::format("drawing {}{}", kDrawing, filter_.text());
  for (const SearchSystem& system : systems_) {
    for (const SearchKernel& of : system.kernels) {
      text += " " + of.row->name;
      for (const std::string& contract : of.row->contracts) text += "," + contract;
    }
  }
  return fmt::format("{:016x}", hash_of(text));
}

}  // namespace samestate
