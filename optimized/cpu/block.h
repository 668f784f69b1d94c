#pragma once

#include <cstdint>
#include <vector>

#include "optimized/cpu/lanes.h"
#include "optimized/cpu/rounding.h"

namespace samestate::cpu {

/// Columns that one step of a matrix product covers; every row is padded to a multiple of this.
inline constexpr std::int64_t kPanel = 2 * kLanes;

/// Columns of the state that one recurrent task holds: 128 x 64 fp32 values are 32 KiB of L1 cache.
inline constexpr std::int64_t kStateColumns = 64;

/// A row-major matrix in scratch memory, with rows padded with zeros to a multiple of kPanel.
struct Block {
  std::vector<float> values;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  /// Sets the size. The values become zero if it changes and stay untouched if it does not.
  void resize(std::int64_t new_rows, std::int64_t new_columns) {
    if (new_rows == rows && new_columns == columns) return;
    rows = new_rows;
    columns = new_columns;
    stride = round_up(new_columns, kPanel);
    values.assign(static_cast<std::size_t>(rows * stride), 0.0F);
  }

  [[nodiscard]] float* row(std::int64_t i) { return values.data() + i * stride; }
  [[nodiscard]] const float* row(std::int64_t i) const { return values.data() + i * stride; }
  [[nodiscard]] std::int64_t size() const { return rows * stride; }
};

/// x rounded to `format`: x itself if that changes nothing, else `scratch`.
[[nodiscard]] inline const Block& rounded(const Block& x, Format format, Block& scratch) {
  if (keeps_fp32(format)) return x;
  scratch.resize(x.rows, x.columns);
  round_values(x.values.data(), scratch.values.data(), x.size(), format);
  return scratch;
}

inline void round_in_place(Block& x, Format format) {
  if (!keeps_fp32(format)) round_values(x.values.data(), x.values.data(), x.size(), format);
}

/// to <- x^T.
inline void transpose(const Block& x, Block& to) {
  to.resize(x.columns, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) to.row(j)[i] = x.row(i)[j];
  }
}

inline void scale_block(float factor, Block& x) {
  for (float& value : x.values) value *= factor;
}

/// to[i, :] <- factor[i] x[i, :]; `to` may be x.
inline void scale_rows(const float* factor, const Block& x, Block& to) {
  to.resize(x.rows, x.columns);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.stride; ++j) to.row(i)[j] = factor[i] * x.row(i)[j];
  }
}

}  // namespace samestate::cpu
