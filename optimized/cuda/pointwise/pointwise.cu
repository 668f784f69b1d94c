#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/pointwise/rotation.cuh"

/// Rows of the table: gates, short convolution and rotary embedding of a layer.
namespace samestate::cuda {
namespace {

template <class Operand, int n>
struct RotatedElements {
  using Parameters = RotationParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.tokens * p.heads * p.width / n;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t i) { rotate<Operand, n>(p, i * n); }
};

struct Gates {
  static constexpr int kBlock = 64;  ///< threads, faster than 128 or 256 (docs/understand/kernels.md)

  template <class Operand>
  using Parameters = GateParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("a"),
            tensors.operand("b"),
            tensors.fp32("A_log"),
            tensors.fp32("dt_bias"),
            tensors.output("g"),
            tensors.output("beta"),
            call.batch * call.tokens * call.parameter("H"),
            static_cast<int>(call.parameter("H"))};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.heads % n == 0) {
      EachThread<GateItem<Operand, n>, kBlock>::launch(p, stream);
    } else {
      EachThread<GateItem<Operand, 1>, kBlock>::launch(p, stream);
    }
  }
};

struct Convolution {
  template <class Operand>
  using Parameters = ConvolutionParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("x"),
            tensors.operand("kernel"),
            call.parameter("bias") != 0 ? tensors.fp32("bias") : nullptr,
            tensors.operand("state"),
            tensors.output("y"),
            tensors.output("state"),
            call.batch,
            call.tokens,
            static_cast<int>(call.parameter("C")),
            static_cast<int>(call.parameter("W")),
            call.parameter("activation") != 0};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_convolution(p, stream);
  }
};

struct Rotation {
  template <class Operand>
  using Parameters = RotationParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return {tensors.operand("x"),
            tensors.fp32("cosine"),
            tensors.fp32("sine"),
            tensors.output("y"),
            call.batch * call.tokens,
            static_cast<int>(call.parameter("H")),
            static_cast<int>(call.parameter("d")),
            static_cast<int>(call.parameter("pairs")),
            call.parameter("interleaved") != 0};
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.width % n == 0 && p.interleaved) {
      EachThread<RotatedElements<Operand, n>>::launch(p, stream);
    } else if (p.width % n == 0 && p.pairs % n == 0) {
      EachThread<RotatedHalves<Operand>>::launch(p, stream);
    } else {
      EachThread<RotatedElements<Operand, 1>>::launch(p, stream);
    }
  }
};

}  // namespace

std::vector<OperatorKernel> layer_part_kernels() {
  return {row<Gates>("activation_gates", "branchless"), row<Convolution>("short_convolution", "gather"),
          row<Rotation>("rotary_embedding", "equation")};
}

}  // namespace samestate::cuda
