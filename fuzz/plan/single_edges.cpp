#include "fuzz/plan/single_edges.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/plan/factors.h"
#include "harness/cases/keys.h"

namespace samestate {
namespace {

/// Sets a size of the case, and sets the sizes that are multiples of it to `multiple`.
void set_size(Case& c, const System& system, std::string_view name, Index value, Index multiple) {
  size_in(c, name) = value;
  for (const CaseSize& other : system.sizes) {
    if (other.multiple_of == name) size_in(c, other.name) = multiple;
  }
}

/// Adds the case, and the case with the other head map if the system has one.
void put_both_maps(EdgeCases& to, Case c) {
  to.put(c);
  if (!to.system().has_key("heads")) return;
  c.heads = HeadMap::tiled;
  to.put(std::move(c));
}

}  // namespace

void put_lengths(EdgeCases& to, const Case& base, double /*most*/) {
  const Index C = base.chunk;
  // The most revealing ones come first, since they also show errors of only the first call of a process.
  const std::vector<Index> all = to.chunked() ? std::vector<Index>{2 * C + 3, C + 1, C, C - 1, 2, 1, 0}
                                              : std::vector<Index>{33, 9, 8, 7, 2, 1, 0};
  for (const Index T : all) {
    Case c = base;
    c.T = T;
    c.seed = static_cast<std::uint64_t>(T);
    to.put(std::move(c));
  }
}

void put_calls(EdgeCases& to, const Case& base, double /*most*/) {
  for (const CaseForm& form : to.system().forms) {
    Case c = base;
    c.form = form.name;
    if (form.whole && to.chunked() && !over_ranks(to.kernel())) to.put(c);
    if (!form.decodes) continue;
    c = to.decoding(std::move(c), form);
    if (divides_heads(to.kernel())) c.cuts = kCutHeads;
    for (const Index prefill : {Index{0}, Index{1}, Index{2}, Index{13}, base.T}) {
      c.prefill = std::min(prefill, base.T);
      to.put(c);
    }
  }
}

void put_sizes(EdgeCases& to, const Case& base, double /*most*/) {
  for (const CaseSize& size : to.system().sizes) {
    for (const Index value : {size.least, size.start + 1, 2 * size.start}) {
      Case c = base;
      set_size(c, to.system(), size.name, value, 2 * value);
      to.put(std::move(c));
    }
    // A size that kernels unroll has code of its own for each value.
    constexpr Index kUnrolled = 16;
    for (Index value = size.least; size.multiple_of.empty() && size.most <= kUnrolled && value <= size.most;
         ++value) {
      Case c = base;
      size_in(c, size.name) = value;
      to.put(std::move(c));
    }
  }
}

void put_widths_between_tiles(EdgeCases& to, const Case& base, double most) {
  for (const CaseSize& size : to.system().sizes) {
    for (const Index value : {48, 96, 192}) {
      Case c = base;
      set_size(c, to.system(), size.name, value, value);
      to.put_within(most, std::move(c));
    }
  }
}

void put_head_groups(EdgeCases& to, const Case& base, double /*most*/) {
  for (const CaseSize& size : to.system().sizes) {
    if (size.multiple_of.empty()) continue;
    for (const Index of : {3, 5, 6, 7}) {
      for (const Index ratio : {2, 3}) {
        Case c = base;
        size_in(c, size.multiple_of) = of;
        size_in(c, size.name) = ratio * of;
        put_both_maps(to, std::move(c));
      }
    }
  }
}

void put_reciprocals(EdgeCases& to, const Case& base, double most) {
  for (const CaseSize& size : to.system().sizes) {
    if (size.multiple_of.empty()) continue;
    for (const auto& [of, ratio] : {std::pair<Index, Index>{2, 41}, {41, 2}}) {
      Case c = base;
      size_in(c, size.multiple_of) = of;
      size_in(c, size.name) = ratio * of;
      if (to.affordable(c, most)) put_both_maps(to, std::move(c));
    }
  }
}

void put_settings(EdgeCases& to, const Case& base, double /*most*/) {
  const KernelRow& kernel = to.kernel();
  const bool divided = over_ranks(kernel);
  // A rank computes its tokens as the kernel without ranks does, and that kernel has the settings under the
  // other contract too.
  if (divided && !divides_heads(kernel) && base.contract != kernel.contracts.front()) return;
  for (const Key& key : keys()) {
    if (!tries(kernel, key)) continue;
    for (const std::string_view value : key.values) {
      Case c = base;
      key.parse(c, value);
      to.put(c);
      if (key.name == "B" || c == base || divided) continue;
      c.B = 2;
      to.put(c);
      for (const CaseForm& form : to.system().forms) {
        if (!form.decodes) continue;
        c = to.decoding(std::move(c), form);
        c.prefill = std::min<Index>(13, c.T);
        to.put(c);
      }
    }
  }
}

void put_chunks(EdgeCases& to, const Case& base, double /*most*/) {
  if (!to.chunked()) return;
  constexpr double kMostOfSeveral = 1.0;  // System::work of several chunks
  for (const Index chunk : {1, 2, 5, 21, 31, 32, 48, 64}) {
    Case c = base;
    c.chunk = chunk;
    to.put(c);
    c.T = 70;
    to.put_within(kMostOfSeveral, std::move(c));
  }
  // Tokens of one chunk see each other across 128 tokens and more: values that decay in between appear in no
  // output.
  if (!to.system().of_family()) return;
  for (const Index chunk : {160, 256}) {
    for (const std::string_view regime : {"normal", "none", "slow"}) {
      if (to.system().regime(regime) == nullptr) continue;
      Case c = with_part(to.kernel(), base, "dk=8 dv=4");
      c.chunk = chunk;
      c.T = chunk + 3;
      c.regime = regime;
      to.put(std::move(c));
    }
  }
}

void put_regimes(EdgeCases& to, const Case& base, double /*most*/) {
  for (const Regime* regime : to.system().regimes) {
    Case c = with_part(to.kernel(), base, to.system().plan.regime);
    c.regime = regime->name;
    c.seed = 7;
    to.put(std::move(c));
  }
}

void put_laws(EdgeCases& to, const Case& base, double /*most*/) {
  for (const Law* law : to.system().laws) {
    Case c = with_part(to.kernel(), base, to.system().plan.law);
    c.law = law->name;
    to.put(std::move(c));
  }
}

void put_many_tokens(EdgeCases& to, const Case& base, double most) {
  // Tokens of other systems interact; the limits of those systems say how many their calls may have.
  if (!to.system().has(Property::token_wise)) return;
  for (const Index width : {16, 8, 4, 3}) {
    Case c = to.few(base, width);
    c.T = 65537;
    if (!to.affordable(c, most)) continue;
    return to.put(std::move(c));
  }
}

}  // namespace samestate
