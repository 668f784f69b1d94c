#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/products/product.cuh"

/// Rows of the table: parts of the Gated DeltaNet layer around the rule.
namespace samestate::cuda {
namespace {

template <class Operand>
struct GatedOutputParameters {
  NormParameters<Operand> norm;  ///< a row a token and head
  ProductParameters<Operand, StoreProduct<Operand>> projection;
};

/// y = W_o (norm(core) silu(z)). The norm has a launch of its own: it reads and writes no more than the
/// product reads anyway, and inside the product every tile of columns would repeat its exponentials.
struct GatedOutput {
  template <class Operand>
  using Parameters = GatedOutputParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t heads = call.parameter("Hv"), width = call.parameter("dv"), D = call.parameter("D");
    const std::int64_t tokens = call.batch * call.tokens;
    Operand* const gated = tensors.template scratch<Operand>(tokens * heads * width);
    Parameters<Operand> p;
    p.norm.x = tensors.operand("core");
    p.norm.second = tensors.operand("z");
    p.norm.weight = tensors.fp32("norm");
    p.norm.y = gated;
    p.norm.rows = tokens * heads;
    p.norm.width = static_cast<int>(width);
    p.projection.x = gated;
    p.projection.w = tensors.operand("out_proj");
    p.projection.rows = tokens;
    p.projection.columns = D;
    p.projection.depth = p.projection.x_stride = p.projection.w_stride = heads * width;
    p.projection.epilogue = {tensors.output("y"), D};
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    launch_norm<RowNorm::gated>(p.norm, stream);
    Product<Operand, StoreProduct<Operand>>::launch(p.projection, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> delta_net_kernels() {
  return {row<GatedOutput>("gated_delta_net_output", "fused")};
}

}  // namespace samestate::cuda
