#include "harness/cases/laws.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "harness/cases/keys.h"
#include "harness/laws/head_laws.h"
#include "harness/laws/shared.h"
#include "harness/laws/tensor_comparison.h"
#include "harness/systems/recurrent_system.h"

namespace samestate {
namespace {

using enum Property;
namespace heads = laws_detail;
namespace tensors = tensor_laws_detail;

constexpr LeastOfLaw kTwoTokens{"T", 2, "fewer than two tokens"};
constexpr LeastOfLaw kTwoRows{"B", 2, "B=1, so there is nothing to permute"};
constexpr LeastOfLaw kTwoRequests{"B", 2, "B=1, so no request has a neighbour"};
constexpr LeastOfLaw kTwoKeyHeads{"Hk", 2, "Hk=1, so there is nothing to permute"};
constexpr LeastOfLaw kOneToken{"T", 1, "no tokens"};
constexpr LeastOfLaw kTwoSlots{"P", 2, "there is only one slot, so the request owns every row"};
constexpr std::string_view kNothingToPack =
    "there is nothing to pack: fewer than two sequences have two tokens";
constexpr LeastOfLaw kTwoToPack{"B", 2, kNothingToPack}, kTwoTokensToPack{"T", 2, kNothingToPack};

constexpr std::array kRows = {
    Law{.name = "path_equivalence",
        .ids = "EQ-01 EQ-02 EQ-04 EQ-07 EQ-09",
        .says = "chunks of any length, any division among ranks and single tokens give the same results",
        .needs = chunks,
        .on_heads = {heads::path_equivalence, {kTwoTokens}},
        .calls = Law::Calls::both},
    Law{.name = "split",
        .ids = "EQ-03 P-09",
        .says = "a sequence that is cut anywhere and goes on from what the first call left gives the same as "
                "one call",
        .needs = streams,
        .on_heads = {heads::split_anywhere, {kTwoTokens}},
        .on_tensors = {tensors::split, {kTwoTokens}},
        .resumes = true,
        // This is a call that continues with more tokens than a tile has; the other lengths come from the law
        // itself.
        .planned = {"B=2 T=200 law=split"}},
    Law{.name = "causality",
        .ids = "P-07",
        .says = "outputs before a token do not depend on it or on later ones",
        .needs = streams,
        .on_heads = {heads::causality, {kTwoTokens}},
        .on_tensors = {tensors::causality, {kTwoTokens}}},
    Law{.name = "batch_permutation",
        .ids = "P-08",
        .says = "rows of a batch do not affect each other",
        .on_heads = {heads::batch_permutation, {kTwoRows, kTwoTokens}},
        .on_tensors = {tensors::batch_permutation, {kTwoRows}}},
    Law{.name = "head_permutation",
        .ids = "P-11",
        .says = "heads do not affect each other, and value heads follow their key head",
        .needs = key_heads,
        .on_heads = {heads::head_permutation, {kTwoKeyHeads, kTwoTokens}}},
    Law{.name = "linearity",
        .ids = "P-18",
        .says = "o and the final state are linear in v and the initial state",
        .needs = linear,
        .on_heads = {heads::linearity, {kTwoTokens}}},
    Law{.name = "no_op",
        .ids = "P-04 P-05",
        .says = "tokens of zeros without decay leave the state unchanged bit for bit and read nothing",
        .needs = linear | carries,
        .on_heads = {heads::no_op, {kTwoTokens}},
        .initial_state = true},
    Law{.name = "packing",
        .ids = "M27 M37",
        .says = "packed sequences give the same as each alone, and an empty one passes on its state",
        .needs = packs | carries,
        .on_heads = {heads::packing, {kTwoTokens}}},
    Law{.name = "reset",
        .ids = "M25 M26",
        .says = "a request that starts from a reset state or cache does not depend on the one before it",
        .needs = carries,
        .on_tensors = {tensors::reset, {kTwoTokens}},
        .resumes = true},
    Law{.name = "serving",
        .ids = "EQ-03 P-09 M24 M25 M26 M27 M28 M29",
        .says = "requests that are served together, decoded, advanced, forked and restarted in any order, "
                "give the same as "
                "each alone",
        .needs = carries,
        .on_heads = {heads::serving, {kTwoTokens}},
        .on_tensors = {tensors::serving, {kTwoTokens, kTwoRequests}},
        .resumes = true,
        .calls = Law::Calls::both_where_chunked},
    Law{.name = "reset",
        .ids = "M09 M10",
        .says = "a token with alpha = 0 forgets everything before it",
        .needs = decay,
        .on_heads = {heads::reset, {kTwoTokens}}},
    Law{.name = "norm_bounds",
        .ids = "P-16 P-17",
        .says = "the norms of the state and of the outputs stay within what was written",
        .needs = linear,
        .on_heads = {heads::norm_bounds, {kOneToken}}},
    Law{.name = "recall",
        .ids = "P-19",
        .says = "with beta = 1 and g = 0, reading the key just written gives ||k||^2 v + (1 - ||k||^2) S^T k",
        .needs = delta,
        .on_heads = {heads::recall, {kTwoTokens}}},
    Law{.name = "pool",
        .ids = "M25 M29",
        .says = "rows of a pool that are not the slot's stay unchanged and are not read, and another slot "
                "gives the same",
        .needs = slots,
        .on_tensors = {tensors::pool, {kTwoSlots}},
        // These are pools as in serving: one token per request, and states with models' widths.
        .planned = {"B=2 T=1 law=pool", "T=1 dk=128 dv=128 law=pool", "T=3 dk=64 law=pool"}},
    Law{.name = "split",
        .ids = "P-09",
        .says = "a sequence that is cut anywhere, with the gradient of the state handed back, gives the "
                "gradients of one "
                "call",
        .needs = gradients | key_heads,
        .on_tensors = {tensors::backward_split, {kTwoTokens}}},
    Law{.name = "causality",
        .ids = "P-07",
        .says = "gradients from a token on do not depend on the cotangents of outputs before it",
        .needs = gradients | later_cotangents,
        .on_tensors = {tensors::backward_causality, {kTwoTokens}}},
    Law{.name = "linearity",
        .ids = "P-18",
        .says = "gradients are linear in the cotangents",
        .needs = gradients,
        .on_tensors = {tensors::backward_linearity, {kOneToken}}},
    Law{.name = "homogeneity",
        .ids = "P-18",
        .says =
            "gradients add up as Euler's theorem on homogeneous functions demands: q . d.q = d.o . o over a "
            "group of heads, and alike for k, v, beta, g and the state",
        .needs = gradients | key_heads,
        .on_tensors = {tensors::backward_homogeneity, {kOneToken}}},
    Law{.name = "no_op",
        .ids = "P-04 P-05",
        .says =
            "tokens that neither write nor decay, without cotangents, change no other gradient and have the "
            "gradient of g of the token behind them",
        .needs = gradients | key_heads,
        .on_tensors = {tensors::backward_no_op, {kOneToken}}},
    Law{.name = "reset",
        .ids = "M09 M10",
        .says = "behind a token with alpha = 0 no cotangent reaches a gradient before it, and its own "
                "gradient of g "
                "is 0",
        .needs = gradients | key_heads | decay,
        .on_tensors = {tensors::backward_reset, {kTwoTokens}}},
    Law{.name = "packing",
        .ids = "M27 M37",
        .says = "sequences of different lengths end to end give the same as each alone",
        .needs = token_wise,
        .on_tensors = {tensors::packing, {kTwoToPack, kTwoTokensToPack}}},
};

constexpr std::array kWords = {
    PropertyWords{streams, "calls that go on",
                  "its tokens may come in several calls, and none sees a later one"},
    PropertyWords{carries, "state or cache",
                  "a call reads what earlier ones left: a state, or the keys and values of a cache"},
    PropertyWords{slots, "pool of slots", "the state of a request lies in a slot of a pool"},
    PropertyWords{token_wise, "separate tokens", "no token meets another"},
    PropertyWords{packs, "packed batches", "sequences of different lengths may lie end to end in one call"},
    PropertyWords{
        chunks, "choice of chunks",
        "a call says whether its tokens come one by one, in chunks of which length, and over which ranks"},
    PropertyWords{key_heads, "key heads", "a key head serves one value head or several"},
    PropertyWords{linear, "linear state", "o and the final state are linear in v and the initial state"},
    PropertyWords{decay, "decay", "it reads a decay"},
    PropertyWords{delta, "delta rule",
                  "it reads beta, and removes what the state holds for a key before it writes"},
    PropertyWords{gradients, "gradients",
                  "it gives the gradients of an equation's inputs for cotangents of its outputs"},
    PropertyWords{later_cotangents, "gradients from later tokens",
                  "the gradients of a token come from the cotangents of that and later tokens"},
};

template <class Subject>
std::vector<const Law*> laws_on(LawOn<Subject> Law::*kind, Properties has) {
  std::vector<const Law*> out;
  for (const Law& law : kRows) {
    if ((law.*kind).judge != nullptr && has.has(law.needs)) out.push_back(&law);
  }
  return out;
}

/// Says why the case is too small for the law; empty if it is not.
template <class Size>
std::string_view too_small(const std::array<LeastOfLaw, 2>& least, Size&& size) {
  for (const LeastOfLaw& row : least) {
    if (!row.key.empty() && size(row.key) < row.least) return row.otherwise;
  }
  return {};
}

}  // namespace

std::span<const Law> laws() { return kRows; }

std::span<const PropertyWords> property_words() { return kWords; }

std::vector<std::string_view> names_of(Properties properties) {
  std::vector<std::string_view> out;
  for (const PropertyWords& words : kWords) {
    if (properties.has(words.property)) out.push_back(words.noun);
  }
  return out;
}

std::vector<const Law*> laws_on_heads(Properties has) { return laws_on(&Law::on_heads, has); }
std::vector<const Law*> laws_on_tensors(Properties has) { return laws_on(&Law::on_tensors, has); }

std::string tried_on(const Law& law) {
  const std::string_view kind = law.on_heads.judge == nullptr     ? " of named tensors"
                                : law.on_tensors.judge == nullptr ? " of the recurrent family"
                                                                  : "";
  const std::vector<std::string_view> needs = names_of(law.needs);
  return fmt::format("{}systems{}{}{}", needs.empty() && kind.empty() ? "all " : "", kind,
                     needs.empty() ? "" : " with ", fmt::join(needs, " and "));
}

Judgement judge_law(const Law& law, const LawSubject& subject) {
  const Properties has = properties_of(subject.family);
  for (const PropertyWords& words : kWords) {
    if (law.needs.has(words.property) && !has.has(words.property))
      return law_says_nothing(fmt::format("the system has no {}", words.noun));
  }
  const BatchShape& shape = subject.batch.shape;
  if (law.initial_state && subject.batch.initial_state.empty())
    return law_says_nothing("needs state=random: a zero state cannot change");
  const std::string_view why = too_small(law.on_heads.least, [&](std::string_view key) {
    return key == "B" ? shape.B : key == "Hk" ? shape.Hk : shape.T;
  });
  if (!why.empty()) return law_says_nothing(std::string(why));
  if (!shape.offsets.empty())
    return law_says_nothing("the batch is packed, but the law is tried on dense batches");
  Judgement j = law.on_heads.judge(subject);
  if (j.gate.empty()) j.gate = "law";
  return j;
}

Judgement judge_law(const Law& law, const TensorSubject& subject) {
  const Case& c = subject.r.c;
  const std::string_view why = too_small(law.on_tensors.least, [&](std::string_view key) {
    return key == "B" ? c.B : key == "T" ? c.T : size_in(c, key);
  });
  return why.empty() ? law.on_tensors.judge(subject) : law_says_nothing(std::string(why));
}

}  // namespace samestate
