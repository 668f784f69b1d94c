#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"

/// Latent attention and its cache: M52, M84-M86, M90, and epsilons, weights, tables and caches.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

void turned_the_other_way(Call& c) {
  if (c.at("dr") > 0) c.each("sin", [](float x) { return -x; });
}
void position_off_by_one(Call& c) {
  if (c.at("dr") > 0) token_before({"cos", "sin"})(c);
}

// The norm ignores a power of two except for its epsilon; everything else is scaled back.
void enlarged(Call& c) {
  c.each("x", [](float x) { return 0x1p20F * x; });
}
void reduced(Call& c) {
  if (c.at("dr") == 0) return;
  for (float& x : c.output("kr")) x *= 0x1p-20F;
}

// Pairs (i, i + dr / 2): columns are moved so that the right kernel pairs them in this way, and moved back
// afterwards.
void columns_of_halves(Call& c) {
  const std::int64_t dr = c.at("dr"), D = c.width("kv_down");
  if (dr == 0) return;
  const std::span<float> turned = c.input("kv_down").subspan(static_cast<std::size_t>(c.at("dc") * D));
  permute(turned.first(static_cast<std::size_t>(dr * D)), dr, D,
          [dr](std::int64_t i) { return i / 2 + i % 2 * (dr / 2); });
}
void columns_back(Call& c) {
  const std::int64_t dr = c.at("dr");
  if (dr == 0) return;
  permute(c.output("kr"), dr, 1, [dr](std::int64_t i) { return i < dr / 2 ? 2 * i : 2 * (i - dr / 2) + 1; });
}
void rotary_rows_first(Call& c) {
  const std::span<float> w = c.input("kv_down");
  std::rotate(w.begin(), w.begin() + c.at("dr") * c.width("kv_down"), w.end());
}

void no_rotary_key(Call& c) {
  if (c.at("dr") > 0) c.fill("kr", 0.0F);
}
void scale_without_rotary(Call& c) {
  const auto dn = static_cast<float>(c.at("dn"));
  const float f = std::sqrt((dn + static_cast<float>(c.at("dr"))) / dn);
  c.each("q_up", [f](float w) { return w * f; });
}
void no_query_norm_weight(Call& c) {
  if (c.at("q_lora") > 0) c.fill("q_norm", 1.0F);
}
void no_query_norm_epsilon(Call& c) {
  if (c.at("q_lora") > 0) enlarged(c);
}
/// Query t sees the tokens 1 .. t + 1 instead of 0 .. t.
void mask_off_by_one(Call& c) {
  next_token("c")(c);
  if (c.at("dr") > 0) next_token("kr")(c);
}
void cache_forgotten(Call& c) {
  for (NamedTensor<const float>& tensor : c.call.inputs) {
    if (tensor.name == "c" || tensor.name == "kr") last_tokens(c, tensor);
  }
}
/// Heads [W_UV | W_UK].
void values_before_keys(Call& c) {
  const std::int64_t dc = c.width("kv_up");
  each_row(c.input("kv_up"), (c.at("dn") + c.at("dv")) * dc,
           [&](std::span<float> w) { rotate(w, c.at("dn") * dc); });
}
/// Every head is expanded with the rows of the first head.
void one_head_for_all(Call& c) {
  const std::span<float> w = c.input("kv_up");
  permute(w, c.at("H"), std::ssize(w) / c.at("H"), [](std::int64_t) { return 0; });
}

}  // namespace

std::vector<Mutant> latent_attention_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.latent_cache.direct",
      {{"M52", "weight_plus_one", "1 + w where w is meant",
        misread(mapped("kv_norm", [](float w) { return 1.0F + w; }))},
       {"M85", "always_halves", "pairs (i, i + dr / 2) where (2 i, 2 i + 1) are meant",
        changed(columns_of_halves, columns_back)},
       {"F", "no_norm_weight", "the norm has no weight", misread(filled("kv_norm", 1.0F))},
       {"F", "no_epsilon", "epsilon is left out", changed(enlarged, reduced)},
       {"F", "rotary_rows_first", "the rotary rows of the projection come first", misread(rotary_rows_first)},
       {"F", "turned_the_other_way", "the angle has the other sign", misread(turned_the_other_way)},
       {"F", "position_off_by_one", "tables of the token before", misread(position_off_by_one)}});
  add_faults(
      out, "cpu.latent_attention.absorbed",
      {{"M84", "no_rotary_key", "the rotary key does not reach the scores", misread(no_rotary_key)},
       {"M86", "scale_without_rotary", "dn^-1/2 for (dn + dr)^-1/2", misread(scale_without_rotary)},
       {"M90", "mask_off_by_one", "a query sees the next token and not the first", misread(mask_off_by_one)},
       {"F", "no_query_norm_weight", "the query norm has no weight", misread(no_query_norm_weight)},
       {"F", "no_query_norm_epsilon", "the query norm has no epsilon", misread(no_query_norm_epsilon)},
       {"F", "values_before_keys", "of a head's rows the values' come first", misread(values_before_keys)},
       {"F", "one_head_for_all", "every head restores with the rows of the first", misread(one_head_for_all)},
       {"F", "cache_forgotten", "only the tokens of the call are seen", misread(cache_forgotten)},
       {"F", "turned_the_other_way", "the queries' angle has the other sign", misread(turned_the_other_way)},
       {"F", "position_off_by_one", "tables of the token before", misread(position_off_by_one)}});
  return out;
}

}  // namespace samestate::mutants
