#pragma once

#include <cstdint>

#include "optimized/cuda/operators/product.cuh"

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

}  // namespace samestate::cuda
