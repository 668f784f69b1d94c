#include "optimized/cuda/delta/token_fma_pool.cuh"

#include <cmath>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/slots.h"

/// Row of the table: the serving step of Gated DeltaNet.
namespace samestate::cuda {
namespace {

struct GatedDeltaStepRow {
  template <class Operand>
  using Parameters = GatedDeltaStepParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    (void)slots_of(call);  // refuses what the kernel would read or write beyond the pool
    const auto at = [&](const char* name) { return static_cast<int>(call.parameter(name)); };
    Parameters<Operand> p;
    p.q = tensors.operand("q");
    p.k = tensors.operand("k");
    p.v = tensors.operand("v");
    p.a = tensors.operand("a");
    p.b = tensors.operand("b");
    p.A_log = tensors.fp32("A_log");
    p.dt_bias = tensors.fp32("dt_bias");
    p.slot = tensors.fp32("slot");
    p.pool = tensors.fp32("pool");
    p.o = tensors.output("o");
    p.next = tensors.fp32_output("pool");
    p.batch = call.batch;
    p.tokens = call.tokens;
    p.slots = call.parameter("P");
    p.key_heads = at("Hk");
    p.heads = at("Hv");
    p.dk = at("dk");
    p.dv = at("dv");
    p.scale = 1.0F / std::sqrt(static_cast<float>(p.dk));
    p.normalises = call.parameter("l2norm") != 0;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_gated_delta_step(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> gated_delta_step_kernels() {
  return {row<GatedDeltaStepRow>("gated_delta_step", "recurrent")};
}

}  // namespace samestate::cuda
