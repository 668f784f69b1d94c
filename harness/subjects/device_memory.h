#pragma once

#include <cstddef>
#include <functional>
#include <span>

namespace samestate {

/// Device memory to and from which a call's tensors are copied, through the CUDA driver of this machine
/// (libcuda.so.1). Nothing is linked, and a process that does not use it does not start the driver. It is in
/// the primary context of the first device, the one that the CUDA runtime uses.
class DeviceMemory {
 public:
  /// Starts copying `bytes`. Throws Unavailable if there is no driver, no device or no memory, and
  /// runtime_error with the driver's name for any other error, like all functions here.
  explicit DeviceMemory(std::span<const std::byte> bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// To be passed on, never to be read here.
  [[nodiscard]] std::byte* begin() const;
  /// A CUstream that is not ordered with the default one: until shortly after the constructor the memory
  /// holds 0xff, and then, on this stream, the bytes, so that code that does not wait for the stream reads
  /// NaN.
  [[nodiscard]] void* stream() const { return stream_; }

  /// The content when the stream is idle. Throws Trespass if it differs once the whole device is idle: an
  /// output was written by work that the stream does not wait for.
  void fetch(std::span<std::byte> bytes);

 private:
  void free();

  std::size_t size_;
  unsigned long long there_ = 0, staged_ = 0;  ///< CUdeviceptr
  void* stream_ = nullptr;
};

}  // namespace samestate
