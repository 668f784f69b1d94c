#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// Contracts near that of a case whose outputs fail its twin.
struct Neighbours {
  std::vector<std::string> passes;  ///< the contracts under which the same outputs pass, the nearest first
  std::string nearest;              ///< if there is none: the contract whose twin is nearest
  double factor = 1.0;              ///< how many times nearer it is than the case's own
  int changes = 0;                  ///< the number of changes that were tried, one or two
  bool complete = true;             ///< false if the time was up, or the search was stopped
  bool coarser =
      false;  ///< a contract that passes rounds more than the case's own, which has no points, so its bound
              ///< is wider too

  /// One line: "passes under contract bf16+inverse:block16/tf32_truncated", or "no contract of the grammar
  /// within two changes explains this; the nearest is ..".
  [[nodiscard]] std::string text() const;
};

/// True if a wrong contract may be the reason: a case without a law that failed the twin, or whose card is
/// nearest and is far from it; for named tensors also a case that failed drawn roundings, or its worst case
/// in fp32, which tf32 operands exceed.
[[nodiscard]] bool is_about_the_contract(const Resolved& r, const Judgement& j);

/// Tries the contracts that are one change away from the case's and, if none passes, those that are two
/// changes away. They are tried in the order of their twins' distance from the outputs, and the nearest are
/// judged as the case is. `run` has the inputs and outputs of a run of the case. Ends after `seconds`, or
/// when `stop` returns true.
[[nodiscard]] Neighbours neighbours_of(const Resolved& r, const Trace& run, double seconds,
                                       const std::function<bool()>& stop = {});

}  // namespace samestate
