#pragma once

#include <optional>
#include <string>
#include <vector>

#include "optimized/kernel.h"

namespace samestate {

/// The kernels of this folder: recurrent (decoding is T = 1, with the state in place) and chunked (chunk
/// 1..64), for all four systems, contracts fp32 and bf16, dk up to 256. Without a device they return Outcome
/// no_device. They throw Error for inconsistent views, and if the CUDA runtime reports a failure.
[[nodiscard]] std::vector<Kernel> cuda_kernels();

/// The device that the kernels run on, for evidence; nullopt if there is none.
struct DeviceInfo {
  std::string name;
  std::string driver;   ///< CUDA version that the driver supports, for example 13.0
  std::string runtime;  ///< CUDA version that the kernels were built with
};
[[nodiscard]] std::optional<DeviceInfo> cuda_device();

/// The best rates of the device, measured now: nothing runs faster than its bytes divided by `copy`, or its
/// operations divided by the rate of a product.
struct DeviceCeilings {
  double copy = 0.0;  ///< bytes per second, read and written, of a copy of 1 GiB within the device
  double bf16 = 0.0;  ///< operations per second of a product of 8192 x 8192 matrices; 0 if not measured
  double fp32 = 0.0;  ///< the same in fp32 without tf32
  std::string note;   ///< which library multiplied, or why none did
};

/// Takes about a second and 2 GiB of device memory. The products come from cuBLAS, which is loaded if
/// present. Throws Error without a device, and if the CUDA runtime reports a failure.
[[nodiscard]] DeviceCeilings measure_ceilings();

/// The measured behaviour of the device's arithmetic (BOUNDS 13, items 8 and 9), as one JSON object:
/// tensor-core sums in bf16 and tf32, the exponentials, subnormal numbers. {"no_device": reason} without a
/// device. Throws Error if the CUDA runtime reports a failure.
[[nodiscard]] std::string probe_json();

}  // namespace samestate
