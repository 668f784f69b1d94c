#pragma once

#include "harness/cases/case_line.h"
#include "oracles/laws/law.h"

namespace samestate {

/// Sizes and settings that a case's tensors have.
[[nodiscard]] BatchShape batch_shape_of(const Case& c);

/// The contract of the case's kernel call: the named one, or with_l2norm of it.
[[nodiscard]] Contract contract_of(const Case& c);

/// Whether no segment of the case is chunked.
[[nodiscard]] bool runs_recurrent_only(const Case& c);

/// How a case evaluates a dense sequence, or one packed sequence, of `tokens`.
[[nodiscard]] Path path_of(const Case& c, std::int64_t tokens);

/// Judges the outputs of a case in the order of DESIGN 5: exact regimes bit for bit; else the oracle's gates,
/// then the twin for low-precision contracts; where the bound of a whole run is vacuous, segment by segment
/// from the kernel's own state (BOUNDS 10.1), for which `rerun` runs the kernel again. Without `rerun` such a
/// run stays vacuous. The case's law is not read.
[[nodiscard]] Judgement judge_batch(const Case& c, const Batch& batch, const Outputs& outputs,
                                    const Runner& rerun);

}  // namespace samestate
