#pragma once

#include <optional>
#include <string>

#include "optimized/cuda/cuda_kernels.h"

namespace samestate::cuda {

/// The device, or why there is none. Looked for once in a process.
struct Device {
  std::optional<DeviceInfo> info;
  std::string reason;
};
[[nodiscard]] const Device& device();

}  // namespace samestate::cuda
