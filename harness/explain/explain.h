#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// A value of the kernel next to the oracle's.
struct ExplainedValue {
  std::string place;  ///< for example "o: sequence 0, head 1, token 16, channel 3"
  double expected = 0.0;
  double actual = 0.0;
};

/// A number of the bound at the worst place, for example ("lambda", 5).
struct BoundTerm {
  std::string name;
  double value = 0.0;
};

/// A contract under which the same outputs of a failing run pass.
struct ContractHint {
  std::string contract;
  std::string text;  ///< as a pattern: "the same outputs pass under contract bf16 .."
};

/// The explanation of a run that differs, for a person.
struct Explanation {
  std::vector<std::string> compared;  ///< for a law: the two runs, and which of them follows the equations
  std::vector<std::string> program;   ///< for the law serving: the calls up to the one that went wrong
  std::vector<std::string> differs;   ///< where it differs: tensors, sequences, heads, tokens, chunks,
                                      ///< channels
  std::vector<std::string> patterns;  ///< which known faults it looks like
  /// Contracts whose roundings the errors look like. One run proves nothing, so they are tried on more cases
  /// before they are reported.
  std::vector<ContractHint> contracts;
  std::vector<ExplainedValue> values;  ///< around the worst place
  std::vector<BoundTerm> terms;        ///< the terms of the row's bound at that place (BOUNDS 7)
  std::vector<std::string> tried;      ///< how much was run to find the patterns, and which limit ended that
  std::string expected = "expected";   ///< the name of the first number of `values`
  std::string actual = "actual";
};

/// Explains a run for which run_case left `trace`: compares with the oracle, looks at the set of wrong
/// places, and evaluates the equation with one mistake at a time (another head map, no scale, a transposed
/// state, a state that is lost between chunks ...) to see which one gives the kernel's values. For a law, the
/// two runs that disagree most are compared with each other and with the equations. Empty if nothing differs
/// beyond the bound, or there are no outputs (a crash).
[[nodiscard]] Explanation explain(const Resolved& r, const Trace& trace);

/// One run of a law, as the case and the trace that it would be alone, without the law.
struct RunAlone {
  Resolved r;
  Trace trace;
};

/// Returns the run that does not follow the equations in the comparison that differs most, so that a failure of a law can
/// be compared with known mistakes as any other; `trace` is that of run_case. Empty if the case has no law, if all runs
/// follow the equations, and for packed runs, runs of several calls and systems of named tensors.
[[nodiscard]] std::optional<RunAlone> wrong_run(const Resolved& r, const Trace& trace);

/// The share of the difference that a mistake must account for to be named.
inline constexpr double kExplainedShare = 0.95;

}  // namespace samestate
