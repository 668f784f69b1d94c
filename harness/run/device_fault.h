#pragma once

#include <string>

namespace samestate {

/// The name of the error that a kernel left in this thread's CUDA context, as CUDA_ERROR_ILLEGAL_ADDRESS,
/// where it is one after which every call in the process fails. Asks the driver that the process has loaded,
/// whoever loaded it (this build, a plugin); empty where there is none or nothing is wrong. Waits for the
/// device.
[[nodiscard]] std::string device_fault();

}  // namespace samestate
