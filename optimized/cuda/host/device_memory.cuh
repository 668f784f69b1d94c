#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"

namespace samestate::cuda {

/// Throws Error that names the call and what the runtime says of it.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw Error(
      std::string(call) + ": " + cudaGetErrorString(status) +
      "; run again under compute-sanitizer, or with fewer or shorter sequences where memory is short");
}

/// Waits for the launches before it; throws Error if one failed.
inline void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
  check(cudaDeviceSynchronize(), kernel);
}

/// Returns an attribute of the current device.
inline int device_attribute(cudaDeviceAttr name) {
  int device = 0;
  int value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

/// Returns true if the current device has the asynchronous matrix unit of compute capability 9.0, which no other has.
inline bool has_asynchronous_products() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

/// Owns `size` elements of device memory; none for size 0, whose data() is null.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    if (size > 0) check(cudaMalloc(reinterpret_cast<void**>(&data_), size * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    if (size_ > 0) {
      check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice),
            "cudaMemcpy to the device");
    }
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }

  [[nodiscard]] T* data() const { return data_; }

  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }

  /// Every byte set to `byte`, in the order of `stream`; 0xff makes a NaN of any floating-point element.
  void fill(int byte, cudaStream_t stream) const {
    if (size_ > 0) check(cudaMemsetAsync(data_, byte, bytes(), stream), "cudaMemsetAsync");
  }

  [[nodiscard]] std::vector<T> download() const {
    std::vector<T> values(size_);
    if (size_ > 0) {
      check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost),
            "cudaMemcpy to the host");
    }
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace samestate::cuda
