#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace samestate {

/// Device memory that a call's tensors are copied to and from, by the CUDA driver of this machine (libcuda.so.1); nothing
/// is linked, and a process that never asks never starts it. In the primary context of its first device, which is the one
/// that the CUDA runtime has.
class DeviceMemory {
 public:
  /// Copies of `bytes` are on the way. Throws Unavailable where there is no driver, no device or no memory, runtime_error
  /// with the driver's name of any other error, as everywhere here.
  explicit DeviceMemory(std::span<const std::byte> bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// To be handed on, never read here.
  [[nodiscard]] std::byte* begin() const;
  /// A CUstream, not ordered with the default one: until a moment after the constructor the memory holds 0xff, and then, on
  /// this stream, the bytes, so that what does not wait for it reads NaN.
  [[nodiscard]] void* stream() const { return stream_; }

  /// What is there when the stream is idle. Throws Trespass where it is something else when all of the device is: an output
  /// was written by work that the stream does not wait for.
  void fetch(std::span<std::byte> bytes);

 private:
  void free();

  std::size_t size_;
  unsigned long long there_ = 0, staged_ = 0;  ///< CUdeviceptr
  void* stream_ = nullptr;
};

}  // namespace samestate
