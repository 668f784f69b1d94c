#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// Contracts near that of a case whose twin its outputs fail.
struct Neighbours {
  std::vector<std::string> passes;  ///< under which just these outputs pass, the nearest first
  std::string nearest;              ///< where none does: the one whose twin is nearest
  double factor = 1.0;              ///< how many times nearer it is than the case's own
  int changes = 0;                  ///< one or two: how many were looked at
  bool complete = true;             ///< false: the time was up, or it was stopped
  bool coarser =
      false;  ///< what passes rounds more than the case's own, which has no points: a wider bound too

  /// A line: "passes under contract bf16+inverse:block16/tf32_truncated", "no contract of the grammar within two changes
  /// explains this; the nearest is ..".
  [[nodiscard]] std::string text() const;
};

/// Whether a contract may be what is wrong: a case without a law that failed the twin, or that is nearest and far from it;
/// of named tensors also one that failed drawn roundings, or its worst case in fp32, which tf32 operands exceed.
[[nodiscard]] bool is_about_the_contract(const Resolved& r, const Judgement& j);

/// Tries the contracts that are one change away from the case's, and where none passes those that are two: in the order of
/// their twins' distance from the outputs, the nearest judged as the case is. `run`: inputs and outputs of a run of the case.
/// Ends after `seconds`, or where `stop` says.
[[nodiscard]] Neighbours neighbours_of(const Resolved& r, const Trace& run, double seconds,
                                       const std::function<bool()>& stop = {});

}  // namespace samestate
