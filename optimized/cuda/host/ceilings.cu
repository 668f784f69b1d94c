#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "optimized/cuda/cuda_kernels.h"
#include "optimized/cuda/host/device.cuh"
#include "optimized/cuda/host/device_memory.cuh"
#include "optimized/cuda/host/measure.cuh"
#include "optimized/cuda/units/intrinsics.cuh"

namespace samestate::cuda {
namespace {

constexpr int kWidth = 8192;  ///< width of the matrices, large enough that arithmetic bounds the product
constexpr std::size_t kCopied = std::size_t{1} << 30;
const TimingRequest kRequest{.seconds = 0.2, .least_samples = 10, .most_samples = 100, .warm_up = 3};

/// Fills with numbers uniform in [-1, 1): a product of zeros draws less power and runs faster than one of
/// data.
template <class Element>
__global__ void fill_uniform(Element* to, std::size_t count, std::uint64_t seed) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    std::uint64_t x = (i + seed) * 0x9e3779b97f4a7c15U;  // splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    to[i] = narrow<Element>(static_cast<float>((x ^ (x >> 31)) >> 40) * 0x1p-23F - 1.0F);
  }
}

double median_seconds(const OnCopy& call) {
  std::vector<double> seconds = measure(1, kRequest, call, [](int, cudaStream_t) {}).timing.seconds;
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double copy_rate() {
  const DeviceBuffer<std::uint64_t> from(kCopied / 8);
  const DeviceBuffer<std::uint64_t> to(kCopied / 8);
  fill_uniform<<<4096, 256>>>(reinterpret_cast<float*>(from.data()), kCopied / 4, 1);
  check_launch("fill_uniform");
  return 2.0 * static_cast<double>(kCopied) / median_seconds([&](int, cudaStream_t stream) {
           check(cudaMemcpyAsync(to.data(), from.data(), kCopied, cudaMemcpyDeviceToDevice, stream),
                 "cudaMemcpyAsync within the device");
         });
}

/// Uses cuBLAS if it is installed: a build needs neither its header nor the library. Enumerations are passed
/// as the integers that they are in its C interface.
class Blas {
 public:
  Blas() {
    for (const char* name :
         {"libcublas.so.13", "libcublas.so.12", "libcublas.so", "/usr/local/cuda/lib64/libcublas.so"}) {
      library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_) break;
    }
    if (!library_) {
      reason_ = "no cuBLAS here (libcublas.so.13, .12): no floor of arithmetic";
      return;
    }
    if (!find(create_, "cublasCreate_v2") || !find(destroy_, "cublasDestroy_v2") ||
        !find(set_stream_, "cublasSetStream_v2") || !find(multiply_, "cublasGemmEx")) {
      reason_ = "cuBLAS lacks a function that is needed: no floor of arithmetic";
      return;
    }
    if (const int status = create_(&handle_); status != 0) {
      reason_ = "cublasCreate gave status " + std::to_string(status) + ": no floor of arithmetic";
      handle_ = nullptr;
    }
  }
  ~Blas() {
    if (handle_) destroy_(handle_);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  [[nodiscard]] bool present() const { return handle_ != nullptr; }
  [[nodiscard]] const std::string& reason() const { return reason_; }

  /// Returns the operations per second of C = A B, kWidth in each dimension, with fp32 accumulation.
  template <class Element>
  [[nodiscard]] double product_rate(cudaDataType_t type) const {
    constexpr std::size_t elements = std::size_t{kWidth} * kWidth;
    const DeviceBuffer<Element> a(elements);
    const DeviceBuffer<Element> b(elements);
    const DeviceBuffer<Element> c(elements);
    fill_uniform<<<4096, 256>>>(a.data(), elements, 1);
    fill_uniform<<<4096, 256>>>(b.data(), elements, 2);
    check_launch("fill_uniform");
    const double seconds = median_seconds([&](int, cudaStream_t stream) {
      const float one = 1.0F;
      const float zero = 0.0F;
      set_stream_(handle_, stream);
      const int status =
          multiply_(handle_, kNoTranspose, kNoTranspose, kWidth, kWidth, kWidth, &one, a.data(), type, kWidth,
                    b.data(), type, kWidth, &zero, c.data(), type, kWidth, kCompute32F, kDefaultAlgorithm);
      if (status != 0) throw Error("cublasGemmEx gave status " + std::to_string(status));
    });
    return 2.0 * kWidth * kWidth * kWidth / seconds;
  }

 private:
  static constexpr int kNoTranspose = 0;        ///< CUBLAS_OP_N
  static constexpr int kCompute32F = 68;        ///< CUBLAS_COMPUTE_32F: fp32 inputs stay fp32, not tf32
  static constexpr int kDefaultAlgorithm = -1;  ///< CUBLAS_GEMM_DEFAULT

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    return function != nullptr;
  }

  void* library_ = nullptr;  ///< never closed: CUDA libraries do not unload cleanly
  void* handle_ = nullptr;
  std::string reason_;
  int (*create_)(void**) = nullptr;
  int (*destroy_)(void*) = nullptr;
  int (*set_stream_)(void*, cudaStream_t) = nullptr;
  int (*multiply_)(void*, int, int, int, int, int, const void*, const void*, cudaDataType_t, int, const void*,
                   cudaDataType_t, int, const void*, void*, cudaDataType_t, int, int, int) = nullptr;
};

}  // namespace
}  // namespace samestate::cuda

namespace samestate {

DeviceCeilings measure_ceilings() {
  using namespace cuda;
  if (const Device& found = device(); !found.info) throw Error(found.reason);
  DeviceCeilings ceilings;
  ceilings.copy = copy_rate();
  const Blas blas;
  ceilings.note = blas.present() ? "copy of 1 GiB; products of 8192 x 8192 by cuBLAS" : blas.reason();
  if (blas.present()) {
    ceilings.bf16 = blas.product_rate<Bf16>(CUDA_R_16BF);
    ceilings.fp32 = blas.product_rate<float>(CUDA_R_32F);
  }
  return ceilings;
}

}  // namespace samestate
