#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cpu/block.h"
#include "optimized/cpu/operators/matrix_unit.h"
#include "optimized/cpu/products.h"
#include "optimized/operator_kernel.h"

/// Helpers shared by the operators' kernels: parts of named tensors as blocks, and the rounding of the
/// output.
namespace samestate::cpu {

/// Rows of `width` values whose starts are `stride` apart.
template <class T>
struct TensorRows {
  T* data = nullptr;
  std::int64_t count = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
  /// The columns [begin, begin + size).
  [[nodiscard]] TensorRows columns(std::int64_t begin, std::int64_t size) const {
    return {data + begin, count, size, stride};
  }
  [[nodiscard]] TensorRows rows(std::int64_t begin, std::int64_t size) const {
    return {row(begin), size, width, stride};
  }
};

/// Sequence b of a tensor [B, ..., width], with all extents in between flattened to rows; if `batched` is
/// false, the whole tensor.
template <class T>
[[nodiscard]] TensorRows<T> rows_of(const NamedTensor<T>& tensor, std::int64_t b, bool batched = true) {
  const std::int64_t width = tensor.shape.empty() ? 1 : tensor.shape.back();
  std::int64_t rows = 1;
  for (std::size_t d = batched ? 1 : 0; d + 1 < tensor.shape.size(); ++d) rows *= tensor.shape[d];
  return {tensor.data + (batched ? b * rows * width : 0), rows, width, width};
}

inline void copy(const TensorRows<const float>& from, Block& to) {
  to.resize(from.count, from.width);
  for (std::int64_t i = 0; i < from.count; ++i) std::copy_n(from.row(i), from.width, to.row(i));
}

/// to <- from^T.
inline void copy_transposed(const TensorRows<const float>& from, Block& to) {
  to.resize(from.width, from.count);
  for (std::int64_t i = 0; i < from.count; ++i) {
    for (std::int64_t j = 0; j < from.width; ++j) to.row(j)[i] = from.row(i)[j];
  }
}

/// The first `to.width` columns of `from`, rounded to `format`.
inline void store_rounded(const Block& from, const TensorRows<float>& to, Format format) {
  for (std::int64_t i = 0; i < to.count; ++i) round_values(from.row(i), to.row(i), to.width, format);
}

/// y = x W^T for x [rows, in] and W [out, in] (the layout of checkpoints), with W given transposed: [in,
/// out].
inline void project(const Block& x, const Block& weight_transposed, Block& y, const MatrixUnit& unit) {
  product(unit, x, weight_transposed, y);
}

}  // namespace samestate::cpu
