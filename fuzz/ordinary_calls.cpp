#include "fuzz/ordinary_calls.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fuzz/factors.h"
#include "fuzz/interpreted.h"
#include "fuzz/token_factors.h"
#include "harness/cases/keys.h"
#include "harness/cases/shards.h"
#include "harness/run/companion.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

template <std::size_t n>
Index pick(const Dice& dice, const std::array<Index, n>& of) {
  return of[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(n)))];
}

/// A count of tokens: a power of two or a multiple of 64 as often as any other number; short ones as often as long ones.
Index tokens_between(Index least, Index most, const Dice& dice) {
  const auto drawn =
      static_cast<Index>(std::lround(dice.between(static_cast<double>(least), static_cast<double>(most))));
  if (dice.one_in(3)) return drawn;
  if (dice.one_in(2)) return std::clamp<Index>((drawn + 32) / 64 * 64, least, most);
  return std::clamp<Index>(Index{1} << std::lround(std::log2(static_cast<double>(drawn))), least, most);
}

bool is_family(const KernelRow& kernel) { return kernel.system->has_key("dk"); }

const CaseForm* form_of(const KernelRow& kernel, bool CaseForm::*which) {
  for (const CaseForm& form : kernel.system->forms) {
    if (form.*which) return &form;
  }
  return nullptr;
}

/// A pool of slots serves single tokens; it is neither trained nor prefilled.
bool serves_slots(const KernelRow& kernel) { return kernel.system->has(Property::slots); }

/// Returns true where the data contain the state before the call, so that no earlier call has to leave it. This always holds for the
/// recurrent family and for pools; other layers get such data half of the time, and layers that take keys and values never do.
bool has_its_states(const KernelRow& kernel, const Case& c, const Dice& dice) {
  return is_family(kernel) || serves_slots(kernel) || (!gets_cache(*kernel.system, c) && dice.one_in(2));
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
  // In three cases of four the first call is not made: its time is better spent on the calls behind it.
  c.cached = cached > 0 && decoded > 0 && gets_cache(*kernel.system, c) && !dice.one_in(4);
  return true;
}

/// So many sequences of unequal lengths, each of `least` tokens or more on average.
bool put_packed(Case& c, const KernelRow& kernel, Index sequences, Index tokens, const Dice& dice) {
  const CaseForm* form = form_of(kernel, &CaseForm::packed);
  if (form == nullptr) return false;
  c.form = form->name;
  c.B = 1;
  c.T = std::max(tokens, sequences);
  pack(c, sequences, dice);
  return true;
}

/// States that go on from an earlier call: drawn ones of the family, those of `trained` data of other systems.
void go_on(Case& c, const KernelRow& kernel, const Dice& dice) {
  if (is_family(kernel)) {
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
               if (is_family(kernel) && dice.one_in(2)) c.final_state = "none";
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
               if (!is_family(kernel) && !dice.one_in(4)) {
                 const Index piece = tokens_between(16, 512, dice);
                 if (put_decoded(c, kernel, tokens_between(16, 8192, dice), piece, dice, piece)) return true;
               }
               return is_family(kernel) || c.regime != Case{}.regime || put_law(c, kernel, "split");
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
               if (is_family(kernel) && dice.one_in(3)) {
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
               if (is_family(kernel)) go_on(c, kernel, dice);
               return put_decoded(c, kernel, tokens_between(1, 2048, dice), 1 + dice.below(4), dice);
             }},
};

/// The data: every regime takes its turn, between regimes whose decays let a long call's last token see its first.
void put_data(Case& c, const KernelRow& kernel, Index index, const Dice& dice) {
  constexpr Index kLong = 64;
  const System& system = *kernel.system;
  if (c.regime != Case{}.regime) return;
  if (dice.one_in(3)) {
    c.regime = system.regimes[static_cast<std::size_t>(index) % system.regimes.size()]->name;
  } else if (c.T > kLong && dice.one_in(2)) {
    for (const std::string_view alive : {"slow", "wide_rates", "trained"}) {
      if (system.regime(alive) != nullptr) c.regime = alive;
    }
  }
}

void put_settings(Case& c, const KernelRow& kernel, const ModelSizes& sizes, const Dice& dice) {
  constexpr Index kLawTokens = 9;  // a law on fewer is no call of its kind
  const System& system = *kernel.system;
  for (const CaseSize& size : system.sizes) {
    const bool stated =
        std::ranges::any_of(sizes.sizes, [&](const auto& one) { return one.first == size.name; });
    if (size.least == 0 && size.most == 1 && (!stated || dice.one_in(4)))
      size_in(c, size.name) = dice.below(2);
  }
  if (is_family(kernel)) {
    c.l2norm = sizes.normalises != dice.one_in(6);
    if (dice.one_in(8)) c.heads = HeadMap::tiled;
    if (dice.one_in(8)) c.scale = 1.0;
  }
  if (serves_slots(kernel)) size_in(c, "P") = pick<5>(dice, {2, 4, 16, 64, 300});
  if (system.form(kernel.form)->chunked) c.chunk = pick<8>(dice, {64, 64, 64, 128, 128, 32, 16, 256});
  if (kernel.strided && dice.one_in(4))
    c.layout = std::array{"fused", "permuted", "padded"}[static_cast<std::size_t>(dice.below(3))];
  c.repeat = dice.one_in(6);
  if (!kernel.taps.empty()) c.taps = dice.one_in(3);
  if (c.law.empty() && c.T >= kLawTokens && !system.laws.empty() && dice.one_in(10))
    c.law = system.laws[static_cast<std::size_t>(dice.below(std::ssize(system.laws)))]->name;
}

/// Makes a call smaller until it is affordable.
class Smaller {
 public:
  Smaller(const KernelRow& kernel, const CallKind& kind, const Dice& dice)
      : kernel_(kernel), kind_(kind), dice_(dice) {}

  /// Halves what is not kept until the call takes at most `seconds`, then what is kept. Which part of a call is kept as the model
  /// and the program have it is drawn: all sizes of the layer; those of its heads, without the widths outside of them, whose maps
  /// cost most; tokens and widths of a few heads; or a random half. Widths stay those of a tile as long as that suffices.
  /// `layer`: it is not drawn, all sizes are kept as long as they can be. False where nothing is left.
  bool fit(Case& c, double seconds, bool layer, bool& smaller) {
    std::vector<std::string_view> names{"T", "B"}, kept;
    for (const CaseSize& size : kernel_.system->sizes) {
      if (size_in(c, size.name) > (is_heads(size.name) ? 1 : kSmallSize)) names.push_back(size.name);
    }
    const auto heads = [](const CaseSize& size) { return is_heads(size.name); };
    outer_first_ = std::ranges::any_of(kernel_.system->sizes, heads) || dice_.one_in(2);
    enum class Keep { layer, heads, tokens, half };
    const auto keep = layer ? Keep::layer : static_cast<Keep>(dice_.below(4));
    for (const std::string_view name : names) {
      const bool size = name != "T" && name != "B";
      const bool outer = size && is_outer(name) && dice_.one_in(2);
      const bool keeps = keep == Keep::layer    ? size
                         : keep == Keep::heads  ? size && !outer
                         : keep == Keep::tokens ? name == "T" || (size && !outer && !is_heads(name))
                                                : dice_.one_in(2);
      if (keeps) kept.push_back(name);
    }
    if (lower(c, seconds, names, kept, smaller)) return true;
    least_ = 1;
    for (const CaseSize& size : kernel_.system->sizes) {
      if (size.most > 1 && std::ranges::find(names, size.name) == names.end()) names.push_back(size.name);
    }
    return lower(c, seconds, names, {}, smaller);
  }

 private:
  static constexpr Index kSmallSize =
      8;  ///< a smaller size is a count that costs little: taps of a convolution, chosen experts
  static constexpr Index kTile = 16;
  static constexpr Index kFewSequences = 4;
  static constexpr Index kLongPrompt = 64;

  /// Widths outside of a layer's heads are made smaller first; a layer without heads treats them so only every second time.
  [[nodiscard]] bool is_outer(std::string_view name) const {
    constexpr std::array<std::string_view, 4> kOuter{"D", "F", "Fs", "q_lora"};
    return outer_first_ && kernel_.system->sizes.size() > 2 &&
           std::ranges::find(kOuter, name) != kOuter.end();
  }

  [[nodiscard]] static bool is_heads(std::string_view name) { return name.front() == 'H'; }

  bool lower(Case& c, double seconds, const std::vector<std::string_view>& names,
             std::vector<std::string_view> kept, bool& smaller) {
    constexpr int kSteps = 400;
    std::vector<std::string_view> stuck;
    for (int step = 0; step < kSteps; ++step) {
      if (seconds_of(c) <= seconds) return true;
      std::vector<std::string_view> open;
      for (const std::string_view name : names) {
        if (std::ranges::find(kept, name) == kept.end() && std::ranges::find(stuck, name) == stuck.end())
          open.push_back(name);
      }
      if (open.empty()) {
        if (kept.empty()) return false;
        // The widths outside of the heads first: they say least about the layer.
        const auto inner =
            std::ranges::partition(kept, [this](std::string_view name) { return is_outer(name); }).begin();
        const std::int64_t outer = inner - kept.begin();
        kept.erase(kept.begin() + dice_.below(outer > 0 ? outer : std::ssize(kept)));
        continue;
      }
      // Sequences of a packed call before their tokens, and those behind long prompts: four of real lengths are one, forty of
      // two tokens are not.
      const bool long_prompts = c.prefill >= kLongPrompt && c.B > kFewSequences;
      const bool many = (std::ssize(c.lengths) > kFewSequences || long_prompts) &&
                        std::ranges::find(open, "B") != open.end();
      const std::string_view name = many ? "B" : dice_.pick(open);
      Case less = c;
      if (!halve(less, name) || !std::isfinite(seconds_of(less))) {
        stuck.push_back(name);
        continue;
      }
      smaller = smaller || (name != "T" && name != "B");
      c = std::move(less);
    }
    return false;
  }

  [[nodiscard]] double seconds_of(const Case& c) const { return seconds_of_call(kernel_, c); }

  static Index half(Index value, Index least) {
    const Index less = value % 8 == 0 && value > 8 ? value / 16 * 8 : value / 2;
    return std::max(less, least);
  }

  [[nodiscard]] bool halve(Case& c, std::string_view name) {
    const Case before = c;
    if (name == "T") {
      halve_tokens(c);
    } else if (name == "B") {
      halve_batch(c);
    } else {
      halve_size(c, name);
    }
    settle(c, kernel_, dice_);
    return !(c == before) && possible(c);
  }

  void halve_tokens(Case& c) const {
    if (!c.lengths.empty()) {
      c.T = 0;
      for (Index& length : c.lengths) c.T += length = length > 1 ? length / 2 : length;
      return;
    }
    const Index decoded = kernel_.system->form(c.form)->decodes ? c.T - c.prefill : 0;
    if (decoded > 0 && c.prefill <= 1 &&
        !is_family(kernel_)) {  // the tokens alone, behind the states that the data have
      c.form = kernel_.form;
      c.T = decoded;
      c.prefill = 0, c.step = 1, c.cached = false;
      return;
    }
    c.T = decoded > 0 ? half(c.prefill, 1) + decoded : half(c.T, kind_.tokens);
    c.prefill = decoded > 0 ? c.T - decoded : 0;
  }

  void halve_batch(Case& c) const {
    if (c.lengths.empty()) {
      c.B = half(c.B, kind_.batch);
      return;
    }
    if (std::ssize(c.lengths) <= 2) return;
    c.lengths.resize(std::max<std::size_t>(c.lengths.size() / 2, 2));
    c.T = 0;
    for (const Index length : c.lengths) c.T += length;
  }

  /// Of a size that others are multiples of, the others with it; of one alone, what it is a multiple of stays.
  void halve_size(Case& c, std::string_view name) const {
    for (const CaseSize& size : kernel_.system->sizes) {
      if (size.name != name) continue;
      Index& value = size_in(c, name);
      const Index divisor = size.multiple_of.empty() ? 1 : size_in(c, size.multiple_of);
      const Index least = std::max<Index>(
          size.least, std::min<Index>(value, is_heads(name)                                   ? 1
                                             : least_ == 1 || (is_outer(name) && name != "D") ? 2
                                                                                              : kTile));
      const Index before = std::exchange(
          value, divisor > 1 ? std::max<Index>(value / divisor / 2, 1) * divisor : half(value, least));
      for (const CaseSize& other : kernel_.system->sizes) {
        if (other.multiple_of != name) continue;
        Index& multiple = size_in(c, other.name);
        multiple = std::max<Index>(multiple / before, 1) * value;
      }
    }
  }

  const KernelRow& kernel_;
  const CallKind& kind_;
  const Dice& dice_;
  Index least_ = kTile;
  bool outer_first_ = true;
};

}  // namespace

double seconds_of_call(const KernelRow& kernel, const Case& c) {
  constexpr double kOfToken = 0.5;  // each decoded token is a call that gets all weights anew
  double work = work_of(kernel, c);
  if (kernel.interpreted && std::isfinite(work))
    return kSecondsOfWork * (kStartingWork + kernel.system->work(c, kGatePolicy)) +
           interpreted_seconds(kernel, c);
  if (!is_family(kernel)) {
    work *= measured_share(kernel.system->name);
    if (kernel.system->form(c.form)->decodes) {
      Case token = c;
      token.form = kernel.form;
      token.T = 1, token.prefill = 0, token.step = 1, token.cached = false;
      work += kOfToken * static_cast<double>((c.T - c.prefill) / c.step) * work_of(kernel, token);
    }
  }
  return kSecondsOfWork * (kStartingWork + work);
}

OrdinaryCalls::OrdinaryCalls(const KernelRow& kernel) : kernel_(kernel) {
  for (ModelSizes& row : model_sizes(*kernel.system)) {
    if (models_.empty() || models_.back().front().model != row.model) models_.emplace_back();
    models_.back().push_back(std::move(row));
  }
}

Index OrdinaryCalls::round() const { return models() * static_cast<Index>(kKinds.size()); }

bool OrdinaryCalls::draw_once(const std::vector<ModelSizes>& of, const CallKind& kind, Index index,
                              const Dice& dice, OrdinaryCall& out) const {
  constexpr std::string_view kUsual = "bf16";  // what models are trained and served in
  // Every second pair of model and kind begins with the whole layer, all of the time that a call may take.
  const bool whole = index < round() && (index / std::ssize(kKinds) + index) % 2 == 0;
  const ModelSizes& sizes = whole || dice.one_in(3) ? of.front() : dice.pick(of);
  Case c = start_of(kernel_);
  c.state = Case{}.state;
  for (const auto& [name, value] : sizes.sizes) size_in(c, name) = value;
  const std::vector<std::string>& contracts = kernel_.contracts;
  c.contract = whole || dice.one_in(3) ? contracts.front() : dice.pick(contracts);
  if (!whole && dice.one_in(3) && std::ranges::find(contracts, kUsual) != contracts.end())
    c.contract = kUsual;
  out.why = kNoSuchCall;
  if (!kind.put(c, kernel_, dice)) return false;
  put_data(c, kernel_, index, dice);
  put_settings(c, kernel_, sizes, dice);
  settle(c, kernel_, dice);
  out.why = "no kernel here makes one of its calls";
  if (!has_kernels(kernel_, c)) return false;
  // A scan needs so much memory that an expensive call takes up to twenty seconds on a busy machine.
  const double dear = measured_share(kernel_.system->name) < 1.0 ? kSecondsOfDearCall : kSecondsOfCall;
  const std::array seconds_of{dear,           kSecondsOfCall,       kSecondsOfCall,
                              kSecondsOfCall, kSecondsOfCall / 4.0, kSecondsOfCall / 8.0};
  const double seconds = whole && !dice.one_in(8) ? kSecondsOfCall : dice.pick(seconds_of);
  out.why = "its smallest form takes too long";
  if (!Smaller(kernel_, kind, dice).fit(c, seconds, whole, out.smaller)) return false;
  out.why = "outside the kernel's limits";
  if (!possible(c) || !within_limits(kernel_, c)) return false;
  out.why = {};
  out.c = std::move(c);
  return true;
}

const std::vector<ModelSizes>& OrdinaryCalls::model_of(Index index) const {
  // Kinds begin at different models, so that the first calls meet many of both.
  const auto kinds = static_cast<Index>(kKinds.size());
  const Index stride = models() / kinds + 1;
  return models_[static_cast<std::size_t>((index / kinds + index % kinds * stride) % models())];
}

OrdinaryCall OrdinaryCalls::turn(Index index) const {
  const CallKind& kind = kKinds[static_cast<std::size_t>(index) % kKinds.size()];
  return {{}, model_of(index).front().model->name, kind.name};
}

OrdinaryCall OrdinaryCalls::draw(Index index, const Dice& dice) const {
  constexpr int kAttempts = 6;
  if (models_.empty()) return {};
  OrdinaryCall out = turn(index);
  const CallKind& kind = kKinds[static_cast<std::size_t>(index) % kKinds.size()];
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    out.smaller = false;
    if (draw_once(model_of(index), kind, index, dice, out)) break;
  }
  return out;
}

}  // namespace samestate
