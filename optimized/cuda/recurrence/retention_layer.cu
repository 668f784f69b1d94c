#include <cmath>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/products/projection.cuh"
#include "optimized/cuda/recurrence/launch.cuh"
#include "optimized/cuda/recurrence/retention_rotation.cuh"

/// Row of the table: multi-scale retention, RetNet's layer (EQUATIONS 5.11), prefill and decode with its state and position.
namespace samestate::cuda {
namespace {

template <class Operand>
struct RetentionLayerParameters {
  Projection<Operand> q, k, v, gate;
  RetentionRotationParameters<Operand> rotation;
  RecurrenceParameters<Operand> core;
  NormParameters<Operand> norm;
  Projection<Operand> y;
};

struct RetentionLayer {
  template <class Operand>
  using Parameters = RetentionLayerParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t rows = call.batch * call.tokens, D = call.parameter("D"), H = call.parameter("H");
    const std::int64_t dk = call.parameter("dk"), dv = call.parameter("dv");
    const Operand* const x = tensors.operand("x");
    const auto operands = [&](std::int64_t columns) {
      return tensors.template scratch<Operand>(rows * columns);
    };
    const auto part = [&](const char* weight, std::int64_t columns) {
      return projection<Operand>(x, tensors.operand(weight), operands(columns), rows, columns, D);
    };
    Parameters<Operand> p;
    p.q = part("q_proj", H * dk);
    p.k = part("k_proj", H * dk);
    p.v = part("v_proj", H * dv);
    p.gate = part("g_proj", H * dv);
    p.rotation.q = p.q.epilogue.y;
    p.rotation.k = p.k.epilogue.y;
    p.rotation.position = tensors.fp32("position");
    p.rotation.turned_q = operands(H * dk);
    p.rotation.turned_k = operands(H * dk);
    p.rotation.next_position = tensors.fp32_output("position");
    p.rotation.batch = call.batch;
    p.rotation.tokens = call.tokens;
    p.rotation.heads = static_cast<int>(H);
    p.rotation.width = static_cast<int>(dk);
    p.rotation.scale = 1.0F / std::sqrt(static_cast<float>(dk));
    p.core.q = p.rotation.turned_q;
    p.core.k = p.rotation.turned_k;
    p.core.v = p.v.epilogue.y;
    p.core.o = tensors.output("core");
    p.core.state = tensors.fp32("S");
    p.core.final_state = tensors.fp32_output("S");
    p.core.batch = call.batch;
    p.core.tokens = call.tokens;
    p.core.heads = static_cast<int>(H);
    p.core.dk = static_cast<int>(dk);
    p.core.dv = static_cast<int>(dv);
    p.core.decays = true;
    plan_recurrence(p.core);
    make_carried(p.core, tensors, p.core.segments - 1);
    p.norm.x = p.core.o;
    p.norm.second = p.gate.epilogue.y;
    p.norm.y = operands(H * dv);
    p.norm.rows = rows * H;
    p.norm.width = static_cast<int>(dv);
    p.y = projection<Operand>(p.norm.y, tensors.operand("out_proj"), tensors.output("y"), rows, D, H * dv);
    tensors.tap("q", {tap_all(p.core.q, rows, H * dk)});
    tensors.tap("k", {tap_all(p.core.k, rows, H * dk)});
    tensors.tap("v", {tap_all(p.core.v, rows, H * dv)});
    tensors.tap("g", {tap_all(p.norm.second, rows, H * dv)});
    tensors.tap("gated", {tap_all(p.y.x, rows, H * dv)});
    return p;
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    for (const auto* product : {&p.q, &p.k, &p.v, &p.gate}) project(*product, stream);
    EachThread<RetentionPair<Operand>>::launch(p.rotation, stream);
    launch_recurrence(p.core, stream);
    launch_norm<RowNorm::gated_alone>(p.norm, stream);
    project(p.y, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> retention_layer_kernels() {
  return {row<RetentionLayer>("multi_scale_retention", "recurrent", {}, {"q", "k", "v", "g", "gated"})};
}

}  // namespace samestate::cuda
