#include "fuzz/draw.h"

#include <algorithm>
#include <array>
#include <string>

#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr int kAttempts = 60;
constexpr double kLeastWork = 3e-4;       // most draws are far below the most: rate finds more than size does
constexpr Index kLargestDrawnSize = 512;  // of those that their rows leave open
constexpr Index kMostTokens = 300;
constexpr Index kMostDecoded = 48;  // tokens of a decoded case: each is a call

bool is_chunked(const KernelRow& kernel) {
  const CaseForm* form = kernel.system->form(kernel.form);
  return form != nullptr && form->chunked;
}

/// A power of two, or a number beside one, or any up to twice what the row starts from.
Index draw_size(const Dice& dice, const CaseSize& size, Index least) {
  const Index most = std::min(size.most, std::max(kLargestDrawnSize, size.start));
  if (dice.one_in(3))
    return least + dice.below(std::max<Index>(std::min(most, 2 * size.start + 1) - least + 1, 1));
  Index power = 1;
  for (Index steps = dice.below(10); steps > 0 && 2 * power <= most; --steps) power *= 2;
  static constexpr std::array<Index, 6> kBeside{0, 0, 0, -1, 1, 3};
  return std::clamp(power + dice.pick(kBeside), least, most);
}

void draw_sizes(Case& c, const System& system, const Dice& dice) {
  for (const CaseSize& size : system.sizes) {
    Index least = size.least;
    if (const CaseLaw* law = system.law(c.law)) {
      for (const auto& [name, value] : law->least) {
        if (name == size.name) least = std::max(least, value);
      }
    }
    Index& value = size_in(c, size.name);
    if (!size.multiple_of.empty()) {
      static constexpr std::array<Index, 6> kRatios{1, 1, 2, 3, 4, 8};
      value = size_in(c, size.multiple_of) * dice.pick(kRatios);
    } else if (value < least || dice.one_in(2)) {
      value = draw_size(dice, size, least);
    }
  }
}

/// T in {0, 1, 2, C - 1, C, C + 1, 2C, 2C + 1} half of the time.
Index draw_tokens(const Dice& dice, Index chunk) {
  const std::array<Index, 8> edges{0, 1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 2 * chunk + 1};
  return dice.one_in(2) ? dice.pick(edges) : 1 + dice.below(kMostTokens);
}

/// At most nine sequences, empty ones among them, of c.T tokens together.
void as_packed(Case& c, const Dice& dice) {
  c.B = 1;
  const Index most = std::max<Index>(c.T / 2, 1);
  Index left = c.T;
  while (left > 0 && c.lengths.size() < 8) {
    const Index next = dice.one_in(4) ? 0 : std::min(left, 1 + dice.below(most));
    c.lengths.push_back(next);
    left -= next;
  }
  c.lengths.push_back(left);
}

/// Sometimes a form whose calls are those of the kernel's.
void draw_form(Case& c, const KernelRow& kernel, const Dice& dice) {
  const std::vector<CaseForm>& forms = kernel.system->forms;
  const CaseForm& form = dice.pick(forms);
  if (kernel.system->native(form.name) || dice.one_in(3)) return;
  if (form.whole && (!is_chunked(kernel) || c.T > 64)) return;
  c.form = form.name;
  if (form.packed) as_packed(c, dice);
  if (form.decodes) {
    c.T = std::min(c.T, kMostDecoded);
    c.prefill = dice.below(c.T + 1);
  }
  if (form.chunked && !is_chunked(kernel)) c.chunk = 0;
}

/// What a law needs in order to bite.
void make_way_for_law(Case& c, const KernelRow& kernel) {
  const CaseLaw& law = *kernel.system->law(c.law);
  if (law.state) c.state = "random";
  c.B = 2;
  c.T = std::clamp<Index>(c.T, 2, kMostDecoded);
  // The worst case of a state in low precision is vacuous after a few tokens, so that no law is judged with it;
  // what is exact needs no law, and where the state grows no bound says anything.
  if (low_precision_state(contract_named(c.contract))) c.contract = kernel.contracts.front();
  const Regime& regime = *kernel.system->regime(c.regime);
  if (regime.exact || regime.expands) c.regime = Case{}.regime;
}

Case draw_once(const KernelRow& kernel, const Dice& dice, double most) {
  const System& system = *kernel.system;
  Case c = start_of(kernel);
  // Logic errors are hunted in the first contract, where they stand out most (DESIGN 5): half of the cases.
  if (dice.one_in(2)) c.contract = dice.pick(kernel.contracts);
  if (!system.laws.empty() && dice.one_in(8)) c.law = dice.pick(system.laws).name;
  draw_sizes(c, system, dice);
  static constexpr std::array<Index, 12> kChunks{1, 2, 3, 4, 5, 8, 8, 16, 16, 32, 64, 64};
  if (is_chunked(kernel)) c.chunk = dice.pick(kChunks);
  for (const Key& key : keys()) {
    if (key.odds > 0 && system.has_key(key.name) && dice.one_in(key.odds))
      key.parse(c, dice.pick(key.values));
  }
  if (!kernel.strided) c.layout = Case{}.layout;
  const Regime& regime = *dice.pick(system.regimes);
  c.regime = regime.name;
  if (regime.exact) c.l2norm = false;
  c.T = draw_tokens(dice, is_chunked(kernel) ? c.chunk : 8);
  if (c.T == 0) {  // without tokens only a state can be wrong
    if (system.has_key("state"))
      c.state = "random";
    else
      c.T = 1;
  }
  if (!c.law.empty()) {
    make_way_for_law(c, kernel);
  } else {
    draw_form(c, kernel, dice);
  }
  if (c.lengths.empty()) c.lead = c.slack = 0;
  if (c.state == "none" && c.final_state == "in_place") c.final_state = Case{}.final_state;
  while (c.lengths.empty() && c.T > 2 && possible(c) && system.work(c) > most) {
    c.T = std::max<Index>(c.T / 2, 2);
    c.prefill = std::min(c.prefill, c.T);
  }
  return c;
}

}  // namespace

Case start_of(const KernelRow& kernel) {
  Case c = kernel.system->standard();
  for (const CaseSize& size : kernel.system->sizes) size_in(c, size.name) = size.start;
  c = with_keys(std::move(c), kernel.system->plan.start);
  c.form = kernel.form;
  c.contract = kernel.contracts.front();
  if (!is_chunked(kernel)) c.chunk = Case{}.chunk;
  return c;
}

Case with_part(const KernelRow& kernel, const Case& from, std::string_view part) {
  Case c = with_keys(from, part);
  if (is_chunked(kernel)) return c;
  const CaseForm* form = kernel.system->form(c.form);
  c.chunk = form != nullptr && form->chunked ? 0 : Case{}.chunk;
  return c;
}

Case draw_case(const KernelRow& kernel, const Dice& dice) {
  const double room = dice.between(kLeastWork, 1.0);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    // Half of the attempts stay within the room that was drawn; the rest only within what is affordable.
    const double most = attempt < kAttempts / 2 ? room : 1.0;
    Case c = draw_once(kernel, dice, most);
    if (possible(c) && kernel.system->work(c) <= most) return c;
  }
  return start_of(kernel);
}

}  // namespace samestate
