#pragma once

#include "harness/run/kernel_table.h"
#include "oracles/batch.h"

/// Calls of the recurrent family on a batch in the form that its oracles and laws use.
namespace samestate {

/// The calls along `path` on a batch, which must outlive the result: its tensors, and the settings of every
/// call.
[[nodiscard]] CallLoop family_loop(const Batch& batch, const Path& path);

/// Runs `batch` along `path`, with one kernel call per segment (or per token) and the state carried in place
/// from call to call (run_calls). Throws Unavailable and Trespass.
[[nodiscard]] Outputs run_kernel(const KernelChoice& kernels, const Batch& batch, const Path& path,
                                 const Contract& contract, const RunOptions& options);

/// The same on the twin: the CPU source with the contract's accumulator emulated (BOUNDS 10.3); with
/// `reordered` the other accumulator, so that only its sums differ. It reads what the kernel was given
/// (BatchShape::given); a norm other than that of GDN-32 is applied before the call if the contract
/// multiplies normalised values.
[[nodiscard]] Outputs run_on_twin(std::string_view system, const Batch& batch, const Path& path,
                                  const Contract& contract, bool reordered = false);

/// The same on the CPU kernel, whose sums are in fp32 from the first term on, an order that no twin has.
[[nodiscard]] Outputs run_on_cpu(std::string_view system, const Batch& batch, const Path& path,
                                 const Contract& contract);

}  // namespace samestate
