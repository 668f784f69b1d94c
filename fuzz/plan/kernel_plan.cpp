#include "fuzz/plan/kernel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "fuzz/plan/coarse_factors.h"
#include "fuzz/plan/draw.h"
#include "fuzz/plan/edge_cases.h"
#include "fuzz/plan/filtered.h"
#include "fuzz/plan/interpreted.h"
#include "fuzz/plan/kernel_turns.h"
#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/counter.h"
#include "harness/cases/shards.h"

namespace samestate {
namespace {

constexpr std::int64_t kMostMisses = 400;  // consecutive draws that gave no case
constexpr double kLargestDrawn = 6.0;      // System::work
constexpr double kMostOfFiltered = 4.0;    // in units of kSecondsOfCall, if a filter asks for a size
constexpr double kLeastOfFiltered = 0.02;  // seconds: 10,000 cases of a plan of effort 1

/// Returns case number `index` of a covering set with data of its own. What its seed says about threads is
/// kept.
Case covered(Case c, std::uint64_t seed, std::int64_t index) {
  const std::uint64_t threads = c.seed % 3;
  c.seed = (seed << 32) ^ (0x80000000U + 4 * static_cast<std::uint64_t>(index));
  while (c.seed % 3 != threads) ++c.seed;
  return c;
}

/// The covering sets of a kernel: pairs of levels, and triples of coarse ones.
struct Covered {
  Covering pairs;
  std::vector<Case> coarse;
};

/// Kernels with the same description share their covering sets, which are made once, for example for a
/// thousand mutants.
std::shared_ptr<const Covered> covered_of(const KernelRow& kernel, const std::vector<Factor>& factors,
                                          const std::vector<Case>& edges, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Covered>> known;
  const std::string key = fmt::format("{} {} {} {} {} {} {} {}", kernel.system->name, kernel.form,
                                      fmt::join(kernel.contracts, ","), kernel.strided, kernel.limits.text(),
                                      not_planned(kernel), kernel.interpreted, seed);
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  auto made = std::make_shared<Covered>();
  made->pairs = cover(kernel, factors, edges, {.seed = seed});
  std::vector<Case> given = edges;
  given.insert(given.end(), made->pairs.cases.begin(), made->pairs.cases.end());
  made->coarse = cover(kernel, coarse_factors_of(kernel), given, {.strength = 3, .seed = seed}).cases;
  const std::scoped_lock lock(mutex);
  return known.emplace(key, std::move(made)).first->second;
}

}  // namespace

KernelTurns::KernelTurns(const KernelTable& table, const KernelRow& kernel, const PlanOptions& options,
                         double seconds)
    : table_(table),
      kernel_(kernel),
      options_(options),
      seconds_(seconds),
      factors_(factors_of(kernel)),
      filter_(options.filter) {
  out_.edges = edge_cases_of(table, kernel);
  for (const PlannedCase& edge : out_.edges) given_.push_back(edge.c);
  const std::shared_ptr<const Covered> covered =
      covered_of(kernel, covered_factors_of(kernel), given_, options.seed);
  for (const std::vector<Case>* cases : {&covered->pairs.cases, &covered->coarse})
    given_.insert(given_.end(), cases->begin(), cases->end());
  out_.coverage.kernel = &kernel;
  out_.coverage.missing = covered->pairs.missing;
  std::erase_if(out_.edges, [this](const PlannedCase& edge) { return !kept(edge.c); });
  for (PlannedCase& edge : out_.edges) edge.c = named(std::move(edge.c));
  pairs_ = taken(numbered(covered->pairs.cases));
  coarse_ = taken(numbered(covered->coarse));
  if (options.effort != 0.0) fit();
}

double KernelTurns::cost(const Case& c) const { return seconds_of_call(kernel_, c); }

/// Returns the seconds that a drawn case counts as. Millions of small cases of a narrow filter would fit into
/// the time; they find no more than the first few thousand and take minutes to draw.
double KernelTurns::drawn_cost(const Case& c) const {
  return filter_.empty() ? cost(c) : std::max(cost(c), kLeastOfFiltered);
}

Case KernelTurns::named(Case c) const {
  if (!table_.is_standard(kernel_, c)) c.kernel = kernel_.name;
  return c;
}

bool KernelTurns::takes(const Case& c) const { return filter_.takes(c, kernel_.name); }

bool KernelTurns::kept(const Case& c) const {
  const bool too_dear = kernel_.interpreted && cost(c) > kMostInterpreted;
  return takes(c) && !too_dear;
}

std::vector<Case> KernelTurns::taken(const std::vector<Case>& cases) const {
  std::vector<Case> out;
  for (const Case& c : cases) {
    if (kept(c)) out.push_back(named(c));
  }
  return out;
}

std::vector<Case> KernelTurns::numbered(const std::vector<Case>& cases) {
  std::vector<Case> out;
  for (const Case& c : cases) out.push_back(covered(c, options_.seed, index_++));
  return out;
}

/// Removes edge cases and covering cases until they take half of the time.
void KernelTurns::fit() {
  double all = 0.0;
  for (const PlannedCase& edge : out_.edges) all += cost(edge.c);
  for (const std::vector<Case>* cases : {&pairs_, &coarse_}) {
    for (const Case& c : *cases) all += cost(c);
  }
  const double share = all <= seconds_ / 2 ? 1.0 : seconds_ / 2 / all;
  out_.coverage.whole = share == 1.0;
  double due = 0.0;
  std::erase_if(out_.edges, [&](const PlannedCase& edge) {
    due += share * cost(edge.c);
    if (share < 1.0 && cost(edge.c) > due) return true;
    due -= cost(edge.c);
    spent_ += cost(edge.c);
    return false;
  });
  double of_covering = 0.0;
  for (const std::vector<Case>* cases : {&pairs_, &coarse_}) {
    for (const Case& c : *cases) of_covering += share * cost(c);
  }
  // The last ones add least and are left out.
  bool full = false;
  for (std::vector<Case>* cases : {&pairs_, &coarse_}) {
    std::size_t count = 0;
    while (!full && count < cases->size()) {
      const double one = cost((*cases)[count]);
      full = share != 1.0 && of_covering < one;
      if (full) break;
      of_covering -= one;
      spent_ += one;
      ++count;
    }
    cases->resize(count);
  }
}

std::vector<Case> KernelTurns::pairs() { return std::move(pairs_); }
std::vector<Case> KernelTurns::coarse_triples() { return std::move(coarse_); }

std::vector<Case> KernelTurns::dear_pairs() {
  constexpr double kDearPairs = 8.0;  // work of a pair that is too expensive for effort 1
  if (options_.effort < kTriples) return {};
  const Covering dear = cover(
      kernel_, covered_factors_of(kernel_), given_,
      {.most = kDearPairs, .usual = 1.0, .seed = options_.seed, .pairs = nullptr, .stop = options_.stop});
  missing_ = dear.missing;
  given_.insert(given_.end(), dear.cases.begin(), dear.cases.end());
  return taken(numbered(dear.cases));
}

std::vector<Case> KernelTurns::triples() {
  // The most work of a triple; there are a hundred times as many triples as pairs.
  constexpr double kMostOfTriple = 0.5;
  if (options_.effort < kTriples) return {};
  return taken(numbered(cover(kernel_, covered_factors_of(kernel_), given_,
                              {.strength = 3,
                               .most = kMostOfTriple,
                               .seed = options_.seed,
                               .pairs = &missing_,
                               .stop = options_.stop})
                            .cases));
}

std::vector<Case> KernelTurns::drawn() {
  const double left = seconds_ / 2 - spent_;
  return left > 0.0 ? drawn_until(spent_ + left / 2) : std::vector<Case>();
}

/// Draws cases until those of the plan take `seconds`. Later ones may be larger.
std::vector<Case> KernelTurns::drawn_until(double seconds) {
  constexpr std::int64_t kGrow = 200;
  std::vector<Case> cases;
  const Counter counter(options_.seed, "plan/" + kernel_.name);
  for (std::int64_t misses = 0; spent_ < seconds && misses < kMostMisses; ++drawn_) {
    std::int64_t draw = 0;
    const Dice dice{[&](std::int64_t n) { return counter.below({drawn_, draw++, 0, 0}, n); }};
    const double most = 1.0 + 3.0 * static_cast<double>(drawn_ / kGrow);
    Case c = named(draw_case(kernel_, factors_, dice, std::min(most, kLargestDrawn)));
    if (!brought(c, dice)) {
      ++misses;
      continue;
    }
    c.seed = (options_.seed << 32) ^ (static_cast<std::uint64_t>(drawn_) + 1);
    spent_ += drawn_cost(c);
    misses = 0;
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Returns true if the filter takes the case, or one that differs from it only in the keys that the filter names.
bool KernelTurns::brought(Case& c, const Dice& dice) const {
  if (takes(c)) return true;
  c = named(brought_within(std::move(c), kernel_, filter_, dice));
  return takes(c) && cost(c) <= kMostOfFiltered * kSecondsOfCall;
}

std::vector<Case> KernelTurns::ordinary_calls() {
  const OrdinaryCalls source(kernel_);
  if (source.models() == 0) return {};
  const Counter counter(options_.seed, "calls/" + kernel_.name);
  std::vector<Case> cases;
  std::set<std::string> lines;
  using Pair = std::pair<std::string_view, std::string_view>;
  std::map<Pair, std::string_view> why;  // empty if a case was made
  std::set<Pair> made;
  for (std::int64_t i = 0, misses = 0; spent_ < seconds_ && misses < kMostMisses + source.round(); ++i) {
    std::int64_t draw = 0;
    const Dice dice{[&](std::int64_t n) { return counter.below({i, draw++, 0, 0}, n); }};
    OrdinaryCall call = source.draw(i, dice);
    const Pair pair{call.model, call.kind};
    why[pair] = call.why;
    ++misses;
    if (call.c.system.empty()) continue;
    call.c = named(std::move(call.c));
    if (!brought(call.c, dice)) {
      why[pair] = "outside the filter";
      continue;
    }
    call.c.seed = (options_.seed << 32) ^ (0x40000000U + static_cast<std::uint64_t>(i));
    std::string line = format_case(call.c);
    if (!lines.insert(line).second) continue;
    misses = 0;
    made.insert(pair);
    spent_ += drawn_cost(call.c);
    out_.calls.push_back({std::move(line), &kernel_, call.model, call.kind, call.smaller, {}});
    cases.push_back(std::move(call.c));
  }
  for (Index i = 0; i < source.round(); ++i) {
    const OrdinaryCall call = source.turn(i);
    const Pair pair{call.model, call.kind};
    if (!made.insert(pair).second) continue;
    const auto found = why.find(pair);
    out_.calls.push_back({"", &kernel_, pair.first, pair.second, false,
                          found == why.end() ? "left to a larger --effort" : found->second});
  }
  return cases;
}

void KernelTurns::spread(std::vector<PlannedCase> cases) {
  const auto count = static_cast<double>(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i)
    out_.turns.push_back({static_cast<double>(i + 1) / count, std::move(cases[i])});
}

KernelPlan KernelTurns::plan() && {
  if (options_.effort == 0.0) return std::move(out_);
  std::vector<PlannedCase> together;
  for (const PlanList& list : plan_lists()) {
    if (list.turns == nullptr) continue;
    if (!list.joins) spread(std::exchange(together, {}));
    for (Case& c : list.turns(*this)) together.push_back({std::move(c), &list});
  }
  spread(std::exchange(together, {}));
  const PlanList& drawn_list = plan_list(kDrawnList);
  for (Case& c : drawn_until(seconds_)) together.push_back({std::move(c), &drawn_list});
  spread(std::move(together));
  return std::move(out_);
}

KernelPlan plan_of_kernel(const KernelTable& table, const KernelRow& kernel, const PlanOptions& options,
                          double seconds) {
  return KernelTurns(table, kernel, options, seconds).plan();
}

}  // namespace samestate
