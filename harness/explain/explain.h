#pragma once

#include <string>
#include <vector>

#include "harness/run/run_case.h"

namespace samestate {

/// A value of the kernel beside the oracle's.
struct ExplainedValue {
  std::string place;  ///< as "o: sequence 0, head 1, token 16, channel 3"
  double expected = 0.0;
  double actual = 0.0;
};

/// A number of the bound at the worst place, as ("lambda", 5).
struct BoundTerm {
  std::string name;
  double value = 0.0;
};

/// A contract under which just the outputs of a failing run pass.
struct ContractHint {
  std::string contract;
  std::string text;  ///< as a pattern: "the same outputs pass under contract bf16 .."
};

/// What a person wants to know of a run that differs.
struct Explanation {
  std::vector<std::string> compared;  ///< of a law: the two runs, and which of them keeps to the equations
  std::vector<std::string> program;   ///< of the law serving: the calls up to the one that went wrong
  std::vector<std::string> differs;   ///< where: tensors, sequences, heads, tokens, chunks, channels
  std::vector<std::string> patterns;  ///< what it looks like, of the faults that are known by name
  /// Contracts whose roundings the errors look like. One run is no proof: to be tried on more before they are said.
  std::vector<ContractHint> contracts;
  std::vector<ExplainedValue> values;  ///< around the worst place
  std::vector<BoundTerm> terms;        ///< of the row's bound there (BOUNDS 7)
  std::vector<std::string> tried;      ///< how much was run to find the patterns, and which limit ended that
  std::string expected = "expected";   ///< what the first number of `values` is called
  std::string actual = "actual";
};

/// Explains a run of which run_case left `trace`: compares with the oracle, looks at the set of wrong places,
/// and evaluates the equation with one mistake at a time (another head map, no scale, a transposed state, a
/// state that is lost between chunks ...) to see which one gives the kernel's values. Of a law, the two runs
/// that disagree most are compared with each other, and each with the equations. Empty where nothing differs
/// beyond the bound or there are no outputs (a crash).
[[nodiscard]] Explanation explain(const Resolved& r, const Trace& trace);

/// Share of the difference that a mistake must account for to be named.
inline constexpr double kExplainedShare = 0.95;

}  // namespace samestate
