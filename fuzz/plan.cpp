#include "fuzz/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "fuzz/shapes.h"
#include "fuzz/tensor_plan.h"
#include "harness/cases/counter.h"
#include "harness/cases/regimes.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/laws/law.h"
#include "reference/error.h"

namespace samestate {
namespace {

using shapes::kLargestFamilyWork;

/// The cases of one kernel of the recurrent family.
class KernelPlan {
 public:
  KernelPlan(const KernelRow& kernel, bool is_standard, std::vector<Case>& out)
      : kernel_(kernel), system_(dynamic_cast<const RecurrentSystem&>(*kernel.system)), out_(out) {
    base_.system = kernel.system->name;
    if (!is_standard) base_.kernel = kernel.name;
    base_.form = kernel.form;
    base_.T = 33;
    base_.dk = 16;
    base_.dv = 8;
    base_.chunk = chunked() ? 16 : 64;
    base_.state = "random";
    base_.contract = kernel.contracts.front();
  }

  void edges() {
    for (const std::string& contract : kernel_.contracts) {
      Case c = base_;
      c.contract = contract;
      lengths(c);
      forms(c);
    }
    far_apart();
    Case c = base_;
    for (const std::string& contract : {kernel_.contracts.front(), contract_for_rounding()}) {
      c.contract = contract;
      shapes(c);
      regimes_of(c);
      laws_of(c);
    }
    limits();
  }

  /// Case number `index` of the seeded ones.
  void seeded(std::uint64_t seed, std::int64_t index) {
    const Counter counter(seed, fmt::format("plan/{}/{}", kernel_.system->name, kernel_.form));
    std::int64_t draw = 0;
    const auto below = [&](std::int64_t n) { return counter.below({index, draw++, 0, 0}, n); };
    const auto pick = [&](const auto& values) {
      return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(values))))];
    };
    static constexpr std::array<std::int64_t, 12> kWidths{1, 3, 8, 16, 16, 24, 32, 33, 48, 64, 64, 128};
    static constexpr std::array<std::int64_t, 9> kChunks{1, 2, 4, 8, 16, 16, 32, 64, 64};
    static constexpr std::array<std::int64_t, 4> kHeads{1, 1, 2, 3};
    Case c = base_;
    // Logic errors are hunted in fp32, where they stand out most (DESIGN 5): half of the cases.
    c.contract = below(2) == 0 ? kernel_.contracts.front() : pick(kernel_.contracts);
    c.dk = pick(kWidths);
    c.dv = below(4) == 0 ? c.dk : pick(kWidths);
    c.B = below(4) == 0 ? 2 : 1;
    c.Hk = pick(kHeads);
    c.Hv = c.Hk * pick(kHeads);
    c.heads = below(5) == 0 ? HeadMap::tiled : HeadMap::interleaved;
    c.l2norm = below(6) == 0;
    c.layout = below(6) == 0 ? "padded" : "dense";
    c.state = below(2) == 0 ? "random" : "none";
    if (chunked()) c.chunk = pick(kChunks);
    c.seed = (seed << 32) ^ (static_cast<std::uint64_t>(index) + 1);
    const Regime* regime = nullptr;
    do {
      regime = &regimes()[static_cast<std::size_t>(below(std::ssize(regimes())))];
    } while (system_.regime(regime->name) == nullptr);
    c.regime = regime->name;
    if (regime->exact) c.l2norm = false;

    const double room = kLargestFamilyWork / static_cast<double>(c.B * c.Hv * c.dk * c.dv);
    const std::int64_t longest = std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 2, 300);
    c.T = 1 + below(longest);
    switch (below(6)) {
      case 0:
        shapes::as_packed(c, chunked(), below);
        break;
      case 1:
        shapes::as_decode(c, chunked(), below);
        break;
      case 2:
        if (const Law& law = laws()[static_cast<std::size_t>(below(std::ssize(laws())))];
            law.fits(system_.family)) {
          shapes::as_law(c, law, kernel_.contracts.front());
        }
        break;
      case 3:
        if (chunked() && system_.form("parallel") != nullptr && c.T <= 64) c.form = "parallel";
        break;
      default:
        break;
    }
    put(c);
  }

 private:
  [[nodiscard]] bool chunked() const { return kernel_.form == "chunked"; }
  [[nodiscard]] std::string contract_for_rounding() const {
    for (const std::string& name : kernel_.contracts) {
      if (name == "bf16") return name;
    }
    return kernel_.contracts.back();
  }

  void put(const Case& c) { out_.push_back(c); }

  void lengths(const Case& base) {
    const std::int64_t C = base.chunk;
    const std::vector<std::int64_t> chunked_lengths{0, 1, C - 1, C, C + 1, 2 * C + 3};
    const std::vector<std::int64_t> recurrent_lengths{0, 1, 2, 33, 130};
    for (std::int64_t T : chunked() ? chunked_lengths : recurrent_lengths) {
      Case c = base;
      c.T = T;
      c.seed = static_cast<std::uint64_t>(T);
      put(c);
    }
    Case c = base;  // long and wide enough for the twin's statistics
    c.T = 130;
    c.dk = 32;
    c.dv = 40;
    if (chunked()) c.chunk = 64;
    put(c);
  }

  void forms(const Case& base) {
    Case packed = base;
    packed.form = "packed";
    packed.lengths = {0, 17, 1, 0, 16, 15, 0};
    packed.T = 49;
    if (!chunked()) packed.chunk = 0;
    put(packed);
    // A sequence of one token, and one of more chunks than there are sequences whose last row is the last of
    // all (BUGS M25, M37, M41).
    packed.lengths = {1, 52};
    packed.T = 53;
    packed.state = "none";
    put(packed);
    Case decode = base;
    decode.form = "decode";
    decode.prefill = 20;
    if (!chunked()) decode.chunk = 0;
    put(decode);
    if (chunked() && system_.form("parallel") != nullptr) {
      Case parallel = base;
      parallel.form = "parallel";
      put(parallel);
    }
  }

  void shapes(const Case& base) {
    const auto with = [&](auto&& change) {
      Case c = base;
      change(c);
      put(c);
    };
    with([](Case& c) { c.Hk = 2, c.Hv = 6; });
    with([](Case& c) { c.Hk = 2, c.Hv = 6, c.heads = HeadMap::tiled; });
    with([](Case& c) { c.Hk = 1, c.Hv = 8; });
    with([](Case& c) { c.dk = 1, c.dv = 1; });
    with([](Case& c) { c.dk = 3, c.dv = 70; });
    with([](Case& c) { c.dk = 70, c.dv = 3; });
    with([](Case& c) { c.dk = 128, c.dv = 128, c.T = 70; });
    with([](Case& c) { c.dk = 160, c.dv = 96, c.T = 40; });
    with([](Case& c) { c.dk = 256, c.dv = 256, c.T = 20; });
    // Qwen3-Next's and DendAttn's heads.
    with([](Case& c) { c.dk = 128, c.dv = 128, c.Hv = 2, c.T = 513, c.l2norm = true; });
    with([](Case& c) { c.dk = 160, c.dv = 512, c.T = 200; });
    with([](Case& c) { c.dk = c.dv = 16; });
    with([](Case& c) { c.B = 3, c.Hk = 2, c.Hv = 4, c.layout = "padded"; });
    with([](Case& c) { c.l2norm = true; });
    with([](Case& c) { c.l2norm = true, c.regime = "tiny_norms"; });
    with([](Case& c) { c.state = "none"; });
    with([](Case& c) { c.scale = 1.0; });
    if (chunked()) {
      for (std::int64_t C : {1, 2, 5, 31, 32, 64}) with([C](Case& c) { c.chunk = C, c.T = 70; });
    }
  }

  /// Offsets that no longer fit 32 bits (BUGS M38): of batch rows, of tokens, of sequences' states.
  void far_apart() {
    Case c = base_;
    c.layout = "far";
    put(c);
    c.B = 3;
    c.Hk = 2;
    c.Hv = 4;
    put(c);
    c = base_;
    c.layout = "far";
    c.form = "packed";
    c.lengths = {17, 16};
    if (!chunked()) c.chunk = 0;
    put(c);
  }

  /// Counts that no longer fit 16 bits, with a tail of one token: T (BUGS M12), and sequences times heads,
  /// the limit of a CUDA grid's y axis (M39).
  void limits() {
    Case c = base_;
    c.dk = c.dv = 2;
    c.T = 65537;
    if (chunked()) c.chunk = 64;
    put(c);
    c.T = 2;
    c.B = 16400;
    c.Hk = c.Hv = 4;
    put(c);
  }

  void regimes_of(const Case& base) {
    for (const Regime* regime : system_.regimes) {
      Case c = base;
      c.regime = regime->name;
      c.T = 80;
      c.Hk = 1;
      c.Hv = 2;
      put(c);
    }
  }

  void laws_of(const Case& base) {
    for (const LawName& law : system_.laws) {
      Case c = base;
      c.law = law.name;
      c.B = 2;
      c.Hk = 2;
      c.Hv = 4;
      c.T = 35;
      put(c);
    }
  }

  const KernelRow& kernel_;
  const RecurrentSystem& system_;
  std::vector<Case>& out_;
  Case base_;
};

}  // namespace

namespace {

std::vector<const KernelRow*> wanted(const KernelTable& table, const PlanOptions& options) {
  std::vector<const KernelRow*> kept;
  for (const KernelRow& row : table.all()) {
    if (!options.system.empty() && row.system->name != options.system) continue;
    if (!options.kernel.empty() && row.name != options.kernel) continue;
    if (!options.device.empty() && row.device != options.device) continue;
    kept.push_back(&row);
  }
  return kept;
}

std::int64_t scaled(std::int64_t count, double effort) {
  return static_cast<std::int64_t>(effort * static_cast<double>(count));
}

void plan_family(const KernelTable& table, const PlanOptions& options, std::vector<Case>& cases) {
  std::vector<KernelPlan> plans;
  std::set<std::string_view> devices;
  for (const KernelRow* row : wanted(table, options)) {
    if (!row->system->sizes.empty()) continue;
    plans.emplace_back(*row, table.is_standard(*row, {}), cases);
    plans.back().edges();
    devices.insert(row->device);
  }
  if (plans.empty()) return;
  const std::int64_t seeded = scaled(kSeededCases * std::ssize(devices), options.effort);
  for (std::int64_t i = 0; i < seeded; ++i) {
    plans[static_cast<std::size_t>(i) % plans.size()].seeded(options.seed, i / std::ssize(plans));
  }
}

void plan_tensors(const KernelTable& table, const PlanOptions& options, std::vector<Case>& cases) {
  for (const KernelRow* row : wanted(table, options)) {
    if (row->system->sizes.empty()) continue;
    // Under form=decode the line names the kernel unless it is the system's first.
    const auto begin = std::ssize(cases);
    plan_tensor_edges(*row, cases);
    for (std::int64_t i = 0; i < scaled(kSeededOperatorCases, options.effort); ++i)
      plan_tensor_seeded(*row, options.seed, i, cases);
    for (auto i = static_cast<std::size_t>(begin); i < cases.size(); ++i)
      cases[i].kernel = table.is_standard(*row, cases[i]) ? "" : row->name;
  }
}

}  // namespace

void check_filters(const KernelTable& table, const std::string& system, const std::string& device,
                   const std::string& name) {
  if (!system.empty()) (void)system_named(system);
  if (!device.empty() && device != "cpu" && device != "cuda") {
    throw Error("device " + device + ": no such device; known: cpu, cuda");
  }
  if (name.empty()) return;
  const auto kernel = std::find_if(table.all().begin(), table.all().end(),
                                   [&](const KernelRow& row) { return row.name == name; });
  if (kernel == table.all().end()) {
    throw Error("kernel=" + name +
                ": no such kernel; `samestate list kernels` shows them, and a plugin's needs --plugin FILE");
  }
  if (!system.empty() && kernel->system->name != system) {
    throw Error(fmt::format("kernel {} computes {}, not {}: name one of the two", name, kernel->system->name,
                            system));
  }
  if (!device.empty() && kernel->device != device) {
    throw Error("kernel " + name + " is for device " + kernel->device + ", not " + device +
                ": name one of the two");
  }
}

std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options) {
  check_filters(table, options.system, options.device, options.kernel);
  std::vector<Case> cases;
  plan_family(table, options, cases);
  plan_tensors(table, options, cases);
  const std::int64_t total = std::ssize(cases);
  if (options.max_cases > 0 && total > options.max_cases) {
    std::vector<Case> kept;
    for (std::int64_t i = 0; i < options.max_cases; ++i) {
      kept.push_back(cases[static_cast<std::size_t>(i * total / options.max_cases)]);
    }
    return kept;
  }
  return cases;
}

}  // namespace samestate
