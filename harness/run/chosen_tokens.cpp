#include "harness/run/chosen_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "harness/cases/counter.h"

namespace samestate {
namespace {

/// Cached tokens count as a prompt only if few tokens follow; otherwise they are simply the earlier part of a
/// text.
Index prompt_of(Index tokens, Index cached, const JudgePolicy& policy) {
  return tokens - cached > policy.all_of_prompt ? 0 : cached;
}

}  // namespace

ChosenTokens::ChosenTokens(Index tokens, std::uint64_t seed, const JudgePolicy& policy, Index cached)
    : taken_(static_cast<std::size_t>(tokens)) {
  const Index prompt = prompt_of(tokens, cached, policy);
  beside_ = prompt > 0 ? policy.beside_in_prompt : policy.tokens_beside;
  if (tokens <= (prompt > 0 ? policy.all_of_prompt : policy.all_tokens)) {
    take(0, tokens);
    return;
  }
  take(0, prompt > 0 ? policy.first_of_prompt : policy.first_tokens);
  for (Index edge = policy.first_edge; edge < tokens; edge *= 2) take(edge - beside_, edge + beside_);
  take(prompt > 0 ? prompt - policy.last_of_prompt : tokens - 2 * policy.tokens_beside, tokens);
  if (cached > 0) add(cached);
  const Counter draws(seed, "chosen tokens");
  for (std::int64_t draw = 0; draw < policy.drawn_tokens; ++draw) add(draws.below({draw, 0, 0, 0}, tokens));
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

double ChosenTokens::share(Index tokens, const JudgePolicy& policy, Index cached) {
  const Index prompt = prompt_of(tokens, cached, policy);
  if (tokens <= (prompt > 0 ? policy.all_of_prompt : policy.all_tokens)) return 1.0;
  const auto all = static_cast<double>(tokens);
  const double edges = std::ceil(std::log2(all / static_cast<double>(policy.first_edge)));
  const Index ends =
      prompt > 0 ? policy.first_of_prompt + policy.last_of_prompt + tokens - prompt : policy.first_tokens;
  const double held = static_cast<double>(ends) +
                      static_cast<double>(2 * (prompt > 0 ? policy.beside_in_prompt : policy.tokens_beside)) *
                          (edges + 1.0 + static_cast<double>(policy.drawn_tokens + 2 * policy.farthest));
  return std::min(1.0, held / all);
}

}  // namespace samestate
