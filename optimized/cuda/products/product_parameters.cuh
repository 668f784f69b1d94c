#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/products/product_library.h"

/// The input of a matrix product (product.cuh), and which products are plain ones, as a library computes
/// them.
namespace samestate::cuda {

/// At most `rows` rows of x that one w multiplies, of a product in groups whose sizes only the device knows.
struct ProductTile {
  std::int32_t group = 0;  ///< group of w
  std::int32_t rows = 0;   ///< 0 if there is no such tile
  std::int64_t first = 0;  ///< row
};

/// Rows of a tile: those of a ProductTile may not be more.
enum class ProductTiling { skinny = 16, medium = 64, wide = 128 };

template <class Operand, class Epilogue>
struct ProductParameters {
  const Operand* x = nullptr;  ///< [batch][rows, depth]
  const Operand* w = nullptr;  ///< [batch][columns, depth]
  const Operand* w2 = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t depth = 0;
  std::int64_t x_stride = 0;  ///< from row to row, in elements; of w2 that of w
  std::int64_t w_stride = 0;
  std::int64_t batch = 1;
  std::int64_t x_batch = 0;  ///< from matrix to matrix
  std::int64_t w_batch = 0;
  const std::int32_t* x_rows = nullptr;  ///< [rows]: which row of x is row r; null means r
  /// [tile_count], each a tile of its own and a group's of w_batch: then batch is 1, and `batch` of the epilogue the group.
  const ProductTile* tiles = nullptr;
  std::int64_t tile_count = 0;
  ProductTiling tiling = ProductTiling::wide;  ///< tiling of `tiles`; else launch() chooses
  Epilogue epilogue = {};
  bool in_pieces = false;  ///< in pieces of 16 bytes; set by launch()
};

/// Returns the tiling for `groups` groups that have `rows` rows in all.
inline ProductTiling product_tiling(std::int64_t rows, std::int64_t groups) {
  if (rows <= 16 * groups) return ProductTiling::skinny;
  return rows <= 64 * groups ? ProductTiling::medium : ProductTiling::wide;
}
/// No more tiles than this, whatever the sizes of the groups.
inline std::int64_t product_tiles(std::int64_t rows, std::int64_t groups, ProductTiling tiling) {
  return rows / static_cast<int>(tiling) + std::min(rows, groups);
}

/// `values` to adjacent elements, by one access where it is aligned.
template <class T, int n>
SAMESTATE_DEVICE void store_adjacent(T* to, const float (&values)[n]) {
  using Elements = Vector<T, n>;
  if (reinterpret_cast<std::uintptr_t>(to) % sizeof(Elements) == 0) {
    *reinterpret_cast<Elements*>(to) = narrowed<T>(values);
  } else {
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) to[i] = narrow<T>(values[i]);
  }
}

/// y = x w^T + bias, rounded once.
template <class Out>
struct StoreProduct {
  static constexpr bool kPaired = false;
  Out* y = nullptr;
  std::int64_t stride = 0;      ///< from row to row
  std::int64_t batch = 0;       ///< from matrix to matrix
  const float* bias = nullptr;  ///< [columns] or none

  template <int n>
  SAMESTATE_DEVICE void operator()(std::int64_t of, std::int64_t row, std::int64_t column,
                                   const float (&sums)[n]) const {
    float values[n];
    SAMESTATE_UNROLL
    for (int i = 0; i < n; ++i) values[i] = bias == nullptr ? sums[i] : sums[i] + bias[column + i];
    store_adjacent(y + of * batch + row * stride + column, values);
  }
};

/// The product as the library takes it: not gathered, not in groups, stored as it is, everything at 16 bytes; else none.
template <class Operand, class Epilogue>
[[nodiscard]] std::optional<PlainProduct> plain_product(const ProductParameters<Operand, Epilogue>&) {
  return {};
}
template <class Operand, class Out>
[[nodiscard]] std::optional<PlainProduct> plain_product(
    const ProductParameters<Operand, StoreProduct<Out>>& p) {
  const StoreProduct<Out>& to = p.epilogue;
  if (p.tiles != nullptr || p.x_rows != nullptr || to.bias != nullptr) return {};
  if (p.rows < 1 || p.columns < 1 || p.depth < 1 || p.batch < 1) return {};
  const auto aligned = [](const auto* at, std::int64_t stride, std::int64_t batch) {
    constexpr auto n = static_cast<std::int64_t>(16 / sizeof *at);
    return reinterpret_cast<std::uintptr_t>(at) % 16 == 0 && stride % n == 0 && batch % n == 0;
  };
  if (!aligned(p.x, p.x_stride, p.x_batch) || !aligned(p.w, p.w_stride, p.w_batch) ||
      !aligned(to.y, to.stride, to.batch))
    return {};
  // Rows that overlap, or a single row for all, are not a matrix that the library takes.
  if (p.x_stride < p.depth || p.w_stride < p.depth || to.stride < p.columns) return {};
  PlainProduct plain;
  plain.x = p.x, plain.w = p.w, plain.y = to.y;
  plain.rows = p.rows, plain.columns = p.columns, plain.depth = p.depth, plain.batch = p.batch;
  plain.x_stride = p.x_stride, plain.w_stride = p.w_stride, plain.y_stride = to.stride;
  plain.x_batch = p.x_batch, plain.w_batch = p.w_batch, plain.y_batch = to.batch;
  plain.bf16 = sizeof(Operand) == 2, plain.y_bf16 = sizeof(Out) == 2;
  return plain;
}

}  // namespace samestate::cuda
