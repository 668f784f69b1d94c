#pragma once

#include <string>
#include <vector>

namespace samestate {

/// A GPU of this host.
struct HostDevice {
  int ordinal = 0;      ///< among those that the process sees: of CUDA_VISIBLE_DEVICES where that is set
  std::string name;     ///< as the driver says it
  std::string id;       ///< its UUID as `nvidia-smi -L` prints it; of a driver that has none, the PCI address
  std::string bus;      ///< PCI address; empty where the driver does not say
  std::string visible;  ///< CUDA_VISIBLE_DEVICES of a process that shall see this one alone

  /// "0: NVIDIA H100 80GB HBM3, GPU-8f6d.., 0000:1b:00.0"
  [[nodiscard]] std::string text() const;
};

/// Those that the CUDA driver shows this process, whether this build has CUDA kernels or a plugin brings them; empty
/// without a driver. Starts the driver: not for a process that forks workers.
[[nodiscard]] std::vector<HostDevice> devices_of_driver();

/// A line a device, and back: from the process that asked. Throws Error for what is none.
[[nodiscard]] std::string text_of_devices(const std::vector<HostDevice>& devices);
[[nodiscard]] std::vector<HostDevice> parse_devices(const std::string& text);

}  // namespace samestate
