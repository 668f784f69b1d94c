#include "fuzz/typical_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fuzz/draw.h"
#include "fuzz/factors.h"
#include "harness/cases/counter.h"

namespace samestate {
namespace {

/// Of what is counted (heads, experts chosen, slots) a kernel's row starts with so many at most.
constexpr Index kCount = 4;

constexpr int kCalls = 48;
constexpr double kMost = 0.4, kMostOfModel = 0.7;  // System::work of one

template <std::size_t n>
Index pick(const Dice& dice, const std::array<Index, n>& of) {
  return of[static_cast<std::size_t>(dice.below(n))];
}

/// Sizes: those of a public model where there are any, in every third call; else counts of a few, widths of tiles.
void put_sizes(Case& c, const System& system, const Dice& dice) {
  constexpr Index kSetting = 1, kFew = 16;
  for (const CaseSize& size : system.sizes) {
    if (!size.multiple_of.empty()) continue;
    Index& value = size_in(c, size.name);
    if (size.least == 0 && size.most == kSetting) {
      value = dice.one_in(2) ? size.start : 1 - size.start;
    } else if (size.most <= kFew) {
      if (dice.one_in(3)) value = std::min(size.most, size.start + 1 + dice.below(2));
    } else if (size.start <= kCount) {
      value = pick<5>(dice, {size.start, 2, 3, 4, 8});
    } else {
      value = pick<6>(dice, {size.start, 16, 32, 64, 64, 128});
    }
    value = std::clamp(value, size.least, size.most);
  }
  for (const CaseSize& size : system.sizes) {
    if (!size.multiple_of.empty())
      size_in(c, size.name) = size_in(c, size.multiple_of) * pick<6>(dice, {1, 2, 2, 3, 4, 8});
  }
}

void put_settings(Case& c, const System& system, const Dice& dice) {
  for (const CaseSize& size : system.sizes) {
    if (size.least == 0 && size.most == 1 && dice.one_in(3)) size_in(c, size.name) ^= 1;
  }
}

/// Tokens in whole chunks or about a tile; of a call behind a cache the last one or two.
void put_tokens(Case& c, const KernelRow& kernel, bool chunked, const Dice& dice) {
  const Index chunk = chunked ? c.chunk : 64;
  const CaseForm& form = *kernel.system->form(c.form);
  if (form.decodes) {
    c.T = pick<5>(dice, {chunk, chunk + 1, 2 * chunk, 65, 129});
    c.prefill = c.T - pick<3>(dice, {1, 1, 2});
  } else if (chunked) {
    c.T = pick<6>(dice, {chunk, 2 * chunk, 2 * chunk, 3 * chunk, 2 * chunk + 1, 5 * chunk});
  } else {
    c.T = pick<7>(dice, {1, 1, 2, 4, 65, 128, 129});
  }
}

/// What only the recurrent family has.
Case with_settings(const KernelRow& kernel, Case c, const Dice& dice) {
  if (dice.one_in(2)) c = with_part(kernel, c, "l2norm=1");
  if (dice.one_in(4)) c = with_part(kernel, c, "heads=tiled");
  if (dice.one_in(4)) c = with_part(kernel, c, dice.one_in(2) ? "state=none" : "final=in_place");
  if (!dice.one_in(3) || kernel.system->form(c.form)->decodes) return c;
  std::string lengths;
  const Index chunk = std::max<Index>(c.chunk, 16);
  const Index sequences = 2 + dice.below(3);
  for (Index i = 0; i < sequences; ++i) {
    lengths +=
        (i > 0 ? "," : "") + std::to_string(pick<6>(dice, {chunk, 2 * chunk, 2 * chunk, chunk + 1, 1, 0}));
  }
  return with_part(kernel, c, "form=packed B=1 lengths=" + lengths);
}

/// Fewer of what is counted, halved until the work is at most `most` or nothing is left to halve; groups first.
void count_fewer(Case& c, const KernelRow& kernel, double most) {
  const System& system = *kernel.system;
  for (bool changed = true; changed && work_of(kernel, c) > most;) {
    changed = false;
    for (const CaseSize& size : system.sizes) {
      if (size.multiple_of.empty()) continue;
      const Index divisor = size_in(c, size.multiple_of);
      Index& value = size_in(c, size.name);
      if (value <= 2 * divisor) continue;
      value = value / divisor / 2 * divisor;
      changed = true;
    }
    for (const CaseSize& size : system.sizes) {
      Index& value = size_in(c, size.name);
      if (changed || !size.multiple_of.empty() || size.start > kCount || value <= 2) continue;
      const Index before = std::exchange(value, value / 2);
      for (const CaseSize& other : system.sizes) {
        if (other.multiple_of == size.name) size_in(c, other.name) = size_in(c, other.name) / before * value;
      }
      changed = true;
    }
  }
}

/// With less of what does not stand in `kept`; of everything only where that is not enough.
bool make_affordable(Case& c, const KernelRow& kernel, const std::vector<Factor>& factors,
                     std::span<const std::string_view> kept, double most, const Dice& dice) {
  std::vector<bool> stays;
  for (const Factor& factor : factors) stays.push_back(std::ranges::find(kept, factor.name) != kept.end());
  return afford(c, kernel, factors, stays, most, dice) ||
         afford(c, kernel, factors, std::vector<bool>(factors.size()), most, dice);
}

/// Those of heads, models and experts, which are not counted.
std::vector<std::string_view> widths_of(const System& system) {
  std::vector<std::string_view> widths;
  for (const CaseSize& size : system.sizes) {
    if (size.start > kCount) widths.push_back(size.name);
  }
  return widths;
}

}  // namespace

std::vector<Case> calls_of_one_token(const KernelRow& kernel, const Case& start) {
  constexpr double kMostOfOne = 1.6;  // System::work
  std::vector<Case> out;
  const System& system = *kernel.system;
  if (system.has_key("dk")) return out;
  const std::vector<Factor> factors = factors_of(kernel);
  const std::vector<std::string_view> widths = widths_of(system);
  std::int64_t draw = 0;
  const Counter counter(1, fmt::format("one token/{}/{}", system.name, kernel.form));
  const Dice dice{[&](std::int64_t n) { return counter.below({draw++, 0, 0, 0}, n); }};
  const auto keep = [&](Case c) {
    settle(c, kernel, dice);
    count_fewer(c, kernel, kMostOfOne);
    if (make_affordable(c, kernel, factors, widths, kMostOfOne, dice) && possible(c) &&
        within_limits(kernel, c))
      out.push_back(std::move(c));
  };
  for (const std::string& part : system.plan.models) {
    Case c = with_part(kernel, start, part);
    c.T = 1, c.B = 2;
    keep(c);
    for (const CaseSize& size : system.sizes) {
      if (size.least != 0 || size.most != 1) continue;
      Case other = c;
      size_in(other, size.name) ^= 1;
      keep(std::move(other));
    }
  }
  return out;
}

std::vector<Case> typical_calls(const KernelRow& kernel, const Case& start) {
  std::vector<Case> out;
  if (over_ranks(kernel)) return out;
  const System& system = *kernel.system;
  const std::vector<Factor> factors = factors_of(kernel);
  const Counter counter(1, fmt::format("typical/{}/{}", kernel.system->name, kernel.form));
  const bool chunked = system.form(kernel.form)->chunked;
  std::vector<std::string_view> decodes;
  for (const CaseForm& form : system.forms) {
    if (form.decodes) decodes.push_back(form.name);
  }
  for (int i = 0; i < kCalls; ++i) {
    std::int64_t draw = 0;
    const Dice dice{[&](std::int64_t n) { return counter.below({i, draw++, 0, 0}, n); }};
    Case c = start;
    c.contract = kernel.contracts[static_cast<std::size_t>(
        dice.one_in(2) ? 0 : dice.below(std::ssize(kernel.contracts)))];
    const std::vector<std::string>& models = system.plan.models;
    const bool of_model = !models.empty() && i % 3 == 0;
    if (of_model) {
      c = with_part(kernel, c, models[static_cast<std::size_t>(dice.below(std::ssize(models)))]);
    } else {
      put_sizes(c, system, dice);
    }
    if (chunked) c.chunk = pick<5>(dice, {64, 64, 32, 128, 16});
    if (!decodes.empty() && dice.one_in(3)) {
      c.form = decodes[static_cast<std::size_t>(dice.below(std::ssize(decodes)))];
      if (system.form(c.form)->chunked && !chunked) c.chunk = 0;
    }
    if (of_model) put_settings(c, system, dice);
    c.B = of_model ? 1 + dice.below(3) : pick<5>(dice, {1, 2, 2, 3, 8});
    put_tokens(c, kernel, chunked, dice);
    // A model's widths leave room for few tokens.
    if (of_model && dice.one_in(2) && !system.form(c.form)->decodes) c.T = 1 + dice.below(4);
    if (system.has_key("dk")) c = with_settings(kernel, std::move(c), dice);
    if (kernel.strided && dice.one_in(4))
      c.layout = std::array{"fused", "permuted", "padded"}[static_cast<std::size_t>(dice.below(3))];
    c.repeat = dice.one_in(4);
    settle(c, kernel, dice);
    std::vector<std::string_view> kept;
    if (of_model) {
      kept = widths_of(system);
      count_fewer(c, kernel, kMostOfModel);
    } else {
      kept = {"T", "B", "chunk", "prefill", "T:chunk"};
    }
    if (!make_affordable(c, kernel, factors, kept, of_model ? kMostOfModel : kMost, dice) || !possible(c) ||
        !within_limits(kernel, c))
      continue;
    c.seed = 1 + static_cast<std::uint64_t>(i);  // which says of how many threads, too
    out.push_back(std::move(c));
  }
  return out;
}

}  // namespace samestate
