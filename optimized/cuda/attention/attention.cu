#include <cmath>

#include "optimized/cuda/attention/head_norm.cuh"
#include "optimized/cuda/attention/launch.cuh"
#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/products/projection.cuh"

/// Rows of the table: softmax attention, and the layer that gates it.
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

/// The layer: projections, norms and rotation of q and k, attention with the gate applied after its division,
/// and the output projection. Projections and normalised or rotated values are rounded where the reference
/// marks them; the input of the gate is not.
struct GatedAttention {
  template <class Operand>
  struct Parameters {
    Projection<Operand> q_and_gate, k, v, out;
    HeadNormParameters<Operand> q_norm, k_norm;
    AttentionParameters<Operand> attention;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t rows = call.batch * call.tokens, D = call.parameter("D"), H = call.parameter("H");
    const std::int64_t Hkv = call.parameter("Hkv"), d = call.parameter("d");
    Parameters<Operand> p;
    const Operand* const hidden = tensors.operand("hidden");
    auto* const q_and_gate = tensors.template scratch<Operand>(rows * H * 2 * d);
    auto* const q = tensors.template scratch<Operand>(rows * H * d);
    auto* const raw_k = tensors.template scratch<Operand>(rows * Hkv * d);
    Operand *const k = tensors.output("k"), *const v = tensors.output("v");
    Operand* const gated = tensors.output("gated");
    p.q_and_gate = projection(hidden, tensors.operand("q_proj"), q_and_gate, rows, H * 2 * d, D);
    p.k = projection(hidden, tensors.operand("k_proj"), raw_k, rows, Hkv * d, D);
    p.v = projection(hidden, tensors.operand("v_proj"), v, rows, Hkv * d, D);
    p.out = projection<Operand>(gated, tensors.operand("o_proj"), tensors.output("out"), rows, D, H * d);

    HeadNormParameters<Operand>& norm = p.q_norm;
    norm.x = q_and_gate, norm.y = q, norm.x_stride = 2 * d;
    norm.weight = tensors.fp32("q_norm");
    norm.cosine = tensors.fp32("cosine"), norm.sine = tensors.fp32("sine");
    norm.tokens = rows, norm.heads = static_cast<int>(H), norm.width = static_cast<int>(d);
    norm.pairs = static_cast<int>(call.parameter("pairs"));
    p.k_norm = norm;
    p.k_norm.x = raw_k, p.k_norm.y = k, p.k_norm.x_stride = d;
    p.k_norm.weight = tensors.fp32("k_norm"), p.k_norm.heads = static_cast<int>(Hkv);

    AttentionParameters<Operand>& attention = p.attention;
    attention.batch = call.batch, attention.tokens = attention.keys = call.tokens;
    attention.key_heads = static_cast<int>(Hkv), attention.group = static_cast<int>(H / Hkv);
    attention.width = attention.value_width = static_cast<int>(d);
    attention.key_stride = attention.value_stride = Hkv * d;
    attention.chunk = call.chunk, attention.running = true;
    attention.scale = 1.0F / std::sqrt(static_cast<float>(d));
    attention.q = q, attention.k = k, attention.v = v, attention.o = gated;
    attention.gate = q_and_gate + d, attention.gate_stride = 2 * d;
    prepare_attention(attention, tensors);
    tensors.tap("q_gate", {tap_all(p.q_norm.x, rows, H * 2 * d)});
    tensors.tap("k_projected", {tap_all(p.k_norm.x, rows, Hkv * d)});
    tensors.tap("q", {tap_all(attention.q, rows, H * d)});
    return p;
  }

  template <class Operand>
  static void norm_heads(const HeadNormParameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.width % n == 0 && p.pairs % n == 0) {
      EachWarp<NormedHead<Operand, n>>::launch(p, stream);
    } else {
      EachWarp<NormedHead<Operand, 1>>::launch(p, stream);
    }
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    project(p.q_and_gate, stream);
    project(p.k, stream);
    project(p.v, stream);
    norm_heads(p.q_norm, stream);
    norm_heads(p.k_norm, stream);
    enqueue_attention(p.attention, stream);
    project(p.out, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> attention_kernels() {
  return {row<SoftmaxAttention<true>>("softmax_attention", "online", {"chunk >= 1"}),
          row<SoftmaxAttention<false>>("softmax_attention", "merged", {"chunk >= 1"}),
          row<GatedAttention>("gated_attention", "online", {"chunk >= 1"}, {"q_gate", "k_projected", "q"})};
}

}  // namespace samestate::cuda
