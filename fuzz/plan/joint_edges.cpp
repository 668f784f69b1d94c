#include "fuzz/plan/joint_edges.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/plan/factors.h"
#include "harness/cases/keys.h"

namespace samestate {
namespace {

/// A cache of more tokens than a block has threads, followed by two tokens.
constexpr Index kLongCache = 519;

/// Calls fn(form) for each form of the system that decodes.
template <class Fn>
void each_decoding_form(const System& system, Fn&& fn) {
  for (const CaseForm& form : system.forms) {
    if (form.decodes) fn(form);
  }
}

}  // namespace

void put_family_calls(EdgeCases& to, FamilyCall::Tried tried) {
  if (!to.system().of_family()) return;
  const KernelRow& kernel = to.kernel();
  std::size_t turn = 0;
  for (const FamilyCall& call : family_calls()) {
    if (call.tried != tried) continue;
    Case c = with_part(kernel, to.under(kernel.contracts[turn++ % kernel.contracts.size()]), call.part);
    if (divides_heads(kernel) && !to.system().native(c.form)) c.cuts = kCutHeads;
    to.put(std::move(c));
  }
}

void put_family_regimes(EdgeCases& to, const Case& base, double /*most*/) {
  if (!to.system().of_family()) return;
  for (const Regime* regime : to.system().regimes) {
    Case c = base;
    c.regime = regime->name;
    for (const FamilyCall& call : family_calls()) {
      if (call.tried != FamilyCall::Tried::every_regime) continue;
      Case of = with_part(to.kernel(), c, call.part);
      if (regime->exact) of.l2norm = false;  // l2norm would leave the integers
      to.put(std::move(of));
    }
  }
}

void put_long_cache(EdgeCases& to, const Case& base, double most) {
  each_decoding_form(to.system(), [&](const CaseForm& form) {
    // The sizes are small, since each token attends to those before it.
    Case c = to.few(to.decoding(base, form));
    c.B = 2, c.T = kLongCache + 2, c.prefill = kLongCache;
    to.put_within(most, std::move(c));
  });
}

void put_cache_at_tile_end(EdgeCases& to, const Case& base, double most) {
  each_decoding_form(to.system(), [&](const CaseForm& form) {
    Case c = to.few(to.decoding(base, form));
    c.B = 1;
    for (const Index tile : {64, 128}) {
      c.T = tile + 2, c.prefill = tile - 1;
      to.put_within(most, c);
    }
  });
}

void put_beyond_tiles(EdgeCases& to, const Case& base, double most) {
  struct Tile {
    Index size, tokens, chunk;
  };
  constexpr Index kTwice = 100;  // tokens of calls that also repeat
  for (const Tile& tile :
       {Tile{72, 78, 64}, Tile{72, 300, 256}, Tile{24, 300, 256}, Tile{40, 600, 64}, Tile{136, 142, 64},
        Tile{136, 20, 64}, Tile{264, 3, 64}, Tile{520, 3, 64}, Tile{136, 4099, 64}}) {
    Case c = base;
    c.T = tile.tokens;
    if (to.chunked()) c.chunk = tile.chunk;
    if (!to.fill(c, tile.size, most)) continue;
    to.put(c);
    if (tile.tokens < kTwice) {
      Case again = c;
      again.repeat = true;
      to.put(std::move(again));
    }
    for (const CaseSize& size : to.system().sizes) {
      if (size.least != 0 || size.most != 1) continue;
      Case other = c;
      size_in(other, size.name) ^= 1;
      to.put(std::move(other));
    }
  }
}

void put_second_sequence(EdgeCases& to, const Case& base, double most) {
  const auto two = [&](std::string law, const std::string& contract) {
    Case c = base;
    c.contract = contract;
    c.law = std::move(law);
    c.T = 78;
    if (to.chunked()) c.chunk = 64;
    if (!to.fill(c, 72, most)) return;
    c.B = 2;
    to.put(std::move(c));
  };
  two("", base.contract);
  if (const std::string rounds = to.two_contracts().back(); rounds != base.contract) two("", rounds);
  if (to.system().has(Property::streams)) two("split", base.contract);
}

void put_beyond_cache(EdgeCases& to, const Case& base, double most) {
  each_decoding_form(to.system(), [&](const CaseForm& form) {
    Case c = to.decoding(base, form);
    c.T = kLongCache + 2, c.prefill = kLongCache;
    if (to.fill(c, 72, most)) to.put(std::move(c));
  });
}

void put_full_chunks(EdgeCases& to, const Case& base, double most) {
  if (!to.chunked()) return;
  static constexpr std::array<Index, 10> kChunks{31, 48, 80, 96, 112, 128, 160, 192, 224, 256};
  for (const Index chunk : kChunks) {
    Case c = to.few(base);
    c.chunk = chunk;
    for (const Index tokens : {chunk, 2 * chunk + 1}) {
      c.T = tokens;
      // The family's regimes; for systems with rates one with slow rates, and trained weights.
      for (const std::string& regime :
           {base.regime, std::string("slow"), std::string("wide_rates"), std::string("trained")}) {
        if (to.system().regime(regime) == nullptr) continue;
        c.regime = regime;
        if (to.affordable(c, most) && within_limits(to.kernel(), c)) to.put(c);
      }
    }
  }
}

void put_regimes_beyond_tiles(EdgeCases& to, const Case& base, double most) {
  constexpr double kMostOfWide = 0.2;
  if (to.system().of_family()) return;  // its calls state their sizes: put_family_regimes
  for (const Regime* regime : to.system().regimes) {
    Case c = base;
    c.regime = regime->name;
    c.T = 70;
    if (to.chunked()) c.chunk = 64;
    if (Case tiled = c; to.fill(tiled, 72, most)) to.put(std::move(tiled));
    if (to.chunked()) {  // a single chunk that covers the whole call
      Case whole = to.few(c);
      whole.T = whole.chunk = 128;
      to.put_within(most, std::move(whole));
    }
    c.T = 4;  // one token of each kind
    if (to.fill(c, 4104, kMostOfWide)) to.put(std::move(c));
  }
}

void put_models(EdgeCases& to, const Case& base, double most) {
  constexpr double kMostOfMany = 2.0;  // System::work beyond which tokens are left out
  // The family's cases have a token after a chunk of 64, which a smaller limit would remove.
  const double usual = to.system().of_family() ? most : kMostOfMany;
  for (const std::string& part : to.system().plan.models) {
    for (const std::string& contract : to.two_contracts()) {
      Case c = base;
      c.contract = contract;
      c = with_part(to.kernel(), c, part);
      while (c.T > 1 && possible(c) && work_of(to.kernel(), c) > usual) c.T = (c.T + 1) / 2;
      to.put_within(most, std::move(c));
    }
  }
}

void put_decoded_models(EdgeCases& to, const Case& base, double most) {
  for (const std::string& part : to.system().plan.models) {
    each_decoding_form(to.system(), [&](const CaseForm& form) {
      Case c = to.decoding(with_part(to.kernel(), base, part), form);
      for (c.T = 70; c.T >= 3; c.T /= 2) {
        c.prefill = c.T - 2;
        if (to.affordable(c, most)) return to.put(c);
      }
    });
  }
}

void put_repeated_model(EdgeCases& to, const Case& base, double most) {
  if (to.system().plan.models.empty()) return;
  Case c = with_part(to.kernel(), base, to.system().plan.models.front() + " repeat=1");
  c.T = std::max<Index>(c.T, 70);
  to.put_within(most, std::move(c));
}

}  // namespace samestate
