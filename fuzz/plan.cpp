#include "fuzz/plan.h"

#include <algorithm>
#include <array>
#include <set>

#include "fuzz/operator_plan.h"
#include "harness/cases/counter.h"
#include "harness/cases/regimes.h"
#include "harness/cases/systems.h"
#include "oracles/laws/law.h"
#include "oracles/systems/operator.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Work of a case in state updates, B Hv T dk dv; the oracle and its bounds cost a few times that.
constexpr double kLargestWork = 3e6;

bool fits(const Regime& regime, const Family& family) {
  return (!regime.gated || family.gated) && (!regime.delta || family.delta);
}

bool sixteen_bit(std::string_view contract) {
  return contract.starts_with("bf16") || contract.starts_with("fp16");
}

/// The cases of one kernel.
class KernelPlan {
 public:
  KernelPlan(const Kernel& kernel, bool is_default, std::vector<Case>& out)
      : kernel_(kernel), system_(system_named(kernel.system)), out_(out) {
    base_.system = kernel.system;
    if (!is_default) base_.kernel = kernel.name;
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
    const Counter counter(seed, "plan/" + kernel_.system + "/" + kernel_.form);
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
    do {
      c.regime = regimes()[static_cast<std::size_t>(below(std::ssize(regimes())))].name;
    } while (!fits(regime_named(c.regime), *system_.family));
    if (regime_named(c.regime).exact) c.l2norm = false;

    const double room = kLargestWork / static_cast<double>(c.B * c.Hv * c.dk * c.dv);
    const std::int64_t longest = std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 2, 300);
    c.T = 1 + below(longest);
    switch (below(6)) {
      case 0:
        as_packed(c, below);
        break;
      case 1:
        as_decode(c, below);
        break;
      case 2:
        as_law(c, below);
        break;
      case 3:
        if (chunked() && has_form("parallel") && c.T <= 64) c.form = "parallel";
        break;
      default:
        break;
    }
    put(c);
  }

 private:
  [[nodiscard]] bool chunked() const { return kernel_.form == "chunked"; }
  [[nodiscard]] bool has_form(std::string_view form) const {
    return std::find(system_.forms.begin(), system_.forms.end(), form) != system_.forms.end();
  }
  [[nodiscard]] std::string contract_for_rounding() const {
    for (const std::string& name : kernel_.contracts) {
      if (name == "bf16") return name;
    }
    return kernel_.contracts.back();
  }

  void put(const Case& c) {
    out_.push_back(c);
    out_.back().T = c.lengths.empty() ? c.T : out_.back().T;
  }

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
    if (chunked() && has_form("parallel")) {
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
    for (const Regime& regime : regimes()) {
      if (!fits(regime, *system_.family)) continue;
      Case c = base;
      c.regime = regime.name;
      c.T = 80;
      c.Hk = 1;
      c.Hv = 2;
      put(c);
    }
  }

  void laws_of(const Case& base) {
    for (const Law& law : laws()) {
      if ((law.name == "reset" && !system_.family->gated) || (law.name == "recall" && !system_.family->delta))
        continue;
      Case c = base;
      c.law = law.name;
      c.B = 2;
      c.Hk = 2;
      c.Hv = 4;
      c.T = 35;
      put(c);
    }
  }

  template <class Below>
  void as_packed(Case& c, Below&& below) {
    c.form = "packed";
    c.B = 1;
    if (!chunked()) c.chunk = 0;
    const std::int64_t most = std::max<std::int64_t>(c.T / 2, 1);
    std::int64_t left = c.T;
    while (left > 0 && c.lengths.size() < 8) {
      const std::int64_t next = below(4) == 0 ? 0 : std::min(left, 1 + below(most));
      c.lengths.push_back(next);
      left -= next;
    }
    c.lengths.push_back(left);
  }

  template <class Below>
  void as_decode(Case& c, Below&& below) {
    c.form = "decode";
    c.T = std::min<std::int64_t>(c.T, 80);
    c.prefill = below(c.T + 1);
    if (!chunked()) c.chunk = 0;
  }

  template <class Below>
  void as_law(Case& c, Below&& below) {
    const Law& law = laws()[static_cast<std::size_t>(below(std::ssize(laws())))];
    if ((law.name == "reset" && !system_.family->gated) || (law.name == "recall" && !system_.family->delta))
      return;
    if (law.name == "no_op") c.state = "random";
    c.law = law.name;
    c.B = 2;
    c.Hk = std::max<std::int64_t>(c.Hk, law.name == "head_permutation" ? 2 : 1);
    c.Hv = std::min<std::int64_t>(std::max(c.Hv, c.Hk), 2 * c.Hk) / c.Hk * c.Hk;
    c.dv = std::max<std::int64_t>(c.dv, 2);
    c.T = std::clamp<std::int64_t>(c.T, 2, 48);
    c.dk = std::min<std::int64_t>(c.dk, 64);
    c.dv = std::min<std::int64_t>(c.dv, 64);
    // The worst case of a low-precision state is vacuous after a few tokens, and no law can be judged with
    // it.
    if (sixteen_bit(c.contract) && c.contract.find("state") != std::string::npos)
      c.contract = kernel_.contracts.front();
    if (regime_named(c.regime).exact || c.regime == "unnormalised15") c.regime = "normal";
  }

  const Kernel& kernel_;
  const System& system_;
  std::vector<Case>& out_;
  Case base_;
};

}  // namespace

namespace {

/// Name, system and device of a row of either table.
struct RowName {
  std::string_view name, system, device;
};

std::vector<RowName> row_names(const KernelTable& table) {
  std::vector<RowName> names;
  for (const Kernel& row : table.rows()) names.push_back({row.name, row.system, row.device});
  for (const OperatorKernel& row : table.operator_rows()) names.push_back({row.name, row.system, row.device});
  return names;
}

/// Throws Error for a filter that names what does not exist, or excludes itself: that would look like a
/// machine on which nothing can run.
void check_filters(const KernelTable& table, const PlanOptions& options) {
  if (!options.system.empty() && find_operator(options.system) == nullptr) (void)system_named(options.system);
  if (!options.device.empty() && options.device != "cpu" && options.device != "cuda") {
    throw Error("device " + options.device + ": no such device; known: cpu, cuda");
  }
  if (options.kernel.empty()) return;
  const std::vector<RowName> names = row_names(table);
  const auto kernel = std::find_if(names.begin(), names.end(),
                                   [&](const RowName& row) { return row.name == options.kernel; });
  if (kernel == names.end()) {
    throw Error("kernel=" + options.kernel +
                ": no such kernel; `samestate list kernels` shows them, and a plugin's needs --plugin FILE");
  }
  if (!options.system.empty() && kernel->system != options.system) {
    throw Error("kernel " + options.kernel + " computes " + std::string(kernel->system) + ", not " +
                options.system + ": name one of the two");
  }
  if (!options.device.empty() && kernel->device != options.device) {
    throw Error("kernel " + options.kernel + " is for device " + std::string(kernel->device) + ", not " +
                options.device + ": name one of the two");
  }
}

template <class Row>
std::vector<const Row*> wanted(std::span<const Row> rows, const PlanOptions& options) {
  std::vector<const Row*> kept;
  for (const Row& row : rows) {
    if (!options.system.empty() && row.system != options.system) continue;
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
  const std::vector<const Kernel*> rows = wanted(table.rows(), options);
  std::vector<KernelPlan> plans;
  plans.reserve(rows.size());
  std::set<std::string_view> devices;
  for (const Kernel* row : rows) {
    plans.emplace_back(*row, row->name == "cpu." + row->system + "." + row->form, cases);
    plans.back().edges();
    devices.insert(row->device);
  }
  if (plans.empty()) return;
  const std::int64_t seeded = scaled(kSeededCases * std::ssize(devices), options.effort);
  for (std::int64_t i = 0; i < seeded; ++i) {
    plans[static_cast<std::size_t>(i) % plans.size()].seeded(options.seed, i / std::ssize(plans));
  }
}

void plan_operators(const KernelTable& table, const PlanOptions& options, std::vector<Case>& cases) {
  for (const OperatorKernel* row : wanted(table.operator_rows(), options)) {
    Case plain;
    plain.system = row->system;
    plain.form = row->form;
    const bool is_default = table.operator_for(plain).name == row->name;
    // Under form=decode the line names the kernel unless it is the system's first.
    const auto begin = std::ssize(cases);
    plan_operator_edges(*row, is_default, cases);
    for (std::int64_t i = 0; i < scaled(kSeededOperatorCases, options.effort); ++i) {
      plan_operator_seeded(*row, is_default, options.seed, i, cases);
    }
    for (auto i = static_cast<std::size_t>(begin); i < cases.size(); ++i) {
      if (table.operator_for(cases[i]).name != row->name) cases[i].kernel = row->name;
    }
  }
}

}  // namespace

std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options) {
  check_filters(table, options);
  std::vector<Case> cases;
  plan_family(table, options, cases);
  plan_operators(table, options, cases);
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
