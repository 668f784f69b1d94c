#pragma once

#include <cstdint>
#include <string>

#include "harness/cases/resolved.h"
#include "harness/records/timing.h"

/// The best rates of the machine, measured in the same run as the times that are compared with them.
namespace samestate {

struct Ceilings {
  double copy = 0.0;  ///< bytes per second, read and written; 0 if not measured
  double bf16 = 0.0;  ///< operations per second of a large matrix product; 0 if not measured
  double fp32 = 0.0;
  std::string note;  ///< how they were measured, and why one was not
};

/// For the CPU and a case that moves `bytes`: repeatedly copies that many bytes, read and written, so that
/// they are in the cache that would hold the case's tensors between calls; on one thread or on `threads`,
/// whichever is faster. It measures no product.
[[nodiscard]] Ceilings host_ceilings(std::int64_t bytes, int threads);

/// The bytes that every evaluation of the case must move (System::cost).
[[nodiscard]] std::int64_t bytes_of_call(const Resolved& r, bool on_device);

/// For the accelerator that this build's kernels run on; if there is none, nothing is measured, and the
/// reason is given.
[[nodiscard]] Ceilings device_ceilings();

/// Sets bytes, operations, rates and lower bounds of `timed` for its case. Operations count at the bf16 rate
/// if 16-bit operands are multiplied, and at the fp32 rate if fp32 ones are and in the recurrent form; they
/// give no lower bound under tf32, nor if the system does not count them.
void add_floor(TimedCase& timed, const Resolved& r, const Ceilings& ceilings, bool on_device);

}  // namespace samestate
