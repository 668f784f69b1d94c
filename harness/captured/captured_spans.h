#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/chosen_tokens.h"
#include "oracles/judge.h"

/// Judges a head whose sequence is too long for the bound of the whole (BOUNDS 10.4): float64 goes over all
/// tokens, and some stretches are compared with their bounds, each beginning with the state that float64 has
/// there.
namespace samestate {

/// A stretch of tokens with its tolerances and its judgement.
struct HeldSpan {
  TokenSpan tokens;
  HeadOracle oracle;  ///< for these tokens only
  Judgement judgement;
};

struct SpanJudgement {
  std::vector<HeldSpan>
      spans;  ///< ordered by token, without those whose bound says nothing, except for the first
  std::int64_t said_nothing =
      0;                     ///< stretches whose state depends on tokens before those that were evaluated
  Trajectory<double> exact;  ///< for all tokens
};

/// Returns the number of tokens in a stretch, which is a multiple of the chunk.
[[nodiscard]] Index span_length(Index chunk);

/// Judges stretches of `x`, whose outputs are o [T, dv] and `state` [dk, dv]: as many as `tokens` tokens of
/// bounds allow, but at least the first, the last and the one farthest from float64. `chunk` is 0 in the
/// recurrent form.
[[nodiscard]] SpanJudgement judge_in_spans(const Sequence<double>& x, Index chunk, const Contract& contract,
                                           const Family& family, bool l2norm, const Matrix<double>& o,
                                           const Matrix<double>& state, Index tokens);

}  // namespace samestate
