#include "fuzz/search/case_source.h"

#include <fmt/format.h>
#include <rapidcheck/Gen.h>
#include <rapidcheck/Random.h>
#include <rapidcheck/gen/Arbitrary.h>
#include <rapidcheck/gen/Exec.h>
#include <rapidcheck/gen/Numeric.h>

#include <algorithm>

#include "fuzz/draw.h"
#include "fuzz/plan.h"

namespace samestate {
namespace {

/// Another number whenever the drawing changes: a checkpoint of another drawing is then refused.
constexpr std::uint64_t kDrawing = 5;
constexpr double kLargeCase = 20.0;

}  // namespace

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

CaseSource::CaseSource(const KernelTable& table, const SearchFilter& filter, std::uint64_t seed)
    : table_(table), seed_(seed) {
  for (const KernelRow* row : wanted_kernels(table, filter.system, filter.device, filter.kernel)) {
    const auto known = std::find_if(systems_.begin(), systems_.end(),
                                    [&](const SearchSystem& s) { return s.system == row->system; });
    SearchSystem& of =
        known != systems_.end() ? *known : systems_.emplace_back(SearchSystem{row->system, {}});
    of.kernels.push_back({row, factors_of(*row)});
  }
  if (systems_.empty()) {
    throw Error(
        "no kernel is left to search: widen --system, --device or --kernel; `samestate list kernels`");
  }
}

Case CaseSource::draw(std::int64_t index) const {
  const rc::Gen<Case> gen = rc::gen::exec([this] {
    // At nominal size RapidCheck's inRange covers all of it (HARNESS 2).
    const Dice dice{[](std::int64_t n) { return n <= 1 ? 0 : *rc::gen::inRange<std::int64_t>(0, n); }};
    const SearchKernel& of = dice.pick(dice.pick(systems_).kernels);
    const KernelRow& kernel = *of.row;
    // One case in 64 may be a large one: what only real sizes show is rare where cases are small.
    Case c = draw_case(kernel, of.factors, dice, dice.one_in(64) ? kLargeCase : 1.0);
    c.seed = *rc::gen::arbitrary<std::uint64_t>();
    if (!table_.is_standard(kernel, c)) c.kernel = kernel.name;
    return c;
  });
  const rc::Random random(rc::Random::Key{seed_, static_cast<std::uint64_t>(index), kDrawing, 0});
  return gen(random, rc::kNominalSize).value();
}

std::string CaseSource::fingerprint() const {
  std::string text = fmt::format("drawing {}", kDrawing);
  for (const SearchSystem& system : systems_) {
    for (const SearchKernel& of : system.kernels) {
      text += " " + of.row->name;
      for (const std::string& contract : of.row->contracts) text += "," + contract;
    }
  }
  return fmt::format("{:016x}", hash_of(text));
}

}  // namespace samestate
