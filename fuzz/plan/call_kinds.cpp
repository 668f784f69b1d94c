#include "fuzz/plan/call_kinds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/token_factors.h"
#include "harness/cases/keys.h"
#include "harness/run/companion.h"

namespace samestate {
namespace {

template <std::size_t n>
Index pick(const Dice& dice, const std::array<Index, n>& of) {
  return of[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(n)))];
}

/// Returns a number of tokens: powers of two and multiples of 64 are as frequent as other numbers, and short
/// ones as long ones.
Index tokens_between(Index least, Index most, const Dice& dice) {
  const auto drawn =
      static_cast<Index>(std::lround(dice.between(static_cast<double>(least), static_cast<double>(most))));
  if (dice.one_in(3)) return drawn;
  if (dice.one_in(2)) return std::clamp<Index>((drawn + 32) / 64 * 64, least, most);
  return std::clamp<Index>(Index{1} << std::lround(std::log2(static_cast<double>(drawn))), least, most);
}

const CaseForm* form_of(const KernelRow& kernel, bool CaseForm::*which) {
  for (const CaseForm& form : kernel.system->forms) {
    if (form.*which) return &form;
  }
  return nullptr;
}

/// Returns true if the data contain the state before the call, so that no earlier call has to leave it. This
/// always holds for the recurrent family and for pools; other layers get such data half of the time, and
/// layers that take keys and values never do.
bool has_its_states(const KernelRow& kernel, const Case& c, const Dice& dice) {
  return kernel.system->of_family() || serves_slots(kernel) ||
         (!gets_cache(*kernel.system, c) && dice.one_in(2));
}

/// One call of `cached` tokens, then `decoded` tokens in calls of `step` each.
bool put_decoded(Case& c, const KernelRow& kernel, Index cached, Index decoded, const Dice& dice,
                 Index step = 1) {
  const CaseForm* form = form_of(kernel, &CaseForm::decodes);
  if (form == nullptr) return false;
  c.form = form->name;
  c.T = cached + decoded;
  c.prefill = cached;
  c.step = step;
  // In three of four cases the first call is not made, because its time is better spent on the calls after
  // it.
  c.cached = cached > 0 && decoded > 0 && gets_cache(*kernel.system, c) && !dice.one_in(4);
  return true;
}

/// Makes `sequences` sequences of unequal lengths, with at least `least` tokens each on average.
bool put_packed(Case& c, const KernelRow& kernel, Index sequences, Index tokens, const Dice& dice) {
  const CaseForm* form = form_of(kernel, &CaseForm::packed);
  if (form == nullptr) return false;
  c.form = form->name;
  c.B = 1;
  c.T = std::max(tokens, sequences);
  pack(c, sequences, dice);
  return true;
}

/// Gives the case states that continue an earlier call: drawn ones for the family, those of `trained` data
/// for other systems.
void go_on(Case& c, const KernelRow& kernel, const Dice& dice) {
  if (kernel.system->of_family()) {
    c.state = "random";
    if (!dice.one_in(3)) c.final_state = "in_place";
  } else if (kernel.system->regime("trained") != nullptr) {
    c.regime =
        kernel.system->regime("long_context") != nullptr && dice.one_in(2) ? "long_context" : "trained";
  }
}

bool put_law(Case& c, const KernelRow& kernel, std::string_view law) {
  if (kernel.system->law(law) == nullptr) return false;
  c.law = law;
  return true;
}

constexpr std::array kKinds{
    CallKind{"training step", "several sequences of equal length, from no state", 16, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               if (serves_slots(kernel)) return false;
               c.B = pick<6>(dice, {1, 2, 2, 4, 4, 8});
               c.T = pick<9>(dice, {64, 128, 128, 256, 256, 512, 1024, 2048, 4096});
               if (kernel.system->of_family() && dice.one_in(2)) c.final_state = "none";
               return true;
             }},
    CallKind{"prefill", "one prompt, or a few, of any length; the state is kept", 9, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               if (serves_slots(kernel)) return false;
               c.B = pick<5>(dice, {1, 1, 1, 2, 4});
               c.T = tokens_between(9, 16384, dice);
               return true;
             }},
    CallKind{"chunked prefill", "the next piece of a long prompt, behind the state of the pieces before it",
             16, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               if (serves_slots(kernel)) return false;
               c.T = tokens_between(64, 8192, dice);
               go_on(c, kernel, dice);
               if (!kernel.system->of_family() && !dice.one_in(4)) {
                 const Index piece = tokens_between(16, 512, dice);
                 if (put_decoded(c, kernel, tokens_between(16, 8192, dice), piece, dice, piece)) return true;
               }
               return kernel.system->of_family() || c.regime != Case{}.regime || put_law(c, kernel, "split");
             }},
    CallKind{
        "packed batch", "sequences of unequal lengths end to end, as continuous batching makes them", 2, 1,
        [](Case& c, const KernelRow& kernel, const Dice& dice) {
          const Index sequences = pick<7>(dice, {2, 3, 4, 8, 16, 32, 64});
          if (!put_packed(c, kernel, sequences, tokens_between(8 * sequences, 512 * sequences, dice), dice)) {
            c.B = std::min<Index>(sequences, 8);
            c.T = tokens_between(2, 128, dice);
            return put_law(c, kernel, "packing");
          }
          if (dice.one_in(2)) go_on(c, kernel, dice);
          if (dice.one_in(6)) c.lead = dice.below(4), c.slack = dice.below(70);
          return true;
        }},
    CallKind{"decode batch", "the next token of many sequences", 1, 2,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               const Index sequences = pick<9>(dice, {2, 3, 4, 8, 16, 32, 64, 128, 256});
               c.B = sequences;
               c.T = 1;
               go_on(c, kernel, dice);
               if (kernel.system->of_family() && dice.one_in(3)) {
                 if (!put_packed(c, kernel, sequences, sequences, dice)) return false;
                 c.lengths.assign(static_cast<std::size_t>(sequences), 1);
                 return true;
               }
               if (has_its_states(kernel, c, dice)) return true;
               (void)put_decoded(c, kernel, tokens_between(1, 8192, dice), 1, dice);
               return true;
             }},
    CallKind{"decode one", "the next token of one sequence", 1, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               c.T = 1;
               go_on(c, kernel, dice);
               if (has_its_states(kernel, c, dice)) return true;
               (void)put_decoded(c, kernel, tokens_between(1, 16384, dice), 1, dice);
               return true;
             }},
    CallKind{"verify",
             "a few drafted tokens of each of several sequences, in one call behind what came before", 2, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               c.B = pick<6>(dice, {1, 2, 4, 4, 16, 64});
               c.T = 2 + dice.below(7);
               go_on(c, kernel, dice);
               if (has_its_states(kernel, c, dice)) return true;
               (void)put_decoded(c, kernel, tokens_between(1, 8192, dice), c.T, dice, c.T);
               return true;
             }},
    CallKind{"resume", "a prompt behind a cache, then a few tokens one by one", 2, 1,
             [](Case& c, const KernelRow& kernel, const Dice& dice) {
               c.B = pick<4>(dice, {1, 1, 2, 4});
               if (kernel.system->of_family()) go_on(c, kernel, dice);
               return put_decoded(c, kernel, tokens_between(1, 2048, dice), 1 + dice.below(4), dice);
             }},
};

}  // namespace

bool serves_slots(const KernelRow& kernel) { return kernel.system->has(Property::slots); }

std::span<const CallKind> call_kinds() { return kKinds; }

}  // namespace samestate
