#pragma once

#include "fixtures/run_file.h"
#include "harness/run/run_case.h"
#include "oracles/systems/family.h"

namespace samestate {

class TensorSystem;

/// A run as a file: inputs and outputs of `trace` under the record's case line and kernel. Throws Error for a
/// case with a law: such a run has no single set of outputs; for one of the recurrent family without tokens,
/// and where the kernel returned nothing.
[[nodiscard]] RunFile run_file_of(const Record& record, const Trace& trace);

/// The inputs of a case without a law, and outputs of NaN, which nobody has written yet.
[[nodiscard]] RunFile unwritten_run(const Resolved& r, const std::string& kernel);

/// The tensors that a run file of the case holds, in the order of its system's signature; cu_seqlens [N + 1] last where
/// it is packed.
[[nodiscard]] std::vector<NamedShape> tensors_in_file(const Resolved& r);

/// What read_run_file asks of a case line: the same where a file holds just those, else nothing. Throws Error where
/// the line is no case.
[[nodiscard]] std::vector<NamedShape> named_shapes(const std::string& case_line);

/// Judges the tensors of a run made elsewhere against oracle and bounds, as its case line's system, form,
/// chunk and contract ask. Throws Error if the line is no case, where the shapes of the line and of the
/// tensors disagree, or where an input is not finite or not representable in the contract's input format. Of
/// named tensors under form=decode the file must say which form was called. The policy is kFilePolicy. `trace`: for explain().
[[nodiscard]] Record judge_run_file(const RunFile& file, Trace* trace = nullptr);

/// The same by kind of system (System::judge).
[[nodiscard]] Judgement judge_family_file(const Resolved& r, const Family& family, const RunFile& file,
                                          const JudgePolicy& policy, Trace* trace);
[[nodiscard]] Judgement judge_tensor_file(const Resolved& r, const TensorSystem& system, const RunFile& file,
                                          const JudgePolicy& policy, Trace* trace);

}  // namespace samestate
