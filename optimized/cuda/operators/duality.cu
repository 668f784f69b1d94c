#include "optimized/cuda/operators/call.cuh"
#include "optimized/cuda/operators/duality_rows.cuh"
#include "optimized/cuda/operators/duality_tiles.cuh"
#include "optimized/cuda/operators/kernels.h"
#include "reference/error.h"

/// Row of the table: state space duality.
namespace samestate::cuda {
namespace {

template <class Body, class Operand>
void launch_heads(const DualityParameters<Operand>& p, std::size_t shared_bytes, cudaStream_t stream) {
  launch<Body>(blocks_of(p.batch * p.H * p.column_tiles(), 1), shared_bytes, p, stream);
}

template <int kN>
void launch_tiles(const DualityParameters<Bf16>& p, cudaStream_t stream) {
  launch_heads<DualityTiles<kN>>(p, sizeof(typename DualityTiles<kN>::Shared), stream);
}

void launch_duality(const DualityParameters<float>& p, cudaStream_t stream) {
  launch_heads<DualityRows>(p, DualityRows::shared_bytes(p), stream);
}
void launch_duality(const DualityParameters<Bf16>& p, cudaStream_t stream) {
  if (p.N <= 64) return launch_tiles<64>(p, stream);
  if (p.N <= 128) return launch_tiles<128>(p, stream);
  launch_tiles<256>(p, stream);
}

struct StateSpaceDuality {
  template <class Operand>
  using Parameters = DualityParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    if (call.chunk < 1)
      throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
    Parameters<Operand> p;
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
    p.batch = call.batch;
    p.tokens = call.tokens;
    p.chunk = call.chunk;
    p.H = static_cast<int>(call.parameter("H"));
    p.G = static_cast<int>(call.parameter("G"));
    p.P = static_cast<int>(call.parameter("P"));
    p.N = static_cast<int>(call.parameter("N"));
    p.steps = tensors.template scratch<float>(p.batch * p.H * p.tokens * 4);
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    EachWarp<DualitySteps<Operand>>::launch(p, stream);
    launch_duality(p, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> duality_kernels() {
  return {row<StateSpaceDuality>("state_space_duality", "chunked", {"N <= 256"})};
}

}  // namespace samestate::cuda
