#pragma once

#include <cstdint>
#include <functional>

#include "oracles/systems/operator_twin.h"

/// How all gates together judge one sequence of an operator (bounds_operators.md 5).
namespace samestate {

/// Which of the more expensive gates may run on a sequence, given the findings of the gates before it.
struct GatesAsked {
  std::function<bool(Verdict)> twin;
  std::function<bool(Verdict)> drawn;
  /// For a run without rounding points that is in doubt (in_doubt.h): says if this share of its sequence may
  /// be drawn. If null, the answer of `drawn` for a pass is used.
  std::function<bool(double share)> in_doubt = {};
};

/// Copies the numbers and the place of the deciding gate from `from`, without its verdict and reason.
void take_numbers(Judgement& to, const Judgement& from);

/// Judges one sequence against its worst case; if it has rounding points, against its twin; and if that
/// leaves something open, against drawn roundings. Without rounding points, a row in doubt whose worst case
/// is above kWideTolerance of its size can pass only by drawn roundings: if these may not be drawn, or do not
/// decide it, the run is vacuous. The reason of a pass names outputs that are this wide. `seed` is that of
/// the draws. `policy` says how far each gate looks; `asked` says how much of its work is left for this
/// sequence.
[[nodiscard]] Judgement judge_sequence(const TwinSubject& of, const Tensors<double>& actual,
                                       std::uint64_t seed, const JudgePolicy& policy,
                                       const GatesAsked& asked);

}  // namespace samestate
