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
#include "fuzz/shapes.h"
#include "harness/cases/regimes.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/laws/law.h"

namespace samestate {
namespace {

/// Another number whenever the drawing changes: a checkpoint of another drawing is then refused.
constexpr std::uint64_t kDrawing = 3;

// Most cases are far smaller than the largest work of a plan: rate finds more than size does.
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

/// T in {0, 1, 2, C - 1, C, C + 1, 2C, 2C + 1} half of the time.
std::int64_t draw_tokens(const Dice& dice, std::int64_t chunk, std::int64_t longest) {
  if (dice.one_in(2)) {
    const std::array<std::int64_t, 8> edges{0, 1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1};
    const std::int64_t T = dice.pick(edges);
    if (T <= longest) return T;
  }
  return 1 + dice.below(longest);
}

Case draw_family(const Dice& dice, const KernelRow& kernel, const RecurrentSystem& system) {
  static constexpr std::array<std::int64_t, 12> kWidths{1, 2, 3, 8, 8, 16, 16, 24, 33, 48, 64, 128};
  static constexpr std::array<std::int64_t, 10> kChunks{1, 2, 3, 4, 8, 8, 16, 16, 32, 64};
  static constexpr std::array<std::int64_t, 5> kHeads{1, 1, 1, 2, 3};
  const bool chunked = kernel.form == "chunked";
  const auto below = [&](std::int64_t n) { return dice.below(n); };
  Case c;
  c.system = system.name;
  c.form = kernel.form;
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
  const Regime* regime = nullptr;
  do regime = &regimes()[static_cast<std::size_t>(dice.below(std::ssize(regimes())))];
  while (system.regime(regime->name) == nullptr);
  c.regime = regime->name;
  if (regime->exact) c.l2norm = false;
  const double room =
      dice.room(1e3, shapes::kLargestFamilyWork) / static_cast<double>(c.B * c.Hv * c.dk * c.dv);
  const std::int64_t longest = std::clamp<std::int64_t>(static_cast<std::int64_t>(room), 2, 300);
  c.T = draw_tokens(dice, chunked ? c.chunk : 2, longest);
  // Without tokens only a state can be wrong.
  if (c.T == 0) c.state = "random";
  switch (dice.below(6)) {
    case 0:
      shapes::as_packed(c, chunked, below);
      break;
    case 1:
      shapes::as_decode(c, chunked, below);
      break;
    case 2: {
      const Law* law = nullptr;
      do law = &laws()[static_cast<std::size_t>(dice.below(std::ssize(laws())))];
      while (!law->fits(system.family));
      shapes::as_law(c, *law, kernel.contracts.front());
      break;
    }
    case 3:
      if (chunked && system.form("parallel") != nullptr && c.T <= 64) c.form = "parallel";
      break;
    default:
      break;
  }
  c.seed = dice.seed();
  return c;
}

Case draw_tensors(const Dice& dice, const KernelRow& kernel) {
  const System& system = *kernel.system;
  const CaseForm* form = system.form(kernel.form);
  const bool chunked = form != nullptr && form->chunked;
  Case standard;
  standard.system = system.name;
  standard.form = kernel.form;
  standard.contract = kernel.contracts.front();
  for (const Parameter& p : system.sizes) standard.parameters.emplace(p.name, p.standard);
  const double room = dice.room(1e3, shapes::kLargestTensorWork);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Case c = standard;
    c.contract = dice.pick(kernel.contracts);
    c.regime = dice.pick(system.regimes)->name;
    c.B = dice.one_in(4) ? 2 : 1;
    if (kernel.strided && dice.one_in(6)) c.layout = dice.one_in(3) ? "far" : "padded";
    if (chunked) c.chunk = 1 + dice.below(20);
    c.T = draw_tokens(dice, chunked ? c.chunk : 8, 60);
    for (const Parameter& p : system.sizes) {
      if (dice.one_in(2)) continue;
      const std::int64_t most = std::min<std::int64_t>(p.most, 2 * p.standard + 1);
      c.parameters[std::string(p.name)] = p.least + dice.below(most - p.least + 1);
    }
    if (system.form("decode") != nullptr && dice.one_in(3)) {
      c.form = "decode";
      c.T = std::min<std::int64_t>(c.T, 24);
      c.prefill = dice.below(c.T + 1);
    }
    if (system.native(c.form) && !system.laws.empty() && dice.one_in(6)) {
      c.law = dice.pick(system.laws).name;
      c.B = 2;
      c.T = std::clamp<std::int64_t>(c.T, 2, 24);
    }
    // Half of the attempts stay within the room that was drawn; the rest only within what is affordable.
    const double limit = attempt < kAttempts / 2 ? room : shapes::kLargestTensorWork;
    if (!possible(c) || shapes::tensor_work(c) > limit) continue;
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
  check_filters(table, filter.system, filter.device, filter.kernel);
  for (const KernelRow& row : table.all()) {
    if ((!filter.system.empty() && row.system->name != filter.system) ||
        (!filter.device.empty() && row.device != filter.device) ||
        (!filter.kernel.empty() && row.name != filter.kernel)) {
      continue;
    }
    const auto known = std::find_if(systems_.begin(), systems_.end(),
                                    [&](const SearchSystem& s) { return s.system == row.system; });
    SearchSystem& of = known != systems_.end() ? *known : systems_.emplace_back(SearchSystem{row.system, {}});
    of.kernels.push_back(&row);
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
    const KernelRow& kernel = *dice.pick(system.kernels);
    const auto* family = dynamic_cast<const RecurrentSystem*>(system.system);
    Case c = family ? draw_family(dice, kernel, *family) : draw_tensors(dice, kernel);
    if (!table_.is_standard(kernel, c)) c.kernel = kernel.name;
    return c;
  });
  const rc::Random random(rc::Random::Key{seed_, static_cast<std::uint64_t>(index), kDrawing, 0});
  return gen(random, rc::kNominalSize).value();
}

std::string CaseSource::fingerprint() const {
  std::string text = fmt::format("drawing {}", kDrawing);
  for (const SearchSystem& system : systems_) {
    for (const KernelRow* row : system.kernels) {
      text += " " + row->name;
      for (const std::string& contract : row->contracts) text += "," + contract;
    }
  }
  return fmt::format("{:016x}", hash_of(text));
}

}  // namespace samestate
