#pragma once

#include <cstdint>
#include <functional>

#include "oracles/systems/operator_twin.h"

/// How one sequence of an operator is judged by all gates together (bounds_operators.md 5).
namespace samestate {

/// Which of the dearer gates may be asked of a sequence, given what the gates before it found.
struct GatesAsked {
  std::function<bool(Verdict)> twin;
  std::function<bool(Verdict)> drawn;
  /// Of a run without rounding points that is in doubt (in_doubt.h): whether this share of its sequence may be drawn; null: what
  /// `drawn` says of a pass.
  std::function<bool(double share)> in_doubt = {};
};

/// What decided `from` and where, without its verdict and reason.
void take_numbers(Judgement& to, const Judgement& from);

/// One sequence against its worst case; where it has rounding points against its twin; and where that leaves
/// something open, against drawn roundings. Without rounding points a row in doubt whose worst case is above kWideTolerance
/// of its size passes by drawn roundings alone: where they may not be asked, or do not know it, the run is vacuous; the reason of
/// a pass names outputs that are so wide. `seed`: of the draws. `policy`: how far each gate looks; `asked` says what is left of
/// its work for this sequence.
[[nodiscard]] Judgement judge_sequence(const TwinSubject& of, const Tensors<double>& actual,
                                       std::uint64_t seed, const JudgePolicy& policy,
                                       const GatesAsked& asked);

}  // namespace samestate
