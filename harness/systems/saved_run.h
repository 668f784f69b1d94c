#pragma once

#include "fixtures/run_file.h"
#include "harness/run/run_case.h"

namespace samestate {

/// A run as a file: inputs and outputs of `trace` under the record's case line and kernel. Throws Error for a case with a law,
/// whose runs have no single set of outputs, and where the kernel returned nothing.
[[nodiscard]] RunFile run_file_of(const Record& record, const Trace& trace);

/// The same the other way: what the file holds as a run here would have left it, but for what it was judged by. Throws Error where
/// its tensors are not those of the case, or hold a number that fp32 does not. Of named tensors under form=decode and form=packed
/// the file must say which form was called.
[[nodiscard]] Trace run_in_file(const Resolved& r, const RunFile& file);

/// A run that nobody has made yet: the inputs of a case without a law, and outputs of NaN. `native`: form of the kernel.
[[nodiscard]] Trace unwritten_run(const Resolved& r, std::string native);

/// The tensors that a run file of the case holds, in the order of its system's signature; cu_seqlens [N + 1] where it is packed,
/// then taps.
[[nodiscard]] std::vector<NamedShape> tensors_in_file(const Resolved& r);

/// The same by case line, as files are checked (TensorsOfCase). Throws Error where the line is no case.
[[nodiscard]] std::vector<NamedShape> named_shapes(const std::string& case_line);

/// Judges a run whose kernel is not there, as its case's system, form, chunk and contract ask, under kFilePolicy. Throws Error
/// where an input is not finite or not representable in the contract's input format. `oracles`: Trace::oracles, for explain();
/// may be null.
[[nodiscard]] Judgement judge_run(const Resolved& r, const Trace& run,
                                  std::vector<OperatorOracle>* oracles = nullptr);

/// The same of a file. Throws as run_in_file does too, and where the line is no case. `trace`: for explain().
[[nodiscard]] Record judge_run_file(const RunFile& file, Trace* trace = nullptr);

}  // namespace samestate
