#pragma once

#include <cstdint>
#include <string>

#include "harness/cases/resolved.h"
#include "harness/records/timing.h"

/// What the machine can do at best, measured in the run that is compared with it.
namespace samestate {

struct Ceilings {
  double copy = 0.0;  ///< bytes a second, read and written; 0: not measured
  double bf16 = 0.0;  ///< operations a second of a large matrix product; 0: not measured
  double fp32 = 0.0;
  std::string note;  ///< how, and why one was not
};

/// Of the processor, for a case that moves `bytes`: a copy of so many, read and written, again and again, so
/// that they are in the cache that would hold the case's tensors between calls; on one thread or on
/// `threads`, whichever is faster. No product.
[[nodiscard]] Ceilings host_ceilings(std::int64_t bytes, int threads);

/// What every evaluation of the case must move (System::cost).
[[nodiscard]] std::int64_t bytes_of_call(const Resolved& r, bool on_device);

/// Of the accelerator that this build's kernels run on; nothing measured, and the reason, where there is
/// none.
[[nodiscard]] Ceilings device_ceilings();

/// Fills bytes, operations, rates and floors of `timed` for its case. Operations count at the rate of bf16
/// where 16-bit operands are multiplied, of fp32 where fp32 ones are and in the recurrent form; there is no
/// floor of them under tf32, nor where the system does not count them.
void add_floor(TimedCase& timed, const Resolved& r, const Ceilings& ceilings, bool on_device);

}  // namespace samestate
