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

/// Which tokens of a long sequence are held to their tolerance, where what a token gives depends on no other's result: a tolerance
/// takes tens of times what float64 takes. Held are, as far as the policy says, the first ones, the last, those around 64 and the powers of two above it, where
/// tiles and blocks of threads end, some that the seed draws, and what is added: those that lie farthest from float64. A judgement's
/// `held` counts them where every sequence is held, and `held_which` ends with their text.
class ChosenTokens {
 public:
  /// `cached`: tokens of the first call. If only a few tokens follow them, all of these are held, and fewer tokens of the first
  /// call.
  ChosenTokens(Index tokens, std::uint64_t seed, const JudgePolicy& policy, Index cached = 0);

  /// All tokens after a cache whose own call is not made.
  [[nodiscard]] static ChosenTokens behind(Index tokens, Index cached);

  [[nodiscard]] bool all() const { return count_ == std::ssize(taken_); }
  [[nodiscard]] Index count() const { return count_; }
  /// A token and those beside it.
  void add(Index token);
  /// Those that are held, in order; adjacent ones together.
  [[nodiscard]] std::vector<TokenSpan> spans() const;
  /// "tokens 0-31 56-71"
  [[nodiscard]] std::string text() const;

  /// The share of so many tokens that is held, about, for System::work.
  [[nodiscard]] static double share(Index tokens, const JudgePolicy& policy, Index cached = 0);

 private:
  ChosenTokens() = default;
  void take(Index begin, Index end);

  std::vector<bool> taken_;
  Index beside_ = 0;
  Index count_ = 0;
};

}  // namespace samestate
