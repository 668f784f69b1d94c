#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

/// Verdicts and findings, as plain data.
namespace samestate {

/// A vacuous run proves nothing and never counts as a pass; a skipped one could not run here (no device).
enum class Verdict { pass, fail, vacuous, unsupported, skipped, crash, timeout, flaky };

/// Every verdict, in the order of the enumeration.
inline constexpr std::array kVerdicts = {Verdict::pass,        Verdict::fail,    Verdict::vacuous,
                                         Verdict::unsupported, Verdict::skipped, Verdict::crash,
                                         Verdict::timeout,     Verdict::flaky};

[[nodiscard]] std::string_view name_of(Verdict verdict);

/// True if the ratio means something.
[[nodiscard]] constexpr bool is_judged(Verdict verdict) {
  return verdict == Verdict::pass || verdict == Verdict::fail || verdict == Verdict::flaky;
}

/// True for a defect that occurs every time: searches keep and shrink it, and it kills a mutant.
[[nodiscard]] constexpr bool is_repeatable_failure(Verdict verdict) {
  return verdict == Verdict::fail || verdict == Verdict::crash || verdict == Verdict::timeout;
}

/// True for what a reader must look at: every report and exit code counts these, including flaky ones.
[[nodiscard]] constexpr bool is_failure(Verdict verdict) {
  return is_repeatable_failure(verdict) || verdict == Verdict::flaky;
}

/// Where a value was found; -1 if the dimension does not apply. `channel` is a column of o (or of the state;
/// `token` is then a row of it).
struct Location {
  std::int64_t sequence = -1;
  std::int64_t head = -1;
  std::int64_t token = -1;
  std::int64_t channel = -1;
};

/// The judgement of one stage of a layer, from the values that the kernel itself handed to it.
struct StageFinding {
  std::string stage;
  Verdict verdict = Verdict::vacuous;
  double ratio = 0.0;
  std::string gate;  ///< the gate that decided, as Judgement::gate
};

/// The outcome of one comparison, with the numbers of the gate that decided it.
struct Judgement {
  Verdict verdict = Verdict::vacuous;
  std::string gate;  ///< the gate that decided: exact, range, row, head, state, hard, twin, law, ... (BOUNDS
                     ///< 7)
  double ratio = 0.0;  ///< error / bound, worst over all gates; > 1 fails
  double error = 0.0;  ///< the error of the worst row (2-norm), head (RMS) or state (Frobenius norm)
  double bound = 0.0;  ///< the tolerance for `error`
  Location worst;
  double expected = std::numeric_limits<double>::quiet_NaN();  ///< the oracle's value at the worst element
  double actual = std::numeric_limits<double>::quiet_NaN();    ///< the kernel's value there
  double row_ratio = 0.0;                                      ///< for each gate, the worst over heads
  double head_ratio = 0.0;
  double state_ratio = 0.0;
  double hard_ratio = 0.0;     ///< against the worst-case bound: > 1 proves that the error is not rounding
  double twin_ratio = 0.0;     ///< against the twin; 0 if there was none
  double sampled_ratio = 0.0;  ///< against drawn roundings; 0 if none were drawn
  double median_ratio = 0.0;   ///< over all rows
  double relative_rms = 0.0;   ///< RMS of the error of o over RMS of o
  /// Rows of o that were compared; without any, only a state that is not all zero can pass (T = 0).
  std::int64_t rows = 0;
  std::int64_t held = 0;  ///< heads (for an operator, sequences) that were compared with their tolerance; 0
                          ///< means all
  std::int64_t held_of =
      0;  ///< out of this many, all of which were evaluated in float64 (harness/run/chosen_heads.h)
  std::string held_which;  ///< ChosenHeads::text
  /// For a layer that handed out the tensors between its stages: each stage that was judged, in order.
  std::vector<StageFinding> stages;
  std::string stage;  ///< the stage that the numbers above belong to; empty if they belong to the whole layer
  std::string reason;  ///< one line for a person: why it failed, or is vacuous, unsupported or skipped
};

}  // namespace samestate
