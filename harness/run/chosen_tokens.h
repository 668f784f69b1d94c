#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracles/judge_policy.h"
#include "reference/sequence.h"

namespace samestate {

/// Tokens [begin, end).
struct TokenSpan {
  Index begin = 0, end = 0;
};

/// Chooses which tokens of a long sequence are compared with their tolerance, for systems in which no token's
/// result depends on another's: a tolerance takes tens of times as long as float64. As far as the policy
/// says, these are the first tokens, the last, those around 64 and the powers of two above it, where tiles
/// and thread blocks end, some that the seed draws, and those that are added: the ones farthest from float64.
/// A judgement's `held` counts them if every sequence is compared, and `held_which` ends with their text.
class ChosenTokens {
 public:
  /// `cached` is the number of tokens of the first call. If only a few tokens follow them, all of these are
  /// chosen, and fewer tokens of the first call.
  ChosenTokens(Index tokens, std::uint64_t seed, const JudgePolicy& policy, Index cached = 0);

  /// All tokens after a cache whose own call is not made.
  [[nodiscard]] static ChosenTokens behind(Index tokens, Index cached);

  [[nodiscard]] bool all() const { return count_ == std::ssize(taken_); }
  [[nodiscard]] Index count() const { return count_; }
  /// Adds a token and its neighbours.
  void add(Index token);
  /// The chosen tokens in order, with adjacent ones joined.
  [[nodiscard]] std::vector<TokenSpan> spans() const;
  /// "tokens 0-31 56-71"
  [[nodiscard]] std::string text() const;

  /// The approximate share of `tokens` tokens that is chosen, for System::work.
  [[nodiscard]] static double share(Index tokens, const JudgePolicy& policy, Index cached = 0);

 private:
  ChosenTokens() = default;
  void take(Index begin, Index end);

  std::vector<bool> taken_;
  Index beside_ = 0;
  Index count_ = 0;
};

}  // namespace samestate
