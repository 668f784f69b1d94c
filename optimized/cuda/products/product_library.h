#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"

/// cuBLASLt as an alternative to the grids of product.cuh, loaded if it is installed: a build needs neither
/// its header nor the library, and a machine without it uses product.cuh alone. Two launches share nothing:
/// no workspace is requested, so no algorithm splits its sums over blocks, and the algorithm for a shape is
/// chosen once per process, by a heuristic that depends on the shape alone. A product therefore has the same
/// bits in every run, whatever runs at the same time.
namespace samestate::cuda {

/// y = x w^T, rounded once. Rows of all three are contiguous; sums are in fp32 (fp32 operands are never
/// truncated to tf32).
struct PlainProduct {
  const void* x = nullptr;  ///< [batch][rows, depth]
  const void* w = nullptr;  ///< [batch][columns, depth]
  void* y = nullptr;        ///< [batch][rows, columns]
  std::int64_t rows = 0;    ///< at least 1, like columns, depth and batch
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  std::int64_t x_stride = 0;  ///< from row to row, in elements
  std::int64_t w_stride = 0;
  std::int64_t y_stride = 0;
  std::int64_t batch = 1;
  std::int64_t x_batch = 0;  ///< from matrix to matrix
  std::int64_t w_batch = 0;
  std::int64_t y_batch = 0;
  bool bf16 = false;  ///< x and w are bf16; if false, fp32
  bool y_bf16 = false;

  /// Everything on which an algorithm depends besides the addresses, which are 16-byte aligned.
  [[nodiscard]] auto shape() const {
    struct Shape {
      std::int64_t sizes[3], strides[3], batches[4];
      bool formats[2];
      auto operator<=>(const Shape&) const = default;
    };
    return Shape{{rows, columns, depth},
                 {x_stride, w_stride, y_stride},
                 {batch, x_batch, w_batch, y_batch},
                 {bf16, y_bf16}};
  }
};

#ifdef __CUDACC__
/// Enqueues the product. Returns false, without enqueuing anything, if the library is not installed, not
/// wanted, or has no algorithm for the shape. May be called from several threads at once, and while a graph
/// is captured if the shape has been multiplied before. Throws Error if the library refuses an algorithm that
/// it offered.
[[nodiscard]] bool multiply_by_library(const PlainProduct& p, cudaStream_t stream);
#else
/// The library of the emulation: it sums one term after the other, for every other shape, so that a gate
/// tests both implementations.
[[nodiscard]] inline bool multiply_by_library(const PlainProduct& p, cudaStream_t) {
  if ((p.rows + p.columns + p.depth / 8) % 2 == 0) return false;
  const auto at = [](const void* matrix, bool bf16, std::int64_t i) {
    return bf16 ? widen(static_cast<const Bf16*>(matrix)[i]) : static_cast<const float*>(matrix)[i];
  };
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t row = 0; row < p.rows; ++row) {
      for (std::int64_t column = 0; column < p.columns; ++column) {
        float sum = 0.0F;
        for (std::int64_t k = 0; k < p.depth; ++k)
          sum = fused(at(p.x, p.bf16, b * p.x_batch + row * p.x_stride + k),
                      at(p.w, p.bf16, b * p.w_batch + column * p.w_stride + k), sum);
        const std::int64_t to = b * p.y_batch + row * p.y_stride + column;
        if (p.y_bf16) {
          static_cast<Bf16*>(p.y)[to] = narrow<Bf16>(sum);
        } else {
          static_cast<float*>(p.y)[to] = sum;
        }
      }
    }
  }
  return true;
}
#endif

}  // namespace samestate::cuda
