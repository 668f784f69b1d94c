#include "optimized/cuda/delta/learning_step.cuh"

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"

/// Rows of the table: test-time training.
namespace samestate::cuda {
namespace {

template <bool proximal>
struct LearningStepRow {
  template <class Operand>
  using Parameters = LearningStepParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.S = tensors.operand("S");
    p.k = tensors.operand("k");
    p.v = tensors.operand("v");
    p.eta = tensors.fp32("eta");
    p.next = tensors.output("S_next");
    p.tokens = call.batch * call.tokens;
    p.dk = static_cast<int>(call.parameter("dk"));
    p.dv = static_cast<int>(call.parameter("dv"));
    p.proximal = proximal;
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_learning_step(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> learning_step_kernels() {
  const std::vector<std::string> limits{"dk <= 512"};
  return {row<LearningStepRow<false>>("gradient_step", "delta_rule", limits),
          row<LearningStepRow<true>>("proximal_step", "delta_rule", limits)};
}

}  // namespace samestate::cuda
