#pragma once

#include <string>
#include <vector>

namespace samestate {

/// A GPU of this host.
struct HostDevice {
  int ordinal = 0;   ///< index among the devices that the process sees: those in CUDA_VISIBLE_DEVICES if that
                     ///< is set
  std::string name;  ///< as the driver names it
  std::string id;    ///< its UUID as `nvidia-smi -L` prints it; the PCI address if the driver has no UUIDs
  std::string bus;   ///< PCI address; empty if the driver does not give it
  std::string visible;  ///< CUDA_VISIBLE_DEVICES for a process that is to see only this one

  /// "0: NVIDIA H100 80GB HBM3, GPU-8f6d.., 0000:1b:00.0"
  [[nodiscard]] std::string text() const;
};

/// The devices that the CUDA driver shows this process, whether the CUDA kernels come from this build or a
/// plugin; empty without a driver. Starts the driver, so do not call it in a process that forks workers.
[[nodiscard]] std::vector<HostDevice> devices_of_driver();

/// One line per device, and its inverse, for passing the result from the process that asked. Throws Error for
/// invalid text.
[[nodiscard]] std::string text_of_devices(const std::vector<HostDevice>& devices);
[[nodiscard]] std::vector<HostDevice> parse_devices(const std::string& text);

}  // namespace samestate
