#pragma once

#include "fixtures/run_file.h"
#include "harness/run/run_case.h"

namespace samestate {

/// Turns a run into a file: inputs and outputs of `trace` under the record's case line and kernel. Throws
/// Error for a case with a law, whose runs have no single set of outputs, and if the kernel returned nothing.
[[nodiscard]] RunFile run_file_of(const Record& record, const Trace& trace);

/// The inverse: what the file contains, as a run here would have left it, without what it was judged by.
/// Throws Error if its tensors are not those of the case, or contain a number that fp32 cannot represent. For
/// named tensors under form=decode and form=packed the file must say which form was called.
[[nodiscard]] Trace run_in_file(const Resolved& r, const RunFile& file);

/// Returns a run that has not been made yet: the inputs of a case without a law, and outputs of NaN. `native`
/// is the form of the kernel.
[[nodiscard]] Trace unwritten_run(const Resolved& r, std::string native);

/// Returns the tensors that a run file of the case contains, in the order of its system's signature, then
/// cu_seqlens [N + 1] if the case is packed, then taps.
[[nodiscard]] std::vector<NamedShape> tensors_in_file(const Resolved& r);

/// The same for a case line, for the checks of files (TensorsOfCase). Throws Error if the line is not a case.
[[nodiscard]] std::vector<NamedShape> named_shapes(const std::string& case_line);

/// Judges a run whose kernel is not available, by its case's system, form, chunk and contract, under
/// kFilePolicy. Throws Error if an input is not finite or not representable in the contract's input format.
/// `oracles` receives Trace::oracles for explain(), and may be null.
[[nodiscard]] Judgement judge_run(const Resolved& r, const Trace& run,
                                  std::vector<OperatorOracle>* oracles = nullptr);

/// The same for a file. Throws as run_in_file does, and if the line is not a case. `trace` is for explain().
[[nodiscard]] Record judge_run_file(const RunFile& file, Trace* trace = nullptr);

}  // namespace samestate
