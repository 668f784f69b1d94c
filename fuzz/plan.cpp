#include "fuzz/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fuzz/draw.h"
#include "harness/cases/counter.h"
#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// The edge cases of one kernel: what follows from the rows of its system and of the keys.
class KernelPlan {
 public:
  KernelPlan(const KernelTable& table, const KernelRow& kernel, std::vector<Case>& out)
      : table_(table), kernel_(kernel), system_(*kernel.system), start_(start_of(kernel)), out_(out) {
    // A line that is no case is left out; a row that names no contract is an error.
    for (const std::string& contract : kernel.contracts) (void)contract_named(contract);
  }

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
      sizes(c);
      settings(c);
      chunks(c);
      for (const std::string_view part : system_.plan.shapes) put(c, part);
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
    for (const std::string_view part : system_.plan.limits) put(start_, part);
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
    out_.push_back(std::move(c));
  }
  void put(const Case& c, std::string_view part) { put(with_part(kernel_, c, part)); }

  void lengths(const Case& base) {
    const Index C = base.chunk;
    const std::vector<Index> all = chunked() ? std::vector<Index>{0, 1, 2, C - 1, C, C + 1, 2 * C + 3}
                                             : std::vector<Index>{0, 1, 2, 7, 8, 9, 33};
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
      if (form.whole && chunked()) put(c);
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

  /// Every value of every key that has some, alone and in a batch.
  void settings(const Case& base) {
    for (const Key& key : keys()) {
      if (!system_.has_key(key.name)) continue;
      for (const std::string_view value : key.values) {
        Case c = base;
        key.parse(c, value);
        put(c);
        if (key.name == "B" || c == base) continue;
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
    for (const Index chunk : {1, 2, 5, 21, 31, 32, 64}) {
      Case c = base;
      c.chunk = chunk;
      put(c);
      c.T = 70;
      if (possible(c) && system_.work(c) <= 1.0) put(c);
    }
  }

  const KernelTable& table_;
  const KernelRow& kernel_;
  const System& system_;
  Case start_;
  std::vector<Case>& out_;
};

/// Seeded case number `index` of a kernel.
Case seeded(const KernelTable& table, const KernelRow& kernel, std::uint64_t seed, std::int64_t index) {
  const Counter counter(seed, "plan/" + kernel.name);
  std::int64_t draw = 0;
  Case c = draw_case(kernel, {[&](std::int64_t n) { return counter.below({index, draw++, 0, 0}, n); }});
  c.seed = (seed << 32) ^ (static_cast<std::uint64_t>(index) + 1);
  if (!table.is_standard(kernel, c)) c.kernel = kernel.name;
  return c;
}

/// The seeded cases of all kernels, in turn by their share of their kernel's: those of a smaller effort are the
/// first of those of a larger one.
void plan_seeded(const KernelTable& table, const std::vector<const KernelRow*>& kernels,
                 const PlanOptions& options, std::vector<Case>& cases) {
  struct Turn {
    double at;
    const KernelRow* kernel;
    std::int64_t index;
  };
  std::vector<Turn> turns;
  for (const KernelRow* kernel : kernels) {
    const auto of = static_cast<double>(kernel->system->plan.seeded);
    const auto count = static_cast<std::int64_t>(options.effort * of + 1e-9);
    for (std::int64_t i = 0; i < count; ++i) turns.push_back({static_cast<double>(i + 1) / of, kernel, i});
  }
  std::stable_sort(turns.begin(), turns.end(), [](const Turn& a, const Turn& b) { return a.at < b.at; });
  for (const Turn& turn : turns) cases.push_back(seeded(table, *turn.kernel, options.seed, turn.index));
}

}  // namespace

namespace {

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

}  // namespace

std::vector<const KernelRow*> wanted_kernels(const KernelTable& table, const std::string& system,
                                             const std::string& device, const std::string& kernel) {
  check_filters(table, system, device, kernel);
  std::vector<const KernelRow*> kept;
  for (const KernelRow& row : table.all()) {
    if (!system.empty() && row.system->name != system) continue;
    if (!kernel.empty() && row.name != kernel) continue;
    if (!device.empty() && row.device != device) continue;
    kept.push_back(&row);
  }
  return kept;
}

std::vector<Case> plan_cases(const KernelTable& table, const PlanOptions& options) {
  const std::vector<const KernelRow*> kernels =
      wanted_kernels(table, options.system, options.device, options.kernel);
  std::vector<Case> cases;
  for (const KernelRow* kernel : kernels) KernelPlan(table, *kernel, cases).edges();
  plan_seeded(table, kernels, options, cases);
  keep_taken(cases, table, options.filter);
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
