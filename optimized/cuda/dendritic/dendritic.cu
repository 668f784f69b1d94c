#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/dendritic/dendritic.cuh"
#include "optimized/cuda/dendritic/router.cuh"
#include "optimized/cuda/host/call.cuh"

/// Rows of the table: dendritic attention.
namespace samestate::cuda {
namespace {

template <class Operand>
struct RoutedRow {
  using Parameters = RouterParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) { route(p, row); }
};

struct Windows {
  static constexpr int kWindowThreads =
      128;  ///< per block; with 256 or 512 it takes up to 12 % longer (docs/understand/kernels.md)

  template <class Operand>
  using Parameters = WindowParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.x = tensors.operand("x");
    p.parts = tensors.operand("parts");
    p.windows = tensors.output("windows");
    p.sum = tensors.output("sum");
    p.tokens = call.batch * call.tokens;
    p.count = static_cast<int>(call.parameter("N"));
    p.channels = p.count * static_cast<int>(call.parameter("stride")) + static_cast<int>(call.parameter("O"));
    // A single window has all channels.
    p.stride = p.count > 1 ? static_cast<int>(call.parameter("stride")) : p.channels;
    p.width = p.count > 1 ? p.stride + static_cast<int>(call.parameter("O")) : p.channels;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.stride % n == 0 && p.width % n == 0 && p.channels % n == 0) {
      EachThread<WindowItem<Operand, n>, kWindowThreads>::launch(p, stream);
    } else {
      EachThread<WindowItem<Operand, 1>, kWindowThreads>::launch(p, stream);
    }
  }
};

struct BranchRouter {
  template <class Operand>
  using Parameters = RouterParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("q"),
            tensors.operand("router"),
            tensors.output("omega"),
            tensors.output("mask"),
            call.batch * call.tokens * call.parameter("H"),
            static_cast<int>(call.parameter("d")),
            static_cast<int>(call.parameter("K") + call.parameter("idle")),
            static_cast<int>(call.parameter("Es")),
            static_cast<int>(call.parameter("K"))};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (StagedRoutes<Operand, 8>::takes(p)) {
      StagedRoutes<Operand, 8>::launch(p, stream);
    } else if (StagedRoutes<Operand, 16>::takes(p)) {
      StagedRoutes<Operand, 16>::launch(p, stream);
    } else {
      EachWarp<RoutedRow<Operand>>::launch(p, stream);
    }
  }
};

}  // namespace

std::vector<OperatorKernel> dendritic_kernels() {
  return {row<Windows>("overlap_windows", "windows"),
          row<BranchRouter>("dendritic_router", "softmax", {"d <= 512", "K <= 16", "idle <= 64"})};
}

}  // namespace samestate::cuda
