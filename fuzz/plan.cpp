#include "fuzz/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "fuzz/covering.h"
#include "fuzz/draw.h"
#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "harness/systems/model_shapes.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr double kMostOfModel = 8.0;   // System::work of a case with the sizes of a public model
constexpr double kMostOfWidths = 2.0;  // beyond which it has fewer tokens, if those are many
constexpr double kDearOfSizes = 0.2;   // work of a size that only a tile of it makes special
constexpr double kDearPairs = 8.0;     // work of a pair that effort 1 cannot afford
constexpr double kMostOfTriple =
    0.5;  // work of a triple, of which there are a hundred times as many as pairs

/// The edge cases of one kernel: what follows from the rows of its system and of the keys.
class KernelPlan {
 public:
  KernelPlan(const KernelTable& table, const KernelRow& kernel, std::vector<Case>& out)
      : table_(table), kernel_(kernel), system_(*kernel.system), start_(start_of(kernel)), out_(out) {}

  void edges() {
    for (const std::string& contract : kernel_.contracts) {
      const Case c = under(contract);
      lengths(c);
      calls(c);
      for (const std::string_view part : system_.plan.every) put(c, part);
    }
    std::vector<std::string> both{kernel_.contracts.front()};
    if (contract_for_rounding() != both.front()) both.push_back(contract_for_rounding());
    for (const std::string& contract : both) {
      const Case c = under(contract);
      if (over_ranks(kernel_)) {
        if (contract == both.front()) settings(c);
        for (const std::string_view part : system_.plan.ranks) put(c, part);
      } else {
        sizes(c);
        tiled_sizes(c);
        groups(c);
        settings(c);
        chunks(c);
        for (const std::string_view part : system_.plan.shapes) put(c, part);
      }
      for (const Regime* regime : system_.regimes) {
        Case of = with_part(kernel_, c, system_.plan.regime);
        of.regime = regime->name;
        of.seed = 7;
        put(of);
      }
      for (const CaseLaw& law : system_.laws) {
        Case of = with_part(kernel_, c, system_.plan.law);
        of.law = law.name;
        put(of);
      }
    }
    if (over_ranks(kernel_)) return;
    for (const std::string_view part : system_.plan.limits) put(start_, part);
    long_cache(start_);
    many_tokens(start_);
    if (system_.has_key("dk")) {
      std::size_t turn = 0;
      for (const std::string_view part : family_calls())
        put(under(kernel_.contracts[turn++ % kernel_.contracts.size()]), part);
    }
    for (const std::string& part : system_.plan.models) {
      for (const std::string& contract : both) affordable(under(contract), part);
    }
    if (!system_.plan.models.empty()) twice(system_.plan.models.front());
  }

 private:
  [[nodiscard]] bool chunked() const { return system_.form(kernel_.form)->chunked; }
  [[nodiscard]] std::string contract_for_rounding() const {
    const auto bf16 = std::find(kernel_.contracts.begin(), kernel_.contracts.end(), "bf16");
    return bf16 != kernel_.contracts.end() ? *bf16 : kernel_.contracts.back();
  }
  [[nodiscard]] Case under(const std::string& contract) const {
    Case c = start_;
    c.contract = contract;
    return c;
  }

  /// Only cases that are cases: a size at its least may not fit the others, nor a layout the kernel.
  void put(Case c) {
    if (c.layout != Case{}.layout && !kernel_.strided) return;
    if (!possible(c)) return;
    if (!table_.is_standard(kernel_, c)) c.kernel = kernel_.name;
    if (seen_.insert(format_case(c)).second) out_.push_back(std::move(c));
  }
  void put(const Case& c, std::string_view part) { put(with_part(kernel_, c, part)); }

  /// With as many tokens as a model's widths leave the time for.
  void affordable(const Case& base, std::string_view part) {
    Case c = with_part(kernel_, base, part);
    // The family's have a token behind a chunk of 64, which fewer would take away.
    const double most = system_.has_key("dk") ? kMostOfModel : kMostOfWidths;
    while (c.T > 1 && possible(c) && work_of(kernel_, c) > most) c.T = (c.T + 1) / 2;
    if (possible(c) && work_of(kernel_, c) <= kMostOfModel) put(c);
  }

  /// Repeated calls of many tokens and a model's widths: what a kernel keeps by shape it may keep of a large one alone.
  void twice(const std::string& part) {
    Case c = with_part(kernel_, start_, part + " repeat=1");
    c.T = std::max<Index>(c.T, 70);
    if (possible(c) && work_of(kernel_, c) <= kMostOfWidths) put(c);
  }

  void lengths(const Case& base) {
    const Index C = base.chunk;
    // Those that show most first: what only a process's first call does wrong is in them.
    const std::vector<Index> all = chunked() ? std::vector<Index>{2 * C + 3, C + 1, C, C - 1, 2, 1, 0}
                                             : std::vector<Index>{33, 9, 8, 7, 2, 1, 0};
    for (const Index T : all) {
      Case c = base;
      c.T = T;
      c.seed = static_cast<std::uint64_t>(T);
      put(c);
    }
  }

  /// The forms that are calls of the kernel's: one, several and all tokens in one call of several.
  void calls(const Case& base) {
    for (const CaseForm& form : system_.forms) {
      Case c = base;
      c.form = form.name;
      if (form.whole && chunked() && !over_ranks(kernel_)) put(c);
      if (!form.decodes) continue;
      if (form.chunked && !chunked()) c.chunk = 0;
      for (const Index prefill : {Index{0}, Index{1}, Index{2}, Index{13}, base.T}) {
        c.prefill = std::min(prefill, base.T);
        put(c);
      }
    }
  }

  /// Each size at its least, odd, and beyond what the others' cases have.
  void sizes(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      for (const Index value : {size.least, size.start + 1, 2 * size.start}) {
        Case c = base;
        size_in(c, size.name) = value;
        for (const CaseSize& other : system_.sizes) {
          if (other.multiple_of == size.name) size_in(c, other.name) = 2 * value;
        }
        put(c);
      }
    }
  }

  /// Widths of models between the powers of two, with tokens enough to show them: of one key, or token, a scale does not.
  void tiled_sizes(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      for (const Index value : {48, 96, 192}) {
        Case c = base;
        size_in(c, size.name) = value;
        for (const CaseSize& other : system_.sizes) {
          if (other.multiple_of == size.name) size_in(c, other.name) = value;
        }
        if (possible(c) && work_of(kernel_, c) <= kDearOfSizes) put(c);
      }
    }
  }

  /// A few groups of two or three, of odd counts and of even ones that are no power of two, by every map of heads.
  void groups(const Case& base) {
    for (const CaseSize& size : system_.sizes) {
      if (size.multiple_of.empty()) continue;
      for (const Index of : {3, 5, 6, 7}) {
        for (const Index ratio : {2, 3}) {
          Case c = base;
          size_in(c, size.multiple_of) = of;
          size_in(c, size.name) = ratio * of;
          put(c);
          if (!system_.has_key("heads")) continue;
          c.heads = HeadMap::tiled;
          put(c);
        }
      }
    }
  }

  /// A cache of more tokens than a block of threads has, in a batch, and tokens behind it: of small sizes, since each token meets those before it.
  void long_cache(const Case& base) {
    for (const CaseForm& form : system_.forms) {
      if (!form.decodes) continue;
      Case c = base;
      c.form = form.name;
      if (form.chunked && !chunked()) c.chunk = 0;
      c = few_of_each_size(std::move(c));
      c.B = 2, c.T = 521, c.prefill = 519;
      if (possible(c) && work_of(kernel_, c) <= kMostOfModel) put(c);
    }
  }

  /// Every value of every key that has some, alone and in a batch.
  void settings(const Case& base) {
    for (const Key& key : keys()) {
      if (!tries(kernel_, key)) continue;
      for (const std::string_view value : key.values) {
        Case c = base;
        key.parse(c, value);
        put(c);
        if (key.name == "B" || c == base || over_ranks(kernel_)) continue;
        c.B = 2;
        put(c);
        for (const CaseForm& form : system_.forms) {
          if (!form.decodes) continue;
          c.form = form.name;
          if (form.chunked && !chunked()) c.chunk = 0;
          c.prefill = std::min<Index>(13, c.T);
          put(c);
        }
      }
    }
  }

  void chunks(const Case& base) {
    if (!chunked()) return;
    for (const Index chunk : {1, 2, 5, 21, 31, 32, 48, 64}) {
      Case c = base;
      c.chunk = chunk;
      put(c);
      c.T = 70;
      if (possible(c) && work_of(kernel_, c) <= 1.0) put(c);
    }
    // Tokens of one chunk that see each other across 128 and more: what decays in between is in no output.
    if (!system_.has_key("dk")) return;
    for (const Index chunk : {160, 256}) {
      for (const std::string_view regime : {"normal", "none", "slow"}) {
        if (system_.regime(regime) == nullptr) continue;
        Case c = with_part(kernel_, base, "dk=8 dv=4");
        c.chunk = chunk;
        c.T = chunk + 3;
        c.regime = regime;
        put(c);
      }
    }
  }

  /// More tokens than 16 bits count, where none meets another: the rest's are among their systems' limits.
  void many_tokens(const Case& base) {
    const auto packs = [](const CaseLaw& law) { return law.name == "packing"; };
    if (system_.has_key("dk") || std::none_of(system_.laws.begin(), system_.laws.end(), packs)) return;
    Case c = few_of_each_size(base);
    c.T = 65537;
    if (possible(c) && work_of(kernel_, c) <= kMostOfModel) put(c);
  }

  /// Not one: a norm of one element is its sign, and a softmax of one key is 1.
  [[nodiscard]] Case few_of_each_size(Case c) const {
    for (const CaseSize& size : system_.sizes)
      size_in(c, size.name) = std::max(size.least, std::min<Index>(size.start, 3));
    for (const CaseSize& size : system_.sizes) {
      if (!size.multiple_of.empty()) size_in(c, size.name) = size_in(c, size.multiple_of);
    }
    return kernel_.limits.nearest(std::move(c));
  }

  const KernelTable& table_;
  const KernelRow& kernel_;
  const System& system_;
  Case start_;
  std::vector<Case>& out_;
  std::set<std::string> seen_;
};

/// A kernel with what its cases choose among.
struct Planned {
  const KernelRow* kernel;
  std::vector<Factor> factors;
  std::vector<Factor> covered;  ///< of them, those whose pairs are covered

  /// Drawn cases at effort 1.
  [[nodiscard]] std::int64_t drawn() const {
    constexpr std::int64_t kFewer = 2;
    return kernel->system->plan.seeded / (over_ranks(*kernel) ? kFewer : 1);
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

/// The covering set of pairs; that of kernels which say the same of themselves is one, as of a thousand mutants.
std::shared_ptr<const Covering> pairs_of(const Planned& of, std::span<const Case> edges, std::uint64_t seed) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Covering>> known;
  const KernelRow& kernel = *of.kernel;
  const std::string key =
      fmt::format("{} {} {} {} {} {}", kernel.system->name, kernel.form, fmt::join(kernel.contracts, ","),
                  kernel.strided, kernel.limits.text(), seed);
  {
    const std::scoped_lock lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  auto made = std::make_shared<const Covering>(cover(kernel, of.covered, edges, {.seed = seed}));
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
      KernelPlan(table, *kernels[i].kernel, parts[i].edges).edges();
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
