#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cpu/block.h"

/// Matrix products with either way of summing: FusedSums in the kernels, EmulatedSums in their twins. Every
/// element is summed over the inner index in a fixed order, so the bits depend neither on the blocking nor on
/// the threads, and terms that are zero change nothing.
namespace samestate::cpu {

/// c = a b.
template <class Sums>
void product(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  sums.multiply(a.row(0), a.stride, b.row(0), b.stride, c.row(0), c.stride, a.rows, b.stride, b.rows);
}

/// Rows that a triangular product handles at a time: two strips of FusedSums::tile.
inline constexpr std::int64_t kTriangleRows = 12;

/// c = a b, if only the elements j <= i of c are wanted; the others are left undefined.
template <class Sums>
void product_lower(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; i += kTriangleRows) {
    const std::int64_t end = std::min(a.rows, i + kTriangleRows);
    sums.multiply(a.row(i), a.stride, b.row(0), b.stride, c.row(i), c.stride, end - i, round_up(end, kPanel),
                  b.rows);
  }
}

/// c = a b for a lower triangular a: terms past the diagonal block are zero and are not computed.
template <class Sums>
void lower_product(const Sums& sums, const Block& a, const Block& b, Block& c) {
  c.resize(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; i += kTriangleRows) {
    const std::int64_t end = std::min(a.rows, i + kTriangleRows);
    sums.multiply(a.row(i), a.stride, b.row(0), b.stride, c.row(i), c.stride, end - i, b.stride, end);
  }
}

}  // namespace samestate::cpu
