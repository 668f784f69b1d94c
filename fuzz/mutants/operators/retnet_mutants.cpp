#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"

/// Normalised retention and its layer: M26, M47, M61, and decays, scales, positions.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// Exchanges the columns of the first two heads in every row.
void exchange_heads(std::span<float> x, std::int64_t heads) {
  if (heads < 2) return;
  const std::int64_t width = std::ssize(x);
  permute(x, heads, width / heads, [](std::int64_t h) { return h < 2 ? 1 - h : h; });
}

// Heads are exchanged on the way in and back on the way out.
void heads_exchanged(Call& c) {
  for (const char* name : {"q", "k", "v"})
    each_row(c.input(name), c.width(name), [&](std::span<float> row) { exchange_heads(row, c.at("H")); });
}
void heads_back(Call& c) {
  each_row(c.output("o"), c.at("H") * c.at("dv"),
           [&](std::span<float> row) { exchange_heads(row, c.at("H")); });
}

/// The tokens after the first chunk are computed as if nothing preceded them.
Outcome chunks_forgotten(const OperatorKernel& right, Call& c, const Contract& contract) {
  const Outcome outcome = right.run(c.call, contract);
  const std::span<float> o = c.output("o");
  const std::vector<float> whole(o.begin(), o.end());
  const std::int64_t T = c.call.tokens, first = c.call.chunk;
  if (T <= first) return outcome;
  each_row(c.input("k"), T * c.width("k"),
           [&](std::span<float> k) { std::fill_n(k.begin(), first * c.width("k"), 0.0F); });
  (void)right.run(c.call, contract);
  const std::int64_t columns = std::ssize(o) / (T * c.call.batch);
  for (std::int64_t i = 0; i < std::ssize(o); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (i / columns % T < first) o[at] = whole[at];
  }
  return outcome;
}

float root_of_values(const Call& c) { return 1.0F / root_of(c.at("dv")); }
void keys_not_scaled(Call& c) {
  c.each("k_proj", [root = root_of(c.at("dk"))](float w) { return root * w; });
}
void pairs_swapped(Call& c) {
  const std::int64_t D = c.width("q_proj");
  for (const char* name : {"q_proj", "k_proj"})
    each_row(c.input(name), 2 * D, [D](std::span<float> pair) { rotate(pair, D); });
}

}  // namespace

std::vector<Mutant> retnet_mutants() {
  std::vector<Mutant> out;
  add_faults(out, "cpu.normalised_retention.chunked",
             {{"F", "decay_of_the_neighbouring_head", "a head decays as its neighbour should",
               changed(heads_exchanged, heads_back)},
              {"F", "chunks_forgotten", "the state of earlier chunks is lost", chunks_forgotten},
              {"F", "norm_by_the_sum", "the norm is by the sum of squares, not their mean",
               miswritten(scaled("o", root_of_values))},
              {"F", "keys_of_the_next_token", "a token has the key of the next", misread(next_token("k"))}});
  add_faults(out, "cpu.normalised_retention_recurrence.core",
             {{"M26", "state_not_read", "every call starts from zero", misread(filled("S", 0.0F))},
              {"M61", "scale_not_carried", "the normaliser of the decay starts from zero in every call",
               misread(filled("s", 0.0F))},
              {"F", "decay_of_the_neighbouring_head", "a head decays as its neighbour should",
               changed(heads_exchanged, heads_back)},
              {"F", "state_of_other_scale", "the state is left with another scale",
               miswritten(scaled("S", [](const Call&) { return std::sqrt(2.0F); }))},
              {"F", "scale_one_step_behind", "the normaliser is that of the token before",
               misread(mapped("s", [](float s) { return s > 1.0F ? s - 1.0F : s; }))}});
  add_faults(
      out, "cpu.multi_scale_retention.chunked",
      {{"M26", "state_not_read", "every call starts from zero", misread(filled("S", 0.0F))},
       {"M47", "keys_not_scaled", "dk^-1/2 is left out", misread(keys_not_scaled)},
       {"F", "positions_begin_anew", "every call begins at position 0", misread(filled("position", 0.0F))},
       {"F", "positions_end", "rotation tables end at 4,096 tokens",
        misread(mapped("position", [](float position) { return std::fmin(position, 4096.0F); }))},
       {"F", "pairs_swapped", "pairs (2 i, 2 i + 1) are taken in the other order", misread(pairs_swapped)},
       {"F", "values_as_gate", "the values are their own gate",
        misread([](Call& c) { std::ranges::copy(c.input("v_proj"), c.input("g_proj").begin()); })}});
  return out;
}

}  // namespace samestate::mutants
