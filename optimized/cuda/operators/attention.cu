#include <cmath>

#include "optimized/cuda/operators/attention_launch.cuh"
#include "optimized/cuda/operators/call.cuh"
#include "optimized/cuda/operators/kernels.h"

/// Rows of the table: softmax attention.
namespace samestate::cuda {
namespace {

template <bool running>
struct SoftmaxAttention {
  template <class Operand>
  using Parameters = AttentionParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.batch = call.batch;
    p.tokens = call.tokens;
    p.keys = call.input("k").extent(1);
    p.key_heads = static_cast<int>(call.parameter("Hkv"));
    p.group = static_cast<int>(call.parameter("H")) / p.key_heads;
    p.width = static_cast<int>(call.parameter("d"));
    p.value_width = static_cast<int>(call.parameter("dv"));
    p.key_stride = static_cast<std::int64_t>(p.key_heads) * p.width;
    p.value_stride = static_cast<std::int64_t>(p.key_heads) * p.value_width;
    p.chunk = call.chunk;
    p.running = running;
    p.scale = 1.0F / std::sqrt(static_cast<float>(p.width));
    p.q = tensors.operand("q");
    p.k = tensors.operand("k");
    p.v = tensors.operand("v");
    p.o = tensors.output("o");
    prepare_attention(p, tensors);
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    enqueue_attention(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> attention_kernels() {
  return {row<SoftmaxAttention<true>>("softmax_attention", "online", {"chunk >= 1"}),
          row<SoftmaxAttention<false>>("softmax_attention", "merged", {"chunk >= 1"})};
}

}  // namespace samestate::cuda
