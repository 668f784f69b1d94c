#pragma once

#include <string_view>

namespace samestate {

/// Of two runs that agree wherever one of them is finite, and are not finite elsewhere: a failure, of the kernel and
/// not of the law that compares them.
inline constexpr std::string_view kBothNotFinite =
    "both runs are not finite there: the law says nothing; see the same case without law=";

/// Of a run behind whose known errors, which are beyond any output, no number is left.
inline constexpr std::string_view kOverflowsOnTheWay =
    "the worst case of what this contract makes on the way exceeds fp32";

/// What a law says of final states begins with it; their rows and columns are no tokens.
inline constexpr std::string_view kFinalState = "final state: ";

/// Judgement::gate of a vacuous run of which nothing but zeros is expected, by its data (no tokens, a scale of 0, gates
/// that are shut): a kernel that writes zeros passes as one that computes does. What else it writes still fails, so
/// that such a case is tried for a reason, and says nothing about how wide the bounds are.
inline constexpr std::string_view kZeroGate = "zero";

/// In the reason of a kernel that is nearer to the equations than the twin of its contract.
inline constexpr std::string_view kMoreExact =
    "more exact than the contract, a rounding that it declares is missing";

/// Judgement::gate of a run that is vacuous since a row is in doubt (oracles/systems/in_doubt.h) and nothing could be drawn: it
/// is not outweighed by what else of the run passes.
inline constexpr std::string_view kInDoubtGate = "in doubt";

/// Behind the reason of a stage that fails in a layer that passes as a whole.
inline constexpr std::string_view kOnlyInStage = "; the whole layer shows nothing of it";

/// Behind that of a layer that fails as a whole while the stages that were judged pass: another is wrong, or what the kernel
/// hands out is not what it went on with.
inline constexpr std::string_view kInNoStage =
    "; every stage that was judged is right from what the kernel handed to it";

/// Behind the reason of a failure that no process of its own repeated, since enough others of the run were; the number of
/// cases that its process had run before it follows, then kNotRunAgain.
inline constexpr std::string_view kSeenAfter = "seen in a process that had run ";
inline constexpr std::string_view kNotRunAgain = " case(s) before it; not run again";

/// Before the reason of a failure that only other cases bring about stands "only after N other case(s) ..", which ends so.
inline constexpr std::string_view kOnlyAfter = "only after ";
inline constexpr std::string_view kKeepsSomething = "The kernel keeps something from call to call: ";

/// In what a failure looks like, before the name of a known mutant that gives the same values.
inline constexpr std::string_view kOfMutant = " (mutant ";

/// Behind the reason of a failure that was repeated with another setting of its tuners: the setting and what came follow.
inline constexpr std::string_view kWithOtherTuning = "with --autotune ";

}  // namespace samestate
