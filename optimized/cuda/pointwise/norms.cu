#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/norms.cuh"

/// Rows of the table: norms of rows.
namespace samestate::cuda {
namespace {

template <RowNorm norm>
struct Norms {
  template <class Operand>
  using Parameters = NormParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    Parameters<Operand> p;
    p.width = static_cast<int>(call.parameter("D"));
    p.rows = call.batch * call.tokens * call.parameter("H");
    p.x = tensors.operand("x");
    if constexpr (norm == RowNorm::residual) p.second = tensors.operand("residual");
    if constexpr (norm == RowNorm::gated || norm == RowNorm::gate_first) p.second = tensors.operand("z");
    if constexpr (norm != RowNorm::l2) p.weight = tensors.fp32("weight");
    p.y = tensors.output("y");
    if constexpr (norm == RowNorm::residual) p.sum = tensors.output("sum");
    return p;
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_norm<norm>(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> norm_kernels() {
  return {row<Norms<RowNorm::plain>>("rms_norm", "fused"),
          row<Norms<RowNorm::zero_centred>>("zero_centred_rms_norm", "fused"),
          row<Norms<RowNorm::residual>>("residual_rms_norm", "fused"),
          row<Norms<RowNorm::gated>>("gated_rms_norm", "fused"),
          row<Norms<RowNorm::gate_first>>("gate_first_rms_norm", "fused"),
          row<Norms<RowNorm::l2>>("l2norm", "fused")};
}

}  // namespace samestate::cuda
