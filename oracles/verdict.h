#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// What was found, as plain data.
namespace samestate {

/// A vacuous run proves nothing and is never a pass; a skipped one could not run here (no device).
enum class Verdict { pass, fail, vacuous, unsupported, skipped, crash, timeout, flaky };

/// Every one, in the order of the enumeration.
inline constexpr std::array kVerdicts = {Verdict::pass,        Verdict::fail,    Verdict::vacuous,
                                         Verdict::unsupported, Verdict::skipped, Verdict::crash,
                                         Verdict::timeout,     Verdict::flaky};

[[nodiscard]] std::string_view name_of(Verdict verdict);

/// The ratio means something.
[[nodiscard]] constexpr bool is_judged(Verdict verdict) {
  return verdict == Verdict::pass || verdict == Verdict::fail || verdict == Verdict::flaky;
}

/// A defect that showed itself each time: what a search keeps and shrinks, and what kills a mutant.
[[nodiscard]] constexpr bool is_repeatable_failure(Verdict verdict) {
  return verdict == Verdict::fail || verdict == Verdict::crash || verdict == Verdict::timeout;
}

/// What a reader must look at: every report and exit code counts these, flaky ones included.
[[nodiscard]] constexpr bool is_failure(Verdict verdict) {
  return is_repeatable_failure(verdict) || verdict == Verdict::flaky;
}

/// Where a figure was taken; -1 where the dimension does not apply. `channel` is a column of o (or of the
/// state, with `token` then a row of it).
struct Location {
  std::int64_t sequence = -1;
  std::int64_t head = -1;
  std::int64_t token = -1;
  std::int64_t channel = -1;
};

/// How one stage of a layer was judged, from what the kernel itself handed to it.
struct StageFinding {
  std::string stage;
  Verdict verdict = Verdict::vacuous;
  double ratio = 0.0;
  std::string gate;  ///< that decided, as Judgement::gate
};

/// The outcome of one comparison, with the numbers of the gate that decided it.
struct Judgement {
  Verdict verdict = Verdict::vacuous;
  std::string gate;    ///< what decided: exact, range, row, head, state, hard, twin, law, ... (BOUNDS 7)
  double ratio = 0.0;  ///< error / bound, worst over all gates; > 1 fails
  double error = 0.0;  ///< of the worst row (2-norm), head (RMS) or state (Frobenius norm)
  double bound = 0.0;  ///< the tolerance that `error` was held against
  Location worst;
  double expected = std::numeric_limits<double>::quiet_NaN();  ///< the oracle's value at the worst element
  double actual = std::numeric_limits<double>::quiet_NaN();    ///< the kernel's value there
  double row_ratio = 0.0;                                      ///< per gate, worst over heads
  double head_ratio = 0.0;
  double state_ratio = 0.0;
  double hard_ratio = 0.0;     ///< against the worst-case bound: > 1 is a proof that it is not rounding
  double twin_ratio = 0.0;     ///< against the twin; 0 where there was none
  double sampled_ratio = 0.0;  ///< against drawn roundings; 0 where none were drawn
  double median_ratio = 0.0;   ///< over rows
  double relative_rms = 0.0;   ///< RMS of the error of o over RMS of o
  /// Rows of o compared; without one, only a state that is not all zero can pass (T = 0).
  std::int64_t rows = 0;
  std::int64_t held = 0;  ///< heads (of an operator, sequences) that were held to their tolerance; 0: all
  std::int64_t held_of =
      0;  ///< of so many, all of which were evaluated in float64 (harness/run/chosen_heads.h)
  std::string held_which;  ///< ChosenHeads::text
  /// Of a layer that handed out what lies between its stages: each of those that were judged, in order.
  std::vector<StageFinding> stages;
  std::string stage;   ///< that the numbers above are of; empty: of the whole
  std::string reason;  ///< one line for a person: why it failed, is vacuous, unsupported or skipped
};

}  // namespace samestate
