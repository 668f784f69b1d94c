#include "optimized/cuda/products/product_library.h"

#ifdef __CUDACC__
#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/device.cuh"

namespace samestate::cuda {
namespace {

// Enumerations are passed as the integers that they are in cuBLASLt's C interface.
constexpr int kCompute32F = 68;          ///< CUBLAS_COMPUTE_32F: bf16 operands, sums in fp32
constexpr int kCompute32FPedantic = 69;  ///< CUBLAS_COMPUTE_32F_PEDANTIC: neither tf32 nor parts in bf16
constexpr int kTransposeA = 3;           ///< CUBLASLT_MATMUL_DESC_TRANSA
constexpr int kTransposed = 1;           ///< CUBLAS_OP_T
constexpr int kBatchCount = 5;           ///< CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
constexpr int kBatchOffset = 6;          ///< CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
constexpr int kMostWorkspace = 1;        ///< CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
constexpr int kReductionSchemes = 3;  ///< CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK; 0: no sums over blocks
constexpr int kAlignments[] = {5, 6, 7, 8};  ///< CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, B, C, D
constexpr std::uint32_t kAlignment = 16;
/// Up to this many rows, product.cuh's grid, whose warps divide the depth, is as fast in bf16 and faster in
/// fp32 (docs/understand/kernels.md).
constexpr std::int64_t kFewRows = 32;

/// cublasLtMatmulHeuristicResult_t.
struct Heuristic {
  std::uint64_t algorithm[8];
  std::size_t workspace;
  int status;
  float waves;
  int reserved[4];
};

struct Functions {
  std::size_t (*version)() = nullptr;
  int (*create)(void**) = nullptr;
  int (*describe)(void**, int, cudaDataType_t) = nullptr;
  int (*set_description)(void*, int, const void*, std::size_t) = nullptr;
  int (*lay_out)(void**, cudaDataType_t, std::uint64_t, std::uint64_t, std::int64_t) = nullptr;
  int (*set_layout)(void*, int, const void*, std::size_t) = nullptr;
  int (*prefer)(void**) = nullptr;
  int (*set_preference)(void*, int, const void*, std::size_t) = nullptr;
  int (*choose)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*) = nullptr;
  int (*multiply)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*,
                  void*, void*, void*, const std::uint64_t*, void*, std::size_t, cudaStream_t) = nullptr;
};

void succeed(int status, const char* call) {
  if (status != 0)
    throw Error(std::string(call) + " gave status " + std::to_string(status) +
                "; --products own multiplies without the library");
}

/// How a shape is multiplied. It is kept for the life of the process, like the library itself: CUDA libraries
/// do not unload cleanly.
struct Plan {
  bool taken = false;
  void *description = nullptr, *w = nullptr, *x = nullptr, *y = nullptr;
  std::uint64_t algorithm[8] = {};
};

class Library {
 public:
  static Library& of_process() {
    static Library* const library = new Library;
    return *library;
  }

  [[nodiscard]] std::string name() const {
    if (handle_ == nullptr) return "own (" + reason_ + ")";
    const std::size_t version = call_.version();
    return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
  }

  bool multiply(const PlainProduct& p, cudaStream_t stream) {
    if (handle_ == nullptr || p.rows <= kFewRows) return false;
    // Calls of several threads wait for each other: a few microseconds of the host each.
    const std::lock_guard lock(mutex_);
    const auto [at, is_new] = plans_.try_emplace(p.shape());
    if (is_new) at->second = plan(p);
    const Plan& how = at->second;
    if (!how.taken) return false;
    const float one = 1.0F, zero = 0.0F;
    succeed(call_.multiply(handle_, how.description, &one, p.w, how.w, p.x, how.x, &zero, p.y, how.y, p.y,
                           how.y, how.algorithm, nullptr, 0, stream),
            "cublasLtMatmul");
    return true;
  }

 private:
  Library() {
    for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                             "/usr/local/cuda/lib64/libcublasLt.so"}) {
      library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library_ != nullptr) break;
    }
    if (library_ == nullptr) {
      reason_ = "no libcublasLt.so.13 or .12";
    } else if (!find(call_.version, "cublasLtGetVersion") || !find(call_.create, "cublasLtCreate") ||
               !find(call_.describe, "cublasLtMatmulDescCreate") ||
               !find(call_.set_description, "cublasLtMatmulDescSetAttribute") ||
               !find(call_.lay_out, "cublasLtMatrixLayoutCreate") ||
               !find(call_.set_layout, "cublasLtMatrixLayoutSetAttribute") ||
               !find(call_.prefer, "cublasLtMatmulPreferenceCreate") ||
               !find(call_.set_preference, "cublasLtMatmulPreferenceSetAttribute") ||
               !find(call_.choose, "cublasLtMatmulAlgoGetHeuristic") ||
               !find(call_.multiply, "cublasLtMatmul")) {
      reason_ = "libcublasLt lacks a function that is needed";
    } else if (const int status = call_.create(&handle_); status != 0) {
      reason_ = "cublasLtCreate gave status " + std::to_string(status);
      handle_ = nullptr;
    }
  }

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    return function != nullptr;
  }

  /// The library expects column-major matrices: y^T [columns, rows] = w^T' x^T, with w^T [depth, columns]
  /// transposed.
  [[nodiscard]] Plan plan(const PlainProduct& p) const {
    Plan plan;
    const cudaDataType_t operands = p.bf16 ? CUDA_R_16BF : CUDA_R_32F;
    succeed(call_.describe(&plan.description, p.bf16 ? kCompute32F : kCompute32FPedantic, CUDA_R_32F),
            "cublasLtMatmulDescCreate");
    succeed(call_.set_description(plan.description, kTransposeA, &kTransposed, sizeof kTransposed),
            "cublasLtMatmulDescSetAttribute");
    plan.w = layout(operands, p.depth, p.columns, p.w_stride, p.batch, p.w_batch);
    plan.x = layout(operands, p.depth, p.rows, p.x_stride, p.batch, p.x_batch);
    plan.y = layout(p.y_bf16 ? CUDA_R_16BF : CUDA_R_32F, p.columns, p.rows, p.y_stride, p.batch, p.y_batch);
    void* preference = nullptr;
    succeed(call_.prefer(&preference), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](int what, auto value) {
      succeed(call_.set_preference(preference, what, &value, sizeof value),
              "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(kMostWorkspace, std::size_t{0});
    prefer(kReductionSchemes, std::uint32_t{0});
    for (const int alignment : kAlignments) prefer(alignment, kAlignment);
    Heuristic found{};
    int count = 0;
    const int status = call_.choose(handle_, plan.description, plan.w, plan.x, plan.y, plan.y, preference, 1,
                                    &found, &count);
    plan.taken = status == 0 && count == 1 && found.status == 0 && found.workspace == 0;
    std::copy(std::begin(found.algorithm), std::end(found.algorithm), plan.algorithm);
    return plan;
  }

  [[nodiscard]] void* layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns,
                             std::int64_t stride, std::int64_t batch, std::int64_t offset) const {
    void* layout = nullptr;
    succeed(call_.lay_out(&layout, type, static_cast<std::uint64_t>(rows),
                          static_cast<std::uint64_t>(columns), stride),
            "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<std::int32_t>(batch);
    succeed(call_.set_layout(layout, kBatchCount, &count, sizeof count), "cublasLtMatrixLayoutSetAttribute");
    succeed(call_.set_layout(layout, kBatchOffset, &offset, sizeof offset),
            "cublasLtMatrixLayoutSetAttribute");
    return layout;
  }

  void* library_ = nullptr;
  void* handle_ = nullptr;
  std::string reason_;
  Functions call_;
  std::mutex mutex_;
  std::map<decltype(PlainProduct{}.shape()), Plan> plans_;
};

bool library_wanted = true;

}  // namespace

bool multiply_by_library(const PlainProduct& p, cudaStream_t stream) {
  return library_wanted && Library::of_process().multiply(p, stream);
}

std::string product_library() {
  if (!library_wanted) return "own (asked for)";
  if (!device().info) return "own (no device)";
  return Library::of_process().name();
}

void use_product_library(bool wanted) { library_wanted = wanted; }

}  // namespace samestate::cuda
#endif
