#pragma once

#include "fixtures/run_file.h"
#include "fuzz/run_case.h"

namespace samestate {

/// A run as a file: inputs and outputs of `trace` under the record's case line and kernel. Throws Error for a
/// case with a law or without tokens: such a run has no single set of outputs.
[[nodiscard]] RunFile run_file_of(const Record& record, const Trace& trace);

/// Judges the tensors of a run made elsewhere against oracle and bounds, as its case line's system, form,
/// chunk and contract ask. Throws Error where the line is no case, where the shapes of the line and of the
/// tensors disagree, or where an input is not finite or not representable in the contract's input format.
[[nodiscard]] Record judge_run_file(const RunFile& file);

}  // namespace samestate
