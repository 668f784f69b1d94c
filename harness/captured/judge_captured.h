#pragma once

#include <map>
#include <optional>
#include <string>

#include "harness/captured/captured_run.h"
#include "oracles/verdict.h"

namespace samestate {

/// The result for one recorded call.
struct CapturedJudgement {
  Judgement judgement;
  std::string policy = {};  ///< Record::policy
  /// In a person's words, over all heads that were compared. Of o: max_abs at at_sequence, at_head, at_token, at_column;
  /// relative_rms; both without the not_finite values, if there are any, whose first is at not_finite_sequence, .._head,
  /// .._token, .._column; what a right kernel stays within on these data, allowed_max_abs and allowed_relative_rms, and what it
  /// is expected to have, expected_relative_rms. The same of the final state with state_ before it, where there is one.
  std::map<std::string, double> numbers;
};

/// The case that a recorded call is an instance of; its data are the file's, whatever seed and regime the line has. Throws
/// Error for a file that is damaged, CapturedMismatch where the call is not one of the function's declaration.
[[nodiscard]] Case captured_case(const std::filesystem::path& folder, const CapturedCall& call,
                                 const CapturedFunction& function, const CapturedWords& words);

/// Judges it against float64 and the bound from its own data. Of the recurrent family in about `budget` seconds of one core,
/// but at least on two heads: where that does not suffice for all heads, or for a head's tokens, the judgement says which were
/// held, and there is no twin, which would have to run the kernel again. Of named tensors as a run file, without numbers. Throws
/// as captured_case does, CapturedMismatch where an input is not finite too.
[[nodiscard]] CapturedJudgement judge_captured(const std::filesystem::path& folder, const CapturedCall& call,
                                               const CapturedFunction& function, const CapturedWords& words,
                                               double budget);

/// The call as a run file that can be explained; nothing where it cannot. Throws as captured_case does.
[[nodiscard]] std::optional<RunFile> captured_run(const std::filesystem::path& folder,
                                                  const CapturedCall& call, const CapturedFunction& function,
                                                  const CapturedWords& words);

}  // namespace samestate
