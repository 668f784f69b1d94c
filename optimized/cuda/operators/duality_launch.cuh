#pragma once

#include <string>

#include "optimized/cuda/operators/duality_rows.cuh"
#include "optimized/cuda/operators/duality_tiles.cuh"
#include "optimized/operator_kernel.h"
#include "reference/error.h"

/// State space duality of a call: its sizes and its launches, the steps of time and then the chunks.
namespace samestate::cuda {

template <class Operand>
[[nodiscard]] DualityParameters<Operand> duality_of(const OperatorArguments& call) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  DualityParameters<Operand> p;
  p.batch = call.batch;
  p.tokens = call.tokens;
  p.chunk = call.chunk;
  p.H = static_cast<int>(call.parameter("H"));
  p.G = static_cast<int>(call.parameter("G"));
  p.P = static_cast<int>(call.parameter("P"));
  p.N = static_cast<int>(call.parameter("N"));
  return p;
}

template <class Body, class Operand>
void launch_heads(const DualityParameters<Operand>& p, std::size_t shared_bytes, cudaStream_t stream) {
  launch<Body>(blocks_of(p.batch * p.H * p.column_tiles(), 1), shared_bytes, p, stream);
}

template <int kN>
void launch_tiles(const DualityParameters<Bf16>& p, cudaStream_t stream) {
  launch_heads<DualityTiles<kN>>(p, sizeof(typename DualityTiles<kN>::Shared), stream);
}

inline void launch_tiles(const DualityParameters<float>& p, cudaStream_t stream) {
  launch_heads<DualityRows>(p, DualityRows::shared_bytes(p), stream);
}
inline void launch_tiles(const DualityParameters<Bf16>& p, cudaStream_t stream) {
  if (p.N <= 64) return launch_tiles<64>(p, stream);
  if (p.N <= 128) return launch_tiles<128>(p, stream);
  launch_tiles<256>(p, stream);
}

template <class Operand>
void launch_duality(const DualityParameters<Operand>& p, cudaStream_t stream) {
  EachWarp<DualitySteps<Operand>>::launch(p, stream);
  launch_tiles(p, stream);
}

}  // namespace samestate::cuda
