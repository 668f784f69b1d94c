#include "harness/run/chosen_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/cases/counter.h"

namespace samestate {
namespace {

constexpr Index kFirst = 32;
constexpr Index kBeside = 8;  ///< on both sides of an edge
// The same where tokens follow a long prompt: theirs are the calls that the case is about, and each meets the whole prompt.
constexpr Index kAllOfPrompt = 64;
constexpr Index kFirstOfPrompt = 4;
constexpr Index kBesideInPrompt = 1;
constexpr Index kLastOfPrompt = 4;
constexpr Index kFirstEdge = 64;
constexpr Index kDrawn = 3;
constexpr Index kFarthest = 6;  ///< that a judge adds at most

/// The cached tokens count as a prompt only if few tokens follow; otherwise they are just the earlier part of one.
Index prompt_of(Index tokens, Index cached) { return tokens - cached > kAllOfPrompt ? 0 : cached; }

}  // namespace

ChosenTokens::ChosenTokens(Index tokens, std::uint64_t seed, Index cached)
    : taken_(static_cast<std::size_t>(tokens)) {
  const Index prompt = prompt_of(tokens, cached);
  beside_ = prompt > 0 ? kBesideInPrompt : kBeside;
  if (tokens <= (prompt > 0 ? kAllOfPrompt : kAll)) {
    take(0, tokens);
    return;
  }
  take(0, prompt > 0 ? kFirstOfPrompt : kFirst);
  for (Index edge = kFirstEdge; edge < tokens; edge *= 2) take(edge - beside_, edge + beside_);
  take(prompt > 0 ? prompt - kLastOfPrompt : tokens - 2 * kBeside, tokens);
  if (cached > 0) add(cached);
  const Counter draws(seed, "chosen tokens");
  for (std::int64_t draw = 0; draw < kDrawn; ++draw) add(draws.below({draw, 0, 0, 0}, tokens));
}

ChosenTokens ChosenTokens::behind(Index tokens, Index cached) {
  ChosenTokens out;
  out.taken_.resize(static_cast<std::size_t>(tokens));
  out.take(cached, tokens);
  return out;
}

void ChosenTokens::add(Index token) { take(token - beside_, token + beside_); }

void ChosenTokens::take(Index begin, Index end) {
  for (Index t = std::max<Index>(begin, 0); t < std::min<Index>(end, std::ssize(taken_)); ++t) {
    auto taken = taken_[static_cast<std::size_t>(t)];
    count_ += taken ? 0 : 1;
    taken = true;
  }
}

std::vector<TokenSpan> ChosenTokens::spans() const {
  std::vector<TokenSpan> out;
  for (Index t = 0; t < std::ssize(taken_); ++t) {
    if (!taken_[static_cast<std::size_t>(t)]) continue;
    if (out.empty() || out.back().end != t) out.push_back({t, t});
    out.back().end = t + 1;
  }
  return out;
}

std::string ChosenTokens::text() const {
  std::string out = "tokens";
  for (const TokenSpan& span : spans()) out += fmt::format(" {}-{}", span.begin, span.end - 1);
  return out;
}

double ChosenTokens::share(Index tokens, Index cached) {
  const Index prompt = prompt_of(tokens, cached);
  if (tokens <= (prompt > 0 ? kAllOfPrompt : kAll)) return 1.0;
  const auto all = static_cast<double>(tokens);
  const double edges = std::ceil(std::log2(all / static_cast<double>(kFirstEdge)));
  const Index ends = prompt > 0 ? kFirstOfPrompt + kLastOfPrompt + tokens - prompt : kFirst;
  const double held =
      static_cast<double>(ends) + static_cast<double>(2 * (prompt > 0 ? kBesideInPrompt : kBeside)) *
                                      (edges + 1.0 + static_cast<double>(kDrawn + kFarthest));
  return std::min(1.0, held / all);
}

}  // namespace samestate
