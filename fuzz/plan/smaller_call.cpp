#include "fuzz/plan/smaller_call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/keys.h"

namespace samestate {
namespace {

constexpr Index kSmallSize = 8;  // a smaller size is a cheap count: taps of a convolution, chosen experts
constexpr Index kFewSequences = 4;
constexpr Index kLongPrompt = 64;

bool is_heads(std::string_view name) { return name.front() == 'H'; }

Index half(Index value, Index least) {
  const Index less = value % 8 == 0 && value > 8 ? value / 16 * 8 : value / 2;
  return std::max(less, least);
}

}  // namespace

bool SmallerCall::fit(Case& c, double seconds, bool layer, bool& smaller) {
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

/// Widths outside of a layer's heads are reduced first; in a layer without heads only every second time.
bool SmallerCall::is_outer(std::string_view name) const {
  constexpr std::array<std::string_view, 4> kOuter{"D", "F", "Fs", "q_lora"};
  return outer_first_ && kernel_.system->sizes.size() > 2 && std::ranges::find(kOuter, name) != kOuter.end();
}

bool SmallerCall::lower(Case& c, double seconds, const std::vector<std::string_view>& names,
                        std::vector<std::string_view> kept, bool& smaller) {
  constexpr int kSteps = 400;
  std::vector<std::string_view> stuck;
  for (int step = 0; step < kSteps; ++step) {
    if (seconds_of_call(kernel_, c) <= seconds) return true;
    std::vector<std::string_view> open;
    for (const std::string_view name : names) {
      if (std::ranges::find(kept, name) == kept.end() && std::ranges::find(stuck, name) == stuck.end())
        open.push_back(name);
    }
    if (open.empty()) {
      if (kept.empty()) return false;
      // The widths outside of the heads come first: they matter least for the layer.
      const auto inner =
          std::ranges::partition(kept, [this](std::string_view name) { return is_outer(name); }).begin();
      const std::int64_t outer = inner - kept.begin();
      kept.erase(kept.begin() + dice_.below(outer > 0 ? outer : std::ssize(kept)));
      continue;
    }
    // Drop sequences of a packed call before their tokens, except those after long prompts: four sequences of
    // realistic lengths are one such call, forty of two tokens are not.
    const bool long_prompts = c.prefill >= kLongPrompt && c.B > kFewSequences;
    const bool many =
        (std::ssize(c.lengths) > kFewSequences || long_prompts) && std::ranges::find(open, "B") != open.end();
    const std::string_view name = many ? "B" : dice_.pick(open);
    Case less = c;
    if (!halve(less, name) || !std::isfinite(seconds_of_call(kernel_, less))) {
      stuck.push_back(name);
      continue;
    }
    smaller = smaller || (name != "T" && name != "B");
    c = std::move(less);
  }
  return false;
}

bool SmallerCall::halve(Case& c, std::string_view name) {
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

void SmallerCall::halve_tokens(Case& c) const {
  if (!c.lengths.empty()) {
    c.T = 0;
    for (Index& length : c.lengths) c.T += length = length > 1 ? length / 2 : length;
    return;
  }
  const Index decoded = kernel_.system->form(c.form)->decodes ? c.T - c.prefill : 0;
  if (decoded > 0 && c.prefill <= 1 &&
      !kernel_.system->of_family()) {  // only the tokens, which continue the states in the data
    c.form = kernel_.form;
    c.T = decoded;
    c.prefill = 0, c.step = 1, c.cached = false;
    return;
  }
  c.T = decoded > 0 ? half(c.prefill, 1) + decoded : half(c.T, kind_.tokens);
  c.prefill = decoded > 0 ? c.T - decoded : 0;
}

void SmallerCall::halve_batch(Case& c) const {
  if (c.lengths.empty()) {
    c.B = half(c.B, kind_.batch);
    return;
  }
  if (std::ssize(c.lengths) <= 2) return;
  c.lengths.resize(std::max<std::size_t>(c.lengths.size() / 2, 2));
  c.T = 0;
  for (const Index length : c.lengths) c.T += length;
}

/// Halves a size together with the sizes that are multiples of it. Halving a size that is a multiple of
/// another leaves that one as it is.
void SmallerCall::halve_size(Case& c, std::string_view name) const {
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

}  // namespace samestate
