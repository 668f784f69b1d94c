#pragma once

#include "harness/run/kernel_table.h"
#include "oracles/batch.h"

/// Calls of the recurrent family on a batch, as its oracles and laws hold it.
namespace samestate {

/// The calls along `path` on a batch, which lives as long: its tensors, and what every call of it has.
[[nodiscard]] CallLoop family_loop(const Batch& batch, const Path& path);

/// Runs `batch` along `path`, one kernel call a segment (or a token), the state carried in place from call to
/// call (run_calls). Throws Unavailable and Trespass.
[[nodiscard]] Outputs run_kernel(const KernelChoice& kernels, const Batch& batch, const Path& path,
                                 const Contract& contract, const RunOptions& options);

/// The same on the twin: the CPU source with the contract's accumulator emulated (BOUNDS 10.3); `reordered`:
/// with the other one, so that its sums alone differ. It reads what the kernel was given (BatchShape::given); a norm that
/// is not GDN-32's is taken before the call, where the contract multiplies what is normalised.
[[nodiscard]] Outputs run_on_twin(std::string_view system, const Batch& batch, const Path& path,
                                  const Contract& contract, bool reordered = false);

/// The same on the CPU kernel, whose sums are in fp32 from the first term on: an order that no twin has.
[[nodiscard]] Outputs run_on_cpu(std::string_view system, const Batch& batch, const Path& path,
                                 const Contract& contract);

}  // namespace samestate
