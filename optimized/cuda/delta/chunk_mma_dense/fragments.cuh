#pragma once

#include "optimized/cuda/delta/chunk_fma_dense/layout.cuh"

/// Operands of m16n8k8 in tf32, and where a lane's share of them lies.
namespace samestate::cuda::mma {

/// A lane's elements of a 16 x 8 result: rows r, r + 8, columns c, c + 1.
struct Cell {
  int r = lane_index() / 4, c = 2 * (lane_index() % 4);
};

/// Returns the offset of the address that this lane passes for rows [row, row + 16) and columns [column,
/// column + 8) of a left operand stored by rows.
SAMESTATE_DEVICE int left_offset(int stride, int row, int column) {
  const int lane = lane_index();
  return (row + lane % 16) * stride + column + lane / 16 * 4;
}

/// Returns the same for two right operands side by side, [8, 16], stored transposed: their columns are rows.
SAMESTATE_DEVICE int right_offset(int stride, int row, int column) {
  const int lane = lane_index();
  return (row + lane / 16 * 8 + lane % 8) * stride + column + lane / 8 % 2 * 4;
}

/// Rounded to nearest even: of numbers as they are given.
SAMESTATE_DEVICE void round(std::uint32_t (&x)[4]) {
  SAMESTATE_UNROLL
  for (std::uint32_t& bits : x) bits = tf32_even(float_of(bits));
}

/// Two 16 x 8 results side by side += left [16, 8] right [8, 16].
SAMESTATE_DEVICE void multiply_two(float (&low)[4], float (&high)[4], const std::uint32_t (&left)[4],
                                   const std::uint32_t (&right)[4]) {
  multiply_tf32(low, left, right[0], right[1]);
  multiply_tf32(high, left, right[2], right[3]);
}

/// x as a number of tf32.
SAMESTATE_DEVICE float rounded(float x) { return float_of(tf32_even(x)); }

}  // namespace samestate::cuda::mma
