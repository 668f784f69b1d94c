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
};

/// What decided `from` and where, without its verdict and reason.
void take_numbers(Judgement& to, const Judgement& from);

/// One sequence against its worst case; where it has rounding points against its twin; and where that leaves
/// something open, against drawn roundings. `seed`: of the draws.
[[nodiscard]] Judgement judge_sequence(const TwinSubject& of, const Tensors<double>& actual,
                                       std::uint64_t seed, const GatesAsked& asked);

}  // namespace samestate
