#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

/// States between the devices of a host, by NCCL where it is installed: a build needs neither its header nor the library.
namespace samestate::cuda::ranks {

/// The communicators of all devices that the process sees, made at the first call. Calls must not overlap.
class Exchange {
 public:
  [[nodiscard]] static Exchange& of_process();

  /// Returns the number of devices among which calls are divided: all that are seen, or one if there is no
  /// NCCL; name() then says why.
  [[nodiscard]] std::size_t devices() const { return devices_; }
  /// Returns for example "NCCL 2.28.9", or why there is none.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// Everything sent and received between the two enters the streams at once.
  void begin() const;
  void end() const;
  /// Throw Error where the library refuses.
  void send(const float* data, std::size_t count, std::size_t from, std::size_t to,
            cudaStream_t stream) const;
  void receive(float* data, std::size_t count, std::size_t to, std::size_t from, cudaStream_t stream) const;

 private:
  Exchange();
  struct Library;
  const Library* library_ = nullptr;  ///< kept as long as the process: CUDA libraries do not unload cleanly
  std::size_t devices_ = 1;
  std::string name_;
};

}  // namespace samestate::cuda::ranks
