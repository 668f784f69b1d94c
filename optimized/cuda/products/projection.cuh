#pragma once

#include <cstdint>

#include "optimized/cuda/products/product.cuh"

namespace samestate::cuda {

/// A projection y = x w^T, rounded once.
template <class Operand>
using Projection = ProductParameters<Operand, StoreProduct<Operand>>;

/// x: [rows, depth], weight: [columns, depth], y: [rows, columns], all dense.
template <class Operand>
Projection<Operand> projection(const Operand* x, const Operand* weight, Operand* y, std::int64_t rows,
                               std::int64_t columns, std::int64_t depth) {
  Projection<Operand> p;
  p.x = x, p.w = weight, p.rows = rows, p.columns = columns, p.depth = depth;
  p.x_stride = p.w_stride = depth;
  p.epilogue.y = y, p.epilogue.stride = columns;
  return p;
}

template <class Operand>
void project(const Projection<Operand>& p, cudaStream_t stream) {
  Product<Operand, StoreProduct<Operand>>::launch(p, stream);
}

template <class Operand>
struct PadParameters {
  Operand* y = nullptr;         ///< [rows, columns]
  const float* mask = nullptr;  ///< [rows], 0: a pad
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Zero in the rows of pads, whose projections they have, as their hidden states are. The other rows are not touched: a launch
/// that has nothing to do but read the mask costs less than an epilogue that no library has.
template <class Operand>
struct ClearedPad {
  using Parameters = PadParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    if (p.mask[row] != 0.0F) return;
    for (std::int64_t c = lane_index(); c < p.columns; c += 32) p.y[row * p.columns + c] = Operand{};
  }
};

}  // namespace samestate::cuda
