#pragma once

#include <map>
#include <string>

#include "harness/captured/captured_heads.h"
#include "oracles/verdict.h"

namespace samestate {

/// What became of a recorded call.
struct CapturedJudgement {
  Judgement judgement;
  /// In a person's words, over all heads that were compared. Of o: max_abs at at_sequence, at_head, at_token, at_column;
  /// relative_rms; what a right kernel stays within on these data, allowed_max_abs and allowed_relative_rms, and what it
  /// is expected to have, expected_relative_rms. The same of the final state with state_ before it, where there is one.
  std::map<std::string, double> numbers;
};

/// Judges a recorded call against float64 and the bound from its own data, in about `budget` seconds of one core, but at
/// least on two heads: where that does not suffice for all heads, or for a head's tokens, the judgement says which were held.
/// There is no twin: it would have to run the kernel again. Throws CapturedMismatch where an input is not finite.
[[nodiscard]] CapturedJudgement judge_captured(const CapturedHeads& call, double budget);

}  // namespace samestate
