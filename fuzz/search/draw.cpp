#include "fuzz/search/draw.h"

#include <fmt/format.h>
#include <rapidcheck/Gen.h>
#include <rapidcheck/Random.h>
#include <rapidcheck/gen/Arbitrary.h>
#include <rapidcheck/gen/Exec.h>
#include <rapidcheck/gen/Numeric.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "fuzz/plan.h"
#include "harness/cases/operator_case.h"
#include "harness/cases/regimes.h"
#include "harness/cases/systems.h"
#include "oracles/contracts.h"
#include "oracles/laws/law.h"

namespace samestate {
namespace {

/// Another number whenever the drawing changes: a checkpoint of another drawing is then refused.
constexpr std::uint64_t kDrawing = 2;

/// Work of a case of the family in state updates, B Hv T dk dv, and of an operator in multiplications
/// (fuzz/plan.cpp, fuzz/operator_plan.cpp). Most cases are far smaller: rate finds more than size does.
constexpr double kLargestFamilyWork = 3e6;
constexpr double kLargestOperatorWork = 4e5;
constexpr int kAttempts = 50;

/// Draws of one case; only inside rc::gen::exec.
struct Dice {
  /// 0..n-1. At nominal size RapidCheck's inRange covers all of it (HARNESS 2).
  [[nodiscard]] std::int64_t below(std::int64_t n) const {
    return n <= 1 ? 0 : *rc::gen::inRange<std::int64_t>(0, n);
  }
  [[nodiscard]] bool one_in(std::int64_t n) const { return below(n) == 0; }
  template <class Values>
  [[nodiscard]] auto pick(const Values& values) const {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(std::size(values))))];
  }
  /// Between least and most, small ones more often: uniform in the logarithm.
  [[nodiscard]] double room(double least, double most) const {
    return least * std::pow(most / least, static_cast<double>(below(1000)) / 999.0);
  }
  [[nodiscard]] std::uint64_t seed() const { return *rc::gen::arbitrary<std::uint64_t>(); }
};

bool has_form(const System& system, std::string_view form) {
  return std::find(system.forms.begin(), system.forms.end(), form) != system.forms.end();
}

/// T in {0, 1, 2, C - 1, C, C + 1, 2C, 2C + 1} half of the time.
std::int64_t draw_tokens(const Dice& dice, std::int64_t chunk, std::int64_t longest) {
  if (dice.one_in(2)) {
    const std::array<std::int64_t, 8> edges{0, 1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1};
    const std::int64_t T = dice.pick(edges);
    if (T <= longest) return T;
  }
  return 1 + dice.below(longest);
}

void as_packed(const Dice& dice, Case& c, bool chunked) {
  c.form = "packed";
  c.B = 1;
  if (!chunked) c.chunk = 0;
  const std::int64_t most = std::max<std::int64_t>(c.T / 2, 1);
  std::int64_t left = c.T;
  while (left > 0 && c.lengths.size() < 8) {
    const std::int64_t next = dice.one_in(4) ? 0 : std::min(left, 1 + dice.below(most));
    c.lengths.push_back(next);
    left -= next;
  }
  c.lengths.push_back(left);
}

void as_decode(const Dice& dice, Case& c, bool chunked) {
  c.form = "decode";
  c.T = std::min<std::int64_t>(c.T, 80);
  c.prefill = dice.below(c.T + 1);
  if (!chunked) c.chunk = 0;
}

bool law_fits(const Law& law, const Family& family) {
  return (law.name != "reset" || family.gated) && (law.name != "recall" || family.delta);
}

/// A law and sizes on which it can bite, as in fuzz/plan.cpp.
void as_law(const Dice& dice, Case& c, const Family& family, const std::string& plain_contract) {
  const Law* law = nullptr;
  do law = &laws()[static_cast<std::size_t>(dice.below(std::ssize(laws())))];
  while (!law_fits(*law, family));
  if (law->name == "no_op") c.state = "random";
  c.law = law->name;
  c.B = 2;
  c.Hk = std::max<std::int64_t>(c.Hk, law->name == "head_permutation" ? 2 : 1);
  c.Hv = std::min<std::int64_t>(std::max(c.Hv, c.Hk), 2 * c.Hk) / c.Hk * c.Hk;
  c.T = std::clamp<std::int64_t>(c.T, 2, 48);
  c.dk = std::min<std::int64_t>(c.dk, 64);
  c.dv = std::clamp<std::int64_t>(c.dv, 2, 64);
  // The worst case of a low-precision state is vacuous after a few tokens.
  if (low_precision_state(contract_named(c.contract))) c.contract = plain_contract;
  if (regime_named(c.regime).exact || c.regime == "unnormalised15") c.regime = "normal";
}

Case draw_family(const Dice& dice, const Kernel& kernel) {
  static constexpr std::array<std::int64_t, 12> kWidths{1, 2, 3, 8, 8, 16, 16, 24, 33, 48, 64, 128};
  static constexpr std::array<std::int64_t, 10> kChunks{1, 2, 3, 4, 8, 8, 16, 16, 32, 64};
  static constexpr std::array<std::int64_t, 5> kHeads{1, 1, 1, 2, 3};
  const System& system = system_named(kernel.system);
  const Family& family = *system.family;
  const bool chunked = kernel.form == "chunked";
  Case c;
  c.system = kernel.system;
  c.form = kernel.form;
  if (kernel.name != "cpu." + kernel.system + "." + kernel.form) c.kernel = kernel.name;
  // Logic errors stand out most in the first contract (DESIGN 5).
  c.contract = dice.one_in(2) ? kernel.contracts.front() : dice.pick(kernel.contracts);
  c.dk = dice.pick(kWidths);
  c.dv = dice.one_in(4) ? c.dk : dice.pick(kWidths);
  c.B = dice.one_in(4) ? 2 : 1;
  c.Hk = dice.pick(kHeads);
  c.Hv = c.Hk * dice.pick(kHeads);
  c.heads = dice.one_in(5) ? HeadMap::tiled : HeadMap::interleaved;
  c.l2norm = dice.one_in(6);
  static constexpr std::array<const char*, 12> kLayouts{"padded", "padded", "far",   "dense",
                                                        "dense",  "dense",  "dense", "dense",
                                                        "dense",  "dense",  "dense", "dense"};
  c.layout = dice.pick(kLayouts);
  c.state = dice.one_in(2) ? "random" : "none";
  if (chunked) c.chunk = dice.pick(kChunks);
  do c.regime = regimes()[static_cast<std::size_t>(dice.below(std::ssize(regimes())))].name;
  while ((regime_named(c.regime).gated && !family.gated) || (regime_named(c.regime).delta && !family.delta));
  if (regime_named(c.regime).exact) c.l2norm = false;
  const double room = dice.room(1e3, kLargestFamilyWork) / static_cast<double>(c.B * c.Hv * c.dk * c.dv);
  const std::int64_t longest = std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 2, 300);
  c.T = draw_tokens(dice, chunked ? c.chunk : 2, longest);
  // Without tokens only a state can be wrong.
  if (c.T == 0) c.state = "random";
  switch (dice.below(6)) {
    case 0:
      as_packed(dice, c, chunked);
      break;
    case 1:
      as_decode(dice, c, chunked);
      break;
    case 2:
      as_law(dice, c, family, kernel.contracts.front());
      break;
    case 3:
      if (chunked && has_form(system, "parallel") && c.T <= 64) c.form = "parallel";
      break;
    default:
      break;
  }
  c.seed = dice.seed();
  return c;
}

double work_of(const Case& c, const Operator& op) {
  double elements = 0.0;
  for (const TensorSpec& spec : op.signature(call_of(c, op.forms.front().name)).inputs) {
    elements += static_cast<double>(spec.size());
  }
  return static_cast<double>(c.B * std::max<std::int64_t>(c.T, 1)) * elements;
}

bool possible(const Case& c) {
  try {
    check_operator_case(c);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Case draw_operator(const Dice& dice, const OperatorKernel& kernel) {
  const Operator& op = *find_operator(kernel.system);
  const OperatorForm* form = op.form(kernel.form);
  const bool chunked = form != nullptr && form->chunked;
  Case standard;
  standard.system = kernel.system;
  standard.form = kernel.form;
  standard.contract = kernel.contracts.front();
  for (const Parameter& p : op.parameters) standard.parameters.emplace(p.name, p.standard);
  const double room = dice.room(1e3, kLargestOperatorWork);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Case c = standard;
    c.contract = dice.pick(kernel.contracts);
    c.regime = operator_regimes()[static_cast<std::size_t>(dice.below(std::ssize(operator_regimes())))].name;
    c.B = dice.one_in(4) ? 2 : 1;
    if (chunked) c.chunk = 1 + dice.below(20);
    c.T = draw_tokens(dice, chunked ? c.chunk : 8, 60);
    for (const Parameter& p : op.parameters) {
      if (dice.one_in(2)) continue;
      const std::int64_t most = std::min<std::int64_t>(p.most, 2 * p.standard + 1);
      c.parameters[std::string(p.name)] = p.least + dice.below(most - p.least + 1);
    }
    if (op.streams && dice.one_in(3)) {
      c.form = "decode";
      c.T = std::min<std::int64_t>(c.T, 24);
      c.prefill = dice.below(c.T + 1);
    }
    // Half of the attempts stay within the room that was drawn; the rest only within what is affordable.
    const double limit = attempt < kAttempts / 2 ? room : kLargestOperatorWork;
    if (!possible(c) || work_of(c, op) > limit) continue;
    c.seed = dice.seed();
    return c;
  }
  standard.T = 4;
  standard.seed = dice.seed();
  return standard;
}

}  // namespace

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

CaseSource::CaseSource(const KernelTable& table, const SearchFilter& filter, std::uint64_t seed)
    : table_(table), seed_(seed) {
  PlanOptions same;  // the gate's messages for the gate's filters
  same.system = filter.system;
  same.device = filter.device;
  same.kernel = filter.kernel;
  same.effort = 0.0;
  (void)plan_cases(table, same);
  const auto fits = [&](const auto& row) {
    return (filter.system.empty() || row.system == filter.system) &&
           (filter.device.empty() || row.device == filter.device) &&
           (filter.kernel.empty() || row.name == filter.kernel);
  };
  const auto at = [&](const std::string& system) -> SearchSystem& {
    for (SearchSystem& known : systems_) {
      if (known.name == system) return known;
    }
    return systems_.emplace_back(SearchSystem{system, {}, {}});
  };
  for (const Kernel& row : table.rows()) {
    if (fits(row)) at(row.system).kernels.push_back(&row);
  }
  for (const OperatorKernel& row : table.operator_rows()) {
    if (fits(row)) at(row.system).operators.push_back(&row);
  }
  if (systems_.empty()) {
    throw Error(
        "no kernel is left to search: widen --system, --device or --kernel; `samestate list kernels`");
  }
}

Case CaseSource::draw(std::int64_t index) const {
  const rc::Gen<Case> gen = rc::gen::exec([this] {
    const Dice dice;
    const SearchSystem& system = systems_[static_cast<std::size_t>(dice.below(std::ssize(systems_)))];
    if (!system.kernels.empty()) return draw_family(dice, *dice.pick(system.kernels));
    const OperatorKernel& kernel = *dice.pick(system.operators);
    Case c = draw_operator(dice, kernel);
    if (table_.operator_for(c).name != kernel.name) c.kernel = kernel.name;
    return c;
  });
  const rc::Random random(rc::Random::Key{seed_, static_cast<std::uint64_t>(index), kDrawing, 0});
  return gen(random, rc::kNominalSize).value();
}

std::string CaseSource::fingerprint() const {
  std::string text = fmt::format("drawing {}", kDrawing);
  for (const SearchSystem& system : systems_) {
    for (const Kernel* row : system.kernels) {
      text += " " + row->name;
      for (const std::string& contract : row->contracts) text += "," + contract;
    }
    for (const OperatorKernel* row : system.operators) {
      text += " " + row->name;
      for (const std::string& contract : row->contracts) text += "," + contract;
    }
  }
  return fmt::format("{:016x}", hash_of(text));
}

}  // namespace samestate
