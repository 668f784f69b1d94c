#include "fuzz/plan/kernel_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>

#include "fuzz/plan/coarse_factors.h"
#include "fuzz/plan/draw.h"
#include "fuzz/plan/edge_cases.h"
#include "fuzz/plan/filtered.h"
#include "fuzz/plan/interpreted.h"
#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/counter.h"
#include "harness/cases/shards.h"

namespace samestate {
namespace {

constexpr double kDearPairs = 8.0;  // work of a pair that effort 1 cannot afford
constexpr double kMostOfTriple =
    0.5;  // work of a triple, of which there are a hundred times as many as pairs

/// Case number `index` of a covering set, with data of its own. What its seed says of threads stays.
Case covered(Case c, std::uint64_t seed, std::int64_t index) {
  const std::uint64_t threads = c.seed % 3;
  c.seed = (seed << 32) ^ (0x80000000U + 4 * static_cast<std::uint64_t>(index));
  while (c.seed % 3 != threads) ++c.seed;
  return c;
}

/// The covering set of pairs, and behind it of triples of coarse levels; that of kernels which say the same of themselves is one,
/// as of a thousand mutants.
std::shared_ptr<const Covering> pairs_of(const KernelRow& kernel, const std::vector<Factor>& factors,
                                         std::span<const Case> edges, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Covering>> known;
  const std::string key = fmt::format("{} {} {} {} {} {} {} {}", kernel.system->name, kernel.form,
                                      fmt::join(kernel.contracts, ","), kernel.strided, kernel.limits.text(),
                                      not_planned(kernel), kernel.interpreted, seed);
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  auto made = std::make_shared<Covering>(cover(kernel, factors, edges, {.seed = seed}));
  std::vector<Case> given(edges.begin(), edges.end());
  given.insert(given.end(), made->cases.begin(), made->cases.end());
  Covering coarse = cover(kernel, coarse_factors_of(kernel), given, {.strength = 3, .seed = seed});
  made->cases.insert(made->cases.end(), std::make_move_iterator(coarse.cases.begin()),
                     std::make_move_iterator(coarse.cases.end()));
  const std::scoped_lock lock(mutex);
  return known.emplace(key, std::move(made)).first->second;
}

class Planner {
 public:
  Planner(const KernelTable& table, const KernelRow& kernel, const PlanOptions& options, double seconds)
      : table_(table),
        kernel_(kernel),
        options_(options),
        seconds_(seconds),
        factors_(factors_of(kernel)),
        filter_(options.filter) {}

  KernelPlan plan() && {
    const std::vector<Case> edges = edges_of(table_, kernel_);
    const std::shared_ptr<const Covering> pairs =
        pairs_of(kernel_, covered_factors_of(kernel_), edges, options_.seed);
    out_.coverage.kernel = &kernel_;
    out_.coverage.missing = pairs->missing;
    std::vector<Case> covering = numbered(*pairs);
    out_.edges = taken(edges);
    covering = taken(covering);
    if (options_.effort == 0.0) return std::move(out_);
    fit(out_.edges, covering);
    spread(std::move(covering));
    if (options_.effort >= kTriples) triples(edges, *pairs);
    const double left = seconds_ / 2 - spent_;
    if (left > 0.0) spread(drawn(spent_ + left / 2));
    spread_calls();
    if (spent_ < seconds_) spread(drawn(seconds_));
    return std::move(out_);
  }

 private:
  [[nodiscard]] double cost(const Case& c) const { return seconds_of_call(kernel_, c); }

  /// The seconds that a drawn case counts as. Millions of the small cases of a narrow filter would fit into the
  /// time; they say no more than the first thousands and take minutes to draw.
  [[nodiscard]] double drawn_cost(const Case& c) const {
    return filter_.empty() ? cost(c) : std::max(cost(c), kLeastOfFiltered);
  }

  [[nodiscard]] Case named(Case c) const {
    if (!table_.is_standard(kernel_, c)) c.kernel = kernel_.name;
    return c;
  }

  [[nodiscard]] bool takes(const Case& c) const { return filter_.takes(c, kernel_.name); }

  [[nodiscard]] std::vector<Case> taken(const std::vector<Case>& cases) const {
    std::vector<Case> kept;
    for (const Case& c : cases) {
      const bool too_dear = kernel_.interpreted && cost(c) > kMostInterpreted;
      if (takes(c) && !too_dear) kept.push_back(named(c));
    }
    return kept;
  }

  std::vector<Case> numbered(const Covering& covering) {
    std::vector<Case> cases;
    for (const Case& c : covering.cases) cases.push_back(covered(c, options_.seed, index_++));
    return cases;
  }

  /// Leaves of both so much that they take half of the time.
  void fit(std::vector<Case>& edges, std::vector<Case>& covering) {
    double all = 0.0;
    for (const std::vector<Case>* cases : {&edges, &covering}) {
      for (const Case& c : *cases) all += cost(c);
    }
    const double share = all <= seconds_ / 2 ? 1.0 : seconds_ / 2 / all;
    out_.coverage.whole = share == 1.0;
    double due = 0.0;
    std::vector<Case> kept;
    for (Case& c : edges) {
      due += share * cost(c);
      if (share < 1.0 && cost(c) > due) continue;
      due -= cost(c);
      spent_ += cost(c);
      kept.push_back(std::move(c));
    }
    edges = std::move(kept);
    double of_covering = 0.0;
    for (const Case& c : covering) of_covering += share * cost(c);
    std::size_t count = 0;
    while (count < covering.size() && (share == 1.0 || of_covering >= cost(covering[count]))) {
      of_covering -= cost(covering[count]);
      spent_ += cost(covering[count++]);
    }
    covering.resize(count);
  }

  void spread(std::vector<Case> cases, double from = 0.0, double to = 1.0) {
    const auto count = static_cast<double>(cases.size());
    for (std::size_t i = 0; i < cases.size(); ++i)
      out_.turns.push_back({from + (to - from) * static_cast<double>(i + 1) / count, std::move(cases[i])});
  }

  void triples(const std::vector<Case>& edges, const Covering& pairs) {
    const std::vector<Factor> factors = covered_factors_of(kernel_);
    std::vector<Case> given(edges.begin(), edges.end());
    given.insert(given.end(), pairs.cases.begin(), pairs.cases.end());
    const Covering dear = cover(
        kernel_, factors, given,
        {.most = kDearPairs, .usual = 1.0, .seed = options_.seed, .pairs = nullptr, .stop = options_.stop});
    spread(taken(numbered(dear)));
    given.insert(given.end(), dear.cases.begin(), dear.cases.end());
    spread(taken(numbered(cover(kernel_, factors, given,
                                {.strength = 3,
                                 .most = kMostOfTriple,
                                 .seed = options_.seed,
                                 .pairs = &dear.missing,
                                 .stop = options_.stop}))));
  }

  /// Drawn cases until those of the plan take `seconds`. Later ones may be larger.
  std::vector<Case> drawn(double seconds) {
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

  /// Whether the filter takes the case, or one that differs from it in what the filter names alone.
  [[nodiscard]] bool brought(Case& c, const Dice& dice) const {
    if (takes(c)) return true;
    c = named(brought_within(std::move(c), kernel_, filter_, dice));
    return takes(c) && cost(c) <= kMostOfFiltered * kSecondsOfCall;
  }

  /// Ordinary calls in what is left of the time.
  void spread_calls() {
    const OrdinaryCalls source(kernel_);
    if (source.models() == 0) return;
    const Counter counter(options_.seed, "calls/" + kernel_.name);
    std::vector<Case> cases;
    std::set<std::string> lines;
    using Pair = std::pair<std::string_view, std::string_view>;
    std::map<Pair, std::string_view> why;  // nothing where a case was made
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
    spread(std::move(cases));
  }

  static constexpr std::int64_t kMostMisses = 400;  // draws in a row that gave no case
  static constexpr double kLargestDrawn = 6.0;      // System::work
  static constexpr double kMostOfFiltered = 4.0;    // of kSecondsOfCall, where a filter asks for a size
  static constexpr double kLeastOfFiltered = 0.02;  // seconds: 10,000 cases of a plan of effort 1

  const KernelTable& table_;
  const KernelRow& kernel_;
  const PlanOptions& options_;
  const double seconds_;
  const std::vector<Factor> factors_;
  const CaseFilter& filter_;
  KernelPlan out_;
  double spent_ = 0.0;
  std::int64_t index_ = 0;  ///< of cases of covering sets
  std::int64_t drawn_ = 0;
};

}  // namespace

KernelPlan plan_of_kernel(const KernelTable& table, const KernelRow& kernel, const PlanOptions& options,
                          double seconds) {
  return Planner(table, kernel, options, seconds).plan();
}

}  // namespace samestate
