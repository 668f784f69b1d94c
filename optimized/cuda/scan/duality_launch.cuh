#pragma once

#include <string>

#include "optimized/cuda/scan/duality_chunk_fma.cuh"
#include "optimized/cuda/scan/duality_chunk_mma.cuh"
#include "optimized/operator_kernel.h"
#include "reference/error.h"

/// State space duality of a call: its sizes, its scratch memory and its launches, the steps of time and then the chunks.
namespace samestate::cuda {

/// All but the tensors of the call.
template <class Operand, class Tensors>
[[nodiscard]] DualityParameters<Operand> duality_of(const OperatorArguments& call, Tensors& tensors) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  DualityParameters<Operand> p;
  p.batch = call.batch;
  p.tokens = call.tokens;
  p.H = static_cast<int>(call.parameter("H"));
  p.G = static_cast<int>(call.parameter("G"));
  p.P = static_cast<int>(call.parameter("P"));
  p.N = static_cast<int>(call.parameter("N"));
  p.steps = tensors.template scratch<float>(p.states() * p.tokens * 4);
  if constexpr (sizeof(Operand) == 2) {
    p.chunk = kDualityTokens;
    const Segments of =
        plan_segments(p.states() * p.column_tiles(), resident_of_width(p.N), p.tokens, kDualityTokens);
    p.segment = of.tokens;
    p.segments = of.count;
    if (p.segments > 1) {
      p.carried = tensors.template scratch<float>((p.segments - 1) * p.states() * p.P * p.N);
      p.decays = tensors.template scratch<float>((p.segments - 1) * p.states());
    }
  } else {
    p.chunk = kRowTokens;
    p.products = tensors.template scratch<float>(p.batch * p.G * p.chunks() * kRowTokens * kRowTokens);
  }
  return p;
}

inline void launch_chunks(const DualityParameters<float>& p, cudaStream_t stream) {
  DualityProducts::launch(p, stream);
  tile_width(p.N, [&](auto width) { DualityRows<width>::launch(p, stream); });
}
inline void launch_chunks(const DualityParameters<Bf16>& p, cudaStream_t stream) {
  tile_width(p.N, [&](auto width) {
    if (p.segments > 1) {
      DualityTiles<width, false>::launch(p, stream);
      EachThread<CarryDuality>::launch(p, stream);
    }
    DualityTiles<width, true>::launch(p, stream);
  });
}

template <class Operand>
void launch_duality(const DualityParameters<Operand>& p, cudaStream_t stream) {
  EachWarp<DualitySteps<Operand>>::launch(p, stream);
  launch_chunks(p, stream);
}

}  // namespace samestate::cuda
