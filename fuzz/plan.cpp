#include "fuzz/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "fuzz/coarse_factors.h"
#include "fuzz/covering.h"
#include "fuzz/draw.h"
#include "fuzz/edges.h"
#include "harness/cases/counter.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr double kDearPairs = 8.0;  // work of a pair that effort 1 cannot afford
constexpr double kMostOfTriple =
    0.5;  // work of a triple, of which there are a hundred times as many as pairs

/// A kernel with what its cases choose among.
struct Planned {
  const KernelRow* kernel;
  std::vector<Factor> factors;
  std::vector<Factor> covered;  ///< of them, those whose pairs are covered

  /// Drawn cases at effort 1.
  [[nodiscard]] std::int64_t drawn() const {
    constexpr std::int64_t kFewer = 2, kOfHeads = 8;
    return kernel->system->plan.seeded / (divides_heads(*kernel) ? kOfHeads
                                          : over_ranks(*kernel)  ? kFewer
                                                                 : 1);
  }
};

/// A case after the edges: the plan of effort e has all of those whose turn has come at e.
struct Turn {
  double at;
  const Planned* of;
  std::int64_t index;
  Case c = {};  ///< of a covering set; else drawn
};

/// Seeded case number `index` of a kernel. Those of larger efforts may be larger.
Case seeded(const Planned& of, std::uint64_t seed, std::int64_t index) {
  const Counter counter(seed, "plan/" + of.kernel->name);
  std::int64_t draw = 0;
  const double most = 1.0 + 3.0 * static_cast<double>(index / of.drawn());
  Case c = draw_case(*of.kernel, of.factors, {[&](std::int64_t n) {
    return counter.below({index, draw++, 0, 0}, n);
  }},
                     most);
  c.seed = (seed << 32) ^ (static_cast<std::uint64_t>(index) + 1);
  return c;
}

/// Case number `index` of a covering set, with data of its own. What its seed says of threads stays.
Case covered(Case c, std::uint64_t seed, std::int64_t index) {
  const std::uint64_t threads = c.seed % 3;
  c.seed = (seed << 32) ^ (0x80000000U + 4 * static_cast<std::uint64_t>(index));
  while (c.seed % 3 != threads) ++c.seed;
  return c;
}

/// The covering set of pairs, and behind it of triples of coarse levels; that of kernels which say the same of themselves is one,
/// as of a thousand mutants.
std::shared_ptr<const Covering> pairs_of(const Planned& of, std::span<const Case> edges, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Covering>> known;
  const KernelRow& kernel = *of.kernel;
  const std::string key =
      fmt::format("{} {} {} {} {} {} {}", kernel.system->name, kernel.form, fmt::join(kernel.contracts, ","),
                  kernel.strided, kernel.limits.text(), not_planned(kernel), seed);
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  auto made = std::make_shared<Covering>(cover(kernel, of.covered, edges, {.seed = seed}));
  std::vector<Case> given(edges.begin(), edges.end());
  given.insert(given.end(), made->cases.begin(), made->cases.end());
  Covering coarse = cover(kernel, coarse_factors_of(kernel), given, {.strength = 3, .seed = seed});
  made->cases.insert(made->cases.end(), std::make_move_iterator(coarse.cases.begin()),
                     std::make_move_iterator(coarse.cases.end()));
  const std::scoped_lock lock(mutex);
  return known.emplace(key, std::move(made)).first->second;
}

/// The turns of one kernel, whose edges are `edges`; what its cases cover goes to `coverage`.
std::vector<Turn> turns_of(const Planned& of, std::span<const Case> edges, const PlanOptions& options,
                           KernelCoverage& coverage) {
  std::vector<Turn> turns;
  std::int64_t index = 0;
  const auto take = [&](const Covering& covering, double from, double to) {
    const auto count = static_cast<double>(covering.cases.size());
    for (std::size_t i = 0; i < covering.cases.size(); ++i) {
      turns.push_back({from + (to - from) * static_cast<double>(i + 1) / count, &of, index,
                       covered(covering.cases[i], options.seed, index)});
      ++index;
    }
  };
  const std::shared_ptr<const Covering> pairs = pairs_of(of, edges, options.seed);
  take(*pairs, 0.0, 1.0);
  coverage.kernel = of.kernel;
  coverage.missing = pairs->missing;
  if (options.effort >= kTriples) {
    std::vector<Case> given(edges.begin(), edges.end());
    given.insert(given.end(), pairs->cases.begin(), pairs->cases.end());
    const Covering dear =
        cover(*of.kernel, of.covered, given, {.most = kDearPairs, .usual = 1.0, .seed = options.seed});
    take(dear, kTriples, kTriples);
    given.insert(given.end(), dear.cases.begin(), dear.cases.end());
    take(cover(*of.kernel, of.covered, given,
               {.strength = 3, .most = kMostOfTriple, .seed = options.seed, .pairs = &dear.missing}),
         kTriples, kTriples);
  }
  const auto count = static_cast<double>(of.drawn());
  const auto drawn = static_cast<std::int64_t>(options.effort * count + 1e-9);
  for (std::int64_t i = 0; i < drawn; ++i) turns.push_back({static_cast<double>(i + 1) / count, &of, i});
  return turns;
}

}  // namespace

namespace {

/// The kernel of a name; throws Error where there is none or the other filters exclude it.
void check_kernel(const KernelTable& table, const std::string& system, const std::string& device,
                  std::string_view name) {
  const KernelRow* kernel = &table.row_named(name);
  if (!is_among(system, kernel->system->name)) {
    throw Error(fmt::format("kernel {} computes {}, not {}: name one of the two", name, kernel->system->name,
                            system));
  }
  if (!device.empty() && kernel->device != device) {
    throw Error(
        fmt::format("kernel {} is for device {}, not {}: name one of the two", name, kernel->device, device));
  }
}

}  // namespace

std::vector<const KernelRow*> wanted_kernels(const KernelTable& table, const std::string& system,
                                             const std::string& device, const std::string& kernel) {
  for (const std::string_view name : plain_names(system)) (void)system_named(std::string(name));
  if (!device.empty() && device != "cpu" && device != "cuda")
    throw Error("device " + device + ": no such device; known: cpu, cuda");
  for (const std::string_view name : plain_names(kernel)) check_kernel(table, system, device, name);
  std::vector<const KernelRow*> kept;
  bool named = false;  // whether there is a kernel for the patterns
  for (const KernelRow& row : table.all()) {
    if (!is_among(system, row.system->name) || !is_among(kernel, row.name)) continue;
    named = true;
    if (device.empty() || row.device == device) kept.push_back(&row);
  }
  if (!named) {
    throw Error(
        fmt::format("no kernel of system={} kernel={}; `samestate list kernels` shows them, and a "
                    "plugin's needs --plugin FILE",
                    system.empty() ? "*" : system, kernel.empty() ? "*" : kernel));
  }
  return kept;
}

bool may_fit(const KernelRow& row, const CaseFilter& filter) {
  Case c;
  c.system = row.system->name;
  return std::all_of(
      filter.conditions().begin(), filter.conditions().end(), [&](const KeyCondition& condition) {
        return (condition.key != "kernel" && condition.key != "system") || condition.holds(c, row.name);
      });
}

Plan plan_of(const KernelTable& table, const PlanOptions& options) {
  Plan plan;
  std::vector<Planned> kernels;
  for (const KernelRow* kernel : wanted_kernels(table, options.system, options.device, options.kernel)) {
    if (may_fit(*kernel, options.filter))
      kernels.push_back({kernel, factors_of(*kernel), covered_factors_of(*kernel)});
  }
  // Kernels do not know of each other, and a covering set takes a while.
  struct Part {
    std::vector<Case> edges;
    std::vector<Turn> turns;
    KernelCoverage coverage;
  };
  std::vector<Part> parts(kernels.size());
  std::atomic<std::size_t> next = 0;
  std::mutex reporting;
  std::size_t done = 0;
  if (options.planned) options.planned(0, kernels.size());
  const auto work = [&] {
    for (std::size_t i = next++; i < kernels.size(); i = next++) {
      if (options.stop && options.stop()) return;
      parts[i].edges = edges_of(table, *kernels[i].kernel);
      parts[i].turns = turns_of(kernels[i], parts[i].edges, options, parts[i].coverage);
      const std::scoped_lock lock(reporting);
      ++done;
      if (options.planned) options.planned(done, kernels.size());
    }
  };
  {
    std::vector<std::jthread> threads(
        std::min<std::size_t>(kernels.size(), std::thread::hardware_concurrency()));
    for (std::jthread& thread : threads) thread = std::jthread(work);
  }
  std::vector<Turn> turns;
  for (Part& part : parts) {
    plan.cases.insert(plan.cases.end(), std::make_move_iterator(part.edges.begin()),
                      std::make_move_iterator(part.edges.end()));
    turns.insert(turns.end(), std::make_move_iterator(part.turns.begin()),
                 std::make_move_iterator(part.turns.end()));
    plan.kernels.push_back(std::move(part.coverage));
  }
  std::erase_if(turns, [&](const Turn& turn) { return turn.at > options.effort + 1e-9; });
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.at < b.at; });
  for (Turn& turn : turns) {
    Case c = turn.c.system.empty() ? seeded(*turn.of, options.seed, turn.index) : std::move(turn.c);
    if (!table.is_standard(*turn.of->kernel, c)) c.kernel = turn.of->kernel->name;
    plan.cases.push_back(std::move(c));
  }
  keep_taken(plan.cases, table, options.filter);
  const std::int64_t total = plan.total = std::ssize(plan.cases);
  if (options.max_cases > 0 && total > options.max_cases) {
    std::vector<Case> kept;
    for (std::int64_t i = 0; i < options.max_cases; ++i) {
      kept.push_back(plan.cases[static_cast<std::size_t>(i * total / options.max_cases)]);
    }
    plan.cases = std::move(kept);
  }
  return plan;
}

std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options) {
  return plan_of(table, options).cases;
}

}  // namespace samestate
