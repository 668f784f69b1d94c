#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/chosen_tokens.h"
#include "oracles/judge.h"

/// A head of a sequence that is too long to be held to its tolerance whole (BOUNDS 10.4): float64 goes over all of it, and
/// stretches of it are held, each from the state that float64 has there.
namespace samestate {

/// A stretch with its tolerances and its judgement.
struct HeldSpan {
  TokenSpan tokens;
  HeadOracle oracle;  ///< of those tokens alone
  Judgement judgement;
};

struct SpanJudgement {
  std::vector<HeldSpan> spans;  ///< by token; those that said nothing left out, but for the first
  std::int64_t said_nothing =
      0;  ///< stretches whose state remembers more than the tokens before them that were looked at
  Trajectory<double> exact;  ///< of all tokens
};

/// Tokens that a stretch has; a multiple of the chunk.
[[nodiscard]] Index span_length(Index chunk);

/// Judges stretches of `x`, whose outputs are o [T, dv] and `state` [dk, dv], as far as `tokens` tokens of bounds go, but at
/// least the first, the last and the one that lies farthest from float64. `chunk`: 0 in the recurrent form.
[[nodiscard]] SpanJudgement judge_in_spans(const Sequence<double>& x, Index chunk, const Contract& contract,
                                           const Family& family, bool l2norm, const Matrix<double>& o,
                                           const Matrix<double>& state, Index tokens);

}  // namespace samestate
