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
  /// Figures for people, over all heads that were compared. For o: max_abs at at_sequence, at_head, at_token,
  /// at_column, and relative_rms. Both leave out values that are not finite; their number is not_finite, and
  /// the first is at not_finite_sequence, .._head, .._token, .._column. The limits of a correct kernel on
  /// these data are allowed_max_abs and allowed_relative_rms, and expected_relative_rms is what to expect of
  /// it. If there is a final state, its figures have the same names after state_.
  std::map<std::string, double> numbers;
};

/// Returns the case of which a recorded call is an instance. Its data are the file's, whatever seed and
/// regime the line has. Throws Error for a damaged file, and CapturedMismatch if the function's declaration
/// does not describe the call.
[[nodiscard]] Case captured_case(const std::filesystem::path& folder, const CapturedCall& call,
                                 const CapturedFunction& function, const CapturedWords& words);

/// Judges the call against float64 and the bound from its own data. For the recurrent family this takes about
/// `budget` seconds of one core, but at least two heads are judged. If the time does not suffice for all
/// heads, or for all tokens of a head, the judgement says which were compared with their bounds. There is no
/// twin, since it would have to run the kernel again. Named tensors are judged as a run file, without
/// figures. Throws as captured_case does, and CapturedMismatch if an input is not finite.
[[nodiscard]] CapturedJudgement judge_captured(const std::filesystem::path& folder, const CapturedCall& call,
                                               const CapturedFunction& function, const CapturedWords& words,
                                               double budget);

/// Returns the call as a run file that can be explained; nullopt if it cannot be explained. Throws as
/// captured_case does.
[[nodiscard]] std::optional<RunFile> captured_run(const std::filesystem::path& folder,
                                                  const CapturedCall& call, const CapturedFunction& function,
                                                  const CapturedWords& words);

}  // namespace samestate
