#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>

#include "optimized/kernel.h"

/// How long a call takes on the device, without the way of its tensors there and back.
namespace samestate::cuda {

/// Enqueues one thing on the tensors of copy [0, copies).
using OnCopy = std::function<void(int copy, cudaStream_t stream)>;

struct TimedCalls {
  Timing timing;
  int last_copy = 0;  ///< whose outputs the last timed call wrote
};

/// Returns how many sets of tensors of `bytes` each are needed so that a call finds nothing of its own in the
/// cache: together four times the L2. It is at least 1, and no more than fit the free memory in addition to
/// the first, which exists already.
[[nodiscard]] int copies_beyond_cache(std::size_t bytes, const TimingRequest& request);

/// Times `call`, which enqueues one evaluation, the copies in turn. A call shorter than 0.2 ms is captured
/// with others in a graph, whose replay is a sample: launches from the host would be what is measured. Events
/// stand between the samples, and the host runs ahead of them. `poison` makes NaN of a copy's outputs, before
/// the last sample. Throws Error if the runtime reports a failure.
[[nodiscard]] TimedCalls measure(int copies, const TimingRequest& request, const OnCopy& call,
                                 const OnCopy& poison);

}  // namespace samestate::cuda
