#pragma once

#include "harness/cases/resolved.h"
#include "harness/run/law_subject.h"
#include "harness/run/piece_lengths.h"
#include "oracles/judge_policy.h"

namespace samestate {

/// Sizes and settings of the batch of a case of the recurrent family.
[[nodiscard]] BatchShape batch_shape_of(const Resolved& r);

/// Its inputs, computed by `threads` threads.
[[nodiscard]] Batch batch_of(const Resolved& r, const Family& family, int threads = 1);

/// Judges the outputs of a case in the order of DESIGN 5: exact regimes bit for bit; otherwise the oracle's
/// gates, then the twin for low-precision contracts; if the bound of the whole run is vacuous, segment by
/// segment from the kernel's own state (BOUNDS 10.1), for which `rerun` runs the kernel again with numbers of
/// tokens per segment that `takes` accepts. Under a policy without JudgePolicy::reruns such a run stays
/// vacuous, and `rerun` may be empty. The case's law is not read.
[[nodiscard]] Judgement judge_batch(const Resolved& r, const Family& family, const Batch& batch,
                                    const Outputs& outputs, const JudgePolicy& policy, const Runner& rerun,
                                    const TakesTokens& takes = {});

}  // namespace samestate
