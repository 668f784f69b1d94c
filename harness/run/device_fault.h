#pragma once

#include <string>

namespace samestate {

/// The name of the error that a kernel left in this thread's CUDA context, for example
/// CUDA_ERROR_ILLEGAL_ADDRESS, if it is one after which every call in the process fails. Asks the driver that
/// the process has loaded, whether this build or a plugin loaded it; empty if there is none, if this thread
/// has no context, and if nothing is wrong. Waits for the device.
[[nodiscard]] std::string device_fault();

}  // namespace samestate
