#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/scan/duality_launch.cuh"

/// Row of the table: state space duality.
namespace samestate::cuda {
namespace {

struct StateSpaceDuality {
  template <class Operand>
  using Parameters = DualityParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p = duality_of<Operand>(call, tensors);
    p.x = tensors.operand("x");
    p.dt = tensors.operand("dt");
    p.B = tensors.operand("B");
    p.C = tensors.operand("C");
    p.dt_bias = tensors.fp32("dt_bias");
    p.A_log = tensors.fp32("A_log");
    p.skip = tensors.fp32("skip");
    p.state = tensors.fp32("S");
    p.last_state = tensors.fp32_output("S");
    p.y = tensors.output("y");
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_duality(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> duality_kernels() {
  return {row<StateSpaceDuality>("state_space_duality", "chunked", {"N <= 256"})};
}

}  // namespace samestate::cuda
