#include "fuzz/plan/factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "fuzz/plan/boundaries.h"
#include "fuzz/plan/token_factors.h"
#include "harness/cases/keys.h"
#include "harness/cases/layout.h"
#include "harness/systems/model_shapes.h"

namespace samestate {
namespace {

constexpr Index kMostTokens = 4160;
constexpr Index kMostBatch = 300;
constexpr Index kMostChunk = 256;

using Named = std::vector<std::string>;

int index_of(const Named& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

/// One of several names that is a member of Case; an empty one is called none.
Factor named(std::string name, const Named& values, std::string Case::*member, std::int64_t odds) {
  Factor f{std::move(name), values, odds};
  std::replace(f.levels.begin(), f.levels.end(), std::string(), std::string("none"));
  f.level = [values, member](const Case& c) { return index_of(values, c.*member); };
  f.put = [values, member](Case& c, int level, const Dice&) {
    c.*member = values[static_cast<std::size_t>(level)];
  };
  return f;
}

/// A key with values of its own.
Factor of_key(const Key& key, const System& system) {
  Factor f{std::string(key.name), {}, std::max<std::int64_t>(key.odds, 2)};
  std::vector<std::string> put, values;  // put: empty for the default, which a case starts from
  const auto add = [&](std::string_view value) {
    Case c = system.standard();
    if (!value.empty()) key.parse(c, value);
    const int known = index_of(values, key.value(c));
    if (known >= 0) {
      f.levels[static_cast<std::size_t>(known)] = put[static_cast<std::size_t>(known)] = value;
      return;
    }
    f.levels.push_back(value.empty() ? "default" : std::string(value));
    values.push_back(key.value(c));
    put.emplace_back(value);
  };
  add("");
  for (const std::string_view value : key.values) add(value);
  f.level = [row = &key, values](const Case& c) { return index_of(values, row->value(c)); };
  f.put = [row = &key, put](Case& c, int level, const Dice&) {
    if (const std::string& value = put[static_cast<std::size_t>(level)]; !value.empty()) row->parse(c, value);
  };
  return f;
}

/// Bands of a size. Where no boundary of one fits the start's other sizes, as no odd number of rotary columns does, an even
/// number stands for it that does.
template <class Member>
std::vector<Band> bands_of(const KernelRow& kernel, Index least, Index most, Member member) {
  const auto fits = [&](Index value) {
    Case c = start_of(kernel);
    member(c) = value;
    return std::isfinite(work_of(kernel, c));
  };
  std::vector<Band> all = bands(least, most);
  for (Band& band : all) {
    if (std::any_of(band.values.begin(), band.values.end(), fits)) continue;
    const Index even = (band.values.front() + 1) / 2 * 2;
    for (const Index value : {even, even + 2}) {
      if (value <= most && band.holds(value) && fits(value)) {
        band.values = {value};
        break;
      }
    }
  }
  return all;
}

/// A size, by its bands.
template <class Member>
Factor of_size(const KernelRow& kernel, std::string name, Index least, Index most, std::int64_t odds,
               Member member) {
  Factor f{std::move(name), {}, odds, true};
  const std::vector<Band> all = bands_of(kernel, least, most, member);
  for (const Band& band : all) f.levels.push_back(band.name);
  f.value = [member](const Case& c) -> Index { return member(c); };
  f.level = [all, value = f.value](const Case& c) {
    const Index at = value(c);
    const auto found = std::find_if(all.begin(), all.end(), [&](const Band& band) { return band.holds(at); });
    return found == all.end() ? -1 : static_cast<int>(found - all.begin());
  };
  f.put = [all, member](Case& c, int level, const Dice& dice) {
    member(c) = dice.pick(all[static_cast<std::size_t>(level)].values);
  };
  f.put_least = [all, member](Case& c, int level) {
    member(c) = all[static_cast<std::size_t>(level)].values.front();
  };
  f.values = boundaries(least, most);
  f.put_value = [member](Case& c, Index value) { member(c) = value; };
  return f;
}

/// A size that is so many times another.
Factor of_ratio(const CaseSize& size) {
  static constexpr std::array<std::array<Index, 2>, 7> kRatios{
      {{1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 8}, {9, 16}, {17, 64}}};
  Factor f{fmt::format("{}/{}", size.name, size.multiple_of), {}, 2, true};
  f.fixes = {std::string(size.multiple_of)};
  for (const auto& [from, to] : kRatios)
    f.levels.push_back(from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to));
  const auto ratio = [of = size](const Case& c) { return size_in(c, of.name) / size_in(c, of.multiple_of); };
  f.level = [ratio](const Case& c) {
    for (std::size_t i = 0; i < kRatios.size(); ++i) {
      if (ratio(c) >= kRatios[i][0] && ratio(c) <= kRatios[i][1]) return static_cast<int>(i);
    }
    return -1;
  };
  f.put = [of = size](Case& c, int level, const Dice& dice) {
    const auto& [from, to] = kRatios[static_cast<std::size_t>(level)];
    size_in(c, of.name) = size_in(c, of.multiple_of) * (from + dice.below(to - from + 1));
  };
  return f;
}

/// Both widths of a head together, as models have them, of few heads and sequences: more of them would make each pair
/// with a count dear, and counts meet other widths. Of a law the widths are its own.
Factor widths_of_models() {
  Factor f{"dk:dv", {"other"}, 4, true};
  f.fixes = {"dk", "dv"};
  for (const HeadWidths& row : head_widths()) f.levels.push_back(fmt::format("{}x{}", row.dk, row.dv));
  f.level = [](const Case& c) {
    constexpr Index kFewHeads = 8, kFewSequences = 32;
    if (!c.law.empty() || c.B * c.Hv > kFewHeads || std::ssize(c.lengths) > kFewSequences) return -1;
    const auto rows = head_widths();
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const HeadWidths& row) { return row.dk == c.dk && row.dv == c.dv; });
    return found == rows.end() ? 0 : static_cast<int>(found - rows.begin()) + 1;
  };
  f.put = [](Case& c, int level, const Dice&) {
    if (level == 0) return;
    const HeadWidths& row = head_widths()[static_cast<std::size_t>(level - 1)];
    c.dk = row.dk, c.dv = row.dv;
  };
  return f;
}

/// Threads that a kernel may use: the seed says (harness/run/run_case.cpp).
Factor threads() {
  Factor f{"threads", {"1", "2", "3"}, 1};
  f.level = [](const Case& c) { return static_cast<int>(c.seed % 3); };
  f.put = [](Case& c, int level, const Dice&) {
    c.seed += static_cast<std::uint64_t>(level + 3) - c.seed % 3;
  };
  return f;
}

}  // namespace

bool tries(const KernelRow& kernel, const Key& key) {
  if (!kernel.system->has_key(key.name)) return false;
  if (key.name == "layout") return kernel.strided;
  if (key.name == "taps") return !kernel.taps.empty();
  if (key.name == "ranks" || key.name == "cuts") return over_ranks(kernel);
  return true;
}

std::vector<Factor> factors_of(const KernelRow& kernel) {
  const System& system = *kernel.system;
  std::vector<Factor> out;
  out.push_back(named("contract", kernel.contracts, &Case::contract, 2));
  Named regimes_of, laws{""}, forms{kernel.form};
  for (const Regime* regime : system.regimes) regimes_of.emplace_back(regime->name);
  for (const Law* law : system.laws) laws.emplace_back(law->name);
  for (const CaseForm& form : system.forms) {
    if (!system.native(form.name) && (!form.whole || (is_chunked(kernel) && !over_ranks(kernel))))
      forms.emplace_back(form.name);
  }
  out.push_back(named("regime", regimes_of, &Case::regime, 1));
  out.push_back(named("law", laws, &Case::law, 4));
  out.back().compares = true;
  out.push_back(named("form", forms, &Case::form, 2));
  for (const Key& key : keys()) {
    if (!tries(kernel, key) || key.values.empty() || key.name == "B") continue;
    out.push_back(of_key(key, system));
  }
  for (const bool multiples : {false, true}) {
    for (const CaseSize& size : system.sizes) {
      if (size.multiple_of.empty() == multiples) continue;
      if (multiples) {
        out.push_back(of_ratio(size));
      } else {
        out.push_back(of_size(
            kernel, std::string(size.name), size.least, std::min(size.most, size.planned),
            2, [name = size.name](auto& c) -> auto& { return size_in(c, name); }));
      }
    }
  }
  if (system.of_family()) out.push_back(widths_of_models());
  out.push_back(of_size(
      kernel, "B", 1, kMostBatch, 4, [](auto& c) -> auto& { return c.B; }));
  if (is_chunked(kernel)) {
    out.push_back(of_size(
        kernel, "chunk", 1, kMostChunk, 1, [](auto& c) -> auto& { return c.chunk; }));
    out.back().dear = false;
  }
  out.push_back(of_size(
      kernel, "T", 0, kMostTokens, 2, [](auto& c) -> auto& { return c.T; }));
  if (is_chunked(kernel)) {
    out.push_back(tokens_by_chunk());
    out.push_back(tokens_beyond_tile());
  }
  for (const CaseForm& form : system.forms) {
    if (form.decodes) out.push_back(prefilled(form));
    if (form.packed) out.push_back(sequences(form));
  }
  out.push_back(threads());
  return out;
}

std::vector<Factor> covered_factors_of(const KernelRow& kernel) {
  std::vector<Factor> factors = factors_of(kernel);
  if (!over_ranks(kernel)) return factors;
  static constexpr std::array kOfRanks{"contract",  "regime", "law",    "form",    "ranks",
                                       "cuts",      "state",  "l2norm", "T:chunk", "prefill",
                                       "sequences", "final",  "heads",  "threads"};
  // Of ranks that divide heads neither data nor tokens: each head is in one place.
  static constexpr std::array kOfHeads{"form", "ranks", "cuts", "heads", "Hv/Hk", "prefill", "threads"};
  const std::span<const char* const> kept =
      divides_heads(kernel) ? std::span<const char* const>(kOfHeads) : std::span<const char* const>(kOfRanks);
  std::erase_if(factors, [kept](const Factor& factor) {
    return std::find(kept.begin(), kept.end(), factor.name) == kept.end();
  });
  return factors;
}

std::vector<int> levels_of(const std::vector<Factor>& factors, const Case& c) {
  std::vector<int> out;
  out.reserve(factors.size());
  for (const Factor& factor : factors) out.push_back(factor.level(c));
  return out;
}

bool afford(Case& c, const KernelRow& kernel, const std::vector<Factor>& factors,
            const std::vector<bool>& kept, double most, const Dice& dice) {
  double work = work_of(kernel, c);
  if (work <= most) return true;
  std::vector<const Factor*> sizes;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (kept[i]) continue;
    if (factors[i].put_value && factors[i].dear) sizes.push_back(&factors[i]);
    // A law's runs and a far tensor's pages cost more than any size is worth, where nobody asked for them.
    const std::string_view name = factors[i].name;
    if (name == "law" && !dice.one_in(4)) c.law.clear();
    if (name == "layout" && !dice.one_in(4)) c.layout = Case{}.layout;
  }
  work = work_of(kernel, c);
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps && work > most; ++step) {
    std::erase_if(sizes,
                  [&](const Factor* f) { return f->value(c) <= std::max(f->values.front(), Index{2}); });
    if (sizes.empty()) return false;
    const Factor& size = *dice.pick(sizes);
    const Index value = size.value(c);
    const Case before = c;
    // What is odd stays so, what is a multiple of 8 too, as long as it is large.
    const Index part = work > 16 * most && value > 64 ? 8 : 2;
    const Index less = value % 8 == 0 && value > 8 ? value / (8 * part) * 8 : value / part | (value & 1);
    size.put_value(c, std::max(std::min(less, value - 1), size.values.front()));
    settle(c, kernel, dice);
    const double now = work_of(kernel, c);
    if (std::isfinite(work) && !std::isfinite(now)) {  // another size does not allow for less
      c = before;
      std::erase(sizes, &size);
      continue;
    }
    work = now;
  }
  return work <= most;
}

}  // namespace samestate
