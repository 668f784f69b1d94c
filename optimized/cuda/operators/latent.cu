#include "optimized/cuda/operators/latent.cuh"

#include <cmath>

#include "optimized/cuda/operators/attention_launch.cuh"
#include "optimized/cuda/operators/call.cuh"
#include "optimized/cuda/operators/kernels.h"
#include "optimized/cuda/operators/projection.cuh"

/// Rows of the table: latent attention and its cache.
namespace samestate::cuda {
namespace {

/// One product for latent and rotary key, then norm and rotation of its rows.
struct LatentCache {
  template <class Operand>
  struct Parameters {
    Projection<Operand> down;
    LatentNormParameters<Operand> norm;
    TurnParameters<Operand> turn;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t rows = call.batch * call.tokens, D = call.parameter("D");
    const std::int64_t dc = call.parameter("dc"), dr = call.parameter("dr");
    auto* const both = tensors.template scratch<Operand>(rows * (dc + dr));
    Parameters<Operand> p;
    p.down = projection(tensors.operand("x"), tensors.operand("kv_down"), both, rows, dc + dr, D);
    p.norm = {both, tensors.fp32("kv_norm"), tensors.output("c"), rows, dc + dr, static_cast<int>(dc)};
    if (dr == 0) return p;
    p.turn.x = both + dc, p.turn.x_stride = dc + dr;
    p.turn.cosine = tensors.fp32("cos"), p.turn.sine = tensors.fp32("sin");
    p.turn.y = tensors.output("kr"), p.turn.y_stride = dr;
    p.turn.rows = rows, p.turn.pairs = static_cast<int>(dr / 2);
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    project(p.down, stream);
    norm_latent(p.norm, stream);
    EachThread<TurnedPair<Operand>>::launch(p.turn, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> latent_kernels() { return {row<LatentCache>("latent_cache", "direct")}; }

}  // namespace samestate::cuda
