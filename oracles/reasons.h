#pragma once

#include <string_view>

namespace samestate {

/// The reason for two runs that agree wherever one of them is finite and are not finite elsewhere: a failure
/// of the kernel, and not of the law that compares them.
inline constexpr std::string_view kBothNotFinite =
    "both runs are not finite there: the law says nothing; see the same case without law=";

/// The reason for a run that is judged against nothing, because its known errors are larger than any output.
inline constexpr std::string_view kOverflowsOnTheWay =
    "the worst case of what this contract makes on the way exceeds fp32";

/// Reasons that a law gives for final states begin with this; their rows and columns are not tokens.
inline constexpr std::string_view kFinalState = "final state: ";

/// Judgement::gate of a vacuous run for which the data leave nothing but zeros to expect (no tokens, a scale
/// of 0, gates that are shut): a kernel that writes zeros passes as well as one that computes. A kernel that
/// writes anything else still fails, so such a case is worth trying, but it says nothing about how wide the
/// bounds are.
inline constexpr std::string_view kZeroGate = "zero";

/// Part of the reason for a kernel that is nearer to the equations than the twin of its contract.
inline constexpr std::string_view kMoreExact =
    "more exact than the contract, a rounding that it declares is missing";

/// Judgement::gate of a run that is vacuous because a row is in doubt (oracles/systems/in_doubt.h) and
/// nothing could be drawn; the parts of the run that pass do not outweigh it.
inline constexpr std::string_view kInDoubtGate = "in doubt";

/// Follows the reason of a stage that fails in a layer that passes as a whole.
inline constexpr std::string_view kOnlyInStage = "; the whole layer shows nothing of it";

/// Follows the reason of a layer that fails as a whole while the judged stages pass: either another stage is
/// wrong, or the kernel did not continue with the values that it handed out.
inline constexpr std::string_view kInNoStage =
    "; every stage that was judged is right from what the kernel handed to it";

/// Follows the reason of a failure that was not repeated in a process of its own, because enough other
/// failures of the run were; the number of cases that its process had run before follows, then kNotRunAgain.
inline constexpr std::string_view kSeenAfter = "seen in a process that had run ";
inline constexpr std::string_view kNotRunAgain = " case(s) before it; not run again";

/// Precedes the reason of a failure that only other cases bring about: "only after N other case(s) ..", which
/// ends in this.
inline constexpr std::string_view kOnlyAfter = "only after ";
inline constexpr std::string_view kKeepsSomething = "The kernel keeps something from call to call: ";

/// In what a failure looks like, before the name of a known mutant that gives the same values.
inline constexpr std::string_view kOfMutant = " (mutant ";

/// Follows the reason of a failure that was repeated with another tuner setting; the setting and the result
/// follow.
inline constexpr std::string_view kWithOtherTuning = "with --autotune ";

}  // namespace samestate
