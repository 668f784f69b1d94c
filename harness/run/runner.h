#pragma once

#include <string_view>

#include "harness/run/guarded_tensor.h"
#include "optimized/kernel.h"
#include "oracles/laws/law.h"
#include "reference/error.h"

namespace samestate {

/// The kernel does not do this call, or there is no device for it: a verdict, which run_case makes of it.
class Unavailable : public Error {
 public:
  explicit Unavailable(Outcome outcome) : Error(outcome.reason), kind(outcome.kind) {}
  Outcome::Kind kind;
};

/// The kernel touched memory that is not its to write: its inputs, or elements around its outputs.
class Trespass : public Error {
 public:
  using Error::Error;
};

/// The kernels that evaluate the segments of a path: a chunked one, a recurrent one, or both.
struct KernelPair {
  const Kernel* chunked = nullptr;
  const Kernel* recurrent = nullptr;
};

struct RunOptions {
  Layout layout = Layout::dense;
  int threads = 1;
};

/// Runs `batch` along `path`, one kernel call a segment (or a token), the state carried in place from call to
/// call. Outputs are stale (harness/run/guard.h) before the first call; inputs, padding and guard elements
/// around every buffer are checked after the last. Throws Unavailable and Trespass.
[[nodiscard]] Outputs run_kernel(const KernelPair& kernels, const Batch& batch, const Path& path,
                                 const Contract& contract, const RunOptions& options);

/// The same on the twin: the CPU source with the contract's accumulator emulated (BOUNDS 10.3); `reordered`:
/// with the other one, so that its sums alone differ.
[[nodiscard]] Outputs run_on_twin(std::string_view system, const Batch& batch, const Path& path,
                                  const Contract& contract, bool reordered = false);

}  // namespace samestate
