#pragma once

#include "optimized/cuda/units/intrinsics.cuh"

/// Products of matrices in shared memory, shared out over the warps of a block in tiles of 16 x 16. Row
/// strides are odd multiples of 16 bytes, so that neither ldmatrix nor 16-byte loads meet a bank conflict.
namespace samestate::cuda {

/// Elements between rows of `width` operands in shared memory; width is a multiple of 16.
template <class Operand>
SAMESTATE_HOST_DEVICE constexpr int row_stride(int width) {
  return width + 16 / static_cast<int>(sizeof(Operand));
}

/// How the left operand [M, depth] is stored: by rows, or transposed as [depth, M].
enum class Left { rows, transposed };
/// How the right operand [depth, N] is stored: by rows, or transposed as [N, depth].
enum class Right { rows, transposed };
/// The part that is known to be zero: nothing, the result above its diagonal, or the left operand above its
/// diagonal.
enum class Structure { dense, lower_result, lower_left };

/// The eight elements that a lane holds of a 16 x 16 tile of A B.
template <class Operand>
struct Tile;

/// Tensor cores: two m16n8k16 side by side, fp32 sums.
template <>
struct Tile<Bf16> {
  float sum[2][4] = {};

  template <Left left, Right right>
  SAMESTATE_DEVICE void multiply(const Bf16* a, int a_stride, const Bf16* b, int b_stride, int depth) {
    // ldmatrix: lane 8 i + r points at row r of matrix i; matrices in the order of the fragments' registers.
    const int r = lane_index() % 8;
    const int i = lane_index() / 8;
    const Bf16* a_row = left == Left::rows ? a + (r + 8 * (i % 2)) * a_stride + 8 * (i / 2)
                                           : a + (r + 8 * (i / 2)) * a_stride + 8 * (i % 2);
    const Bf16* b_row = right == Right::rows ? b + (r + 8 * (i % 2)) * b_stride + 8 * (i / 2)
                                             : b + (r + 8 * (i / 2)) * b_stride + 8 * (i % 2);
    for (int k = 0; k < depth; k += 16) {
      std::uint32_t a_part[4];
      std::uint32_t b_part[4];
      load_matrices<left == Left::transposed>(a_part, a_row + (left == Left::rows ? k : k * a_stride));
      load_matrices<right == Right::rows>(b_part, b_row + (right == Right::transposed ? k : k * b_stride));
      multiply_bf16(sum[0], a_part, b_part[0], b_part[1]);
      multiply_bf16(sum[1], a_part, b_part[2], b_part[3]);
    }
  }

  template <Left, Right, class Each>
  SAMESTATE_DEVICE void visit(int row, int column, Each&& each) const {
    SAMESTATE_UNROLL
    for (int e = 0; e < 8; ++e) {
      each(row + lane_index() / 4 + 8 * (e % 4 / 2), column + 2 * (lane_index() % 4) + e % 2 + 8 * (e / 4),
           sum[e / 4][e % 4]);
    }
  }
};

/// fp32 FMAs, the depth in order: a lane holds 4 rows x 2 columns, placed so that its loads are 16 bytes
/// where the operand is contiguous along the depth and adjacent where it is not.
template <>
struct Tile<float> {
  float sum[4][2] = {};

  template <Left left, Right right>
  SAMESTATE_DEVICE void multiply(const float* a, int a_stride, const float* b, int b_stride, int depth) {
    static_assert(!(left == Left::transposed && right == Right::transposed),
                  "one operand at most lies against its depth: the loads of 16 bytes need the other");
    const int y = lane_index() / 8;
    const int x = lane_index() % 8;
    for (int k = 0; k < depth; k += 4) {
      float a_part[4][4];  // [k][i]
      float b_part[4][2];  // [k][j]
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) {
        if constexpr (left == Left::rows) {
          const Quad part = load_quad(a + row(y, i, left) * a_stride + k);
          a_part[0][i] = part.x, a_part[1][i] = part.y, a_part[2][i] = part.z, a_part[3][i] = part.w;
        } else {
          const Quad part = load_quad(a + (k + i) * a_stride + row(y, 0, left));
          a_part[i][0] = part.x, a_part[i][1] = part.y, a_part[i][2] = part.z, a_part[i][3] = part.w;
        }
      }
      if constexpr (right == Right::rows) {
        SAMESTATE_UNROLL
        for (int i = 0; i < 4; ++i) {
          const Pair part = load_pair(b + (k + i) * b_stride + column(x, 0, right));
          b_part[i][0] = part.x, b_part[i][1] = part.y;
        }
      } else {
        SAMESTATE_UNROLL
        for (int j = 0; j < 2; ++j) {
          const Quad part = load_quad(b + column(x, j, right) * b_stride + k);
          b_part[0][j] = part.x, b_part[1][j] = part.y, b_part[2][j] = part.z, b_part[3][j] = part.w;
        }
      }
      SAMESTATE_UNROLL
      for (int l = 0; l < 4; ++l) {
        SAMESTATE_UNROLL
        for (int i = 0; i < 4; ++i) {
          SAMESTATE_UNROLL
          for (int j = 0; j < 2; ++j) sum[i][j] = fused(a_part[l][i], b_part[l][j], sum[i][j]);
        }
      }
    }
  }

  template <Left left, Right right, class Each>
  SAMESTATE_DEVICE void visit(int first_row, int first_column, Each&& each) const {
    SAMESTATE_UNROLL
    for (int e = 0; e < 8; ++e) {
      each(first_row + row(lane_index() / 8, e / 2, left),
           first_column + column(lane_index() % 8, e % 2, right), sum[e / 2][e % 2]);
    }
  }

 private:
  SAMESTATE_DEVICE static int row(int y, int i, Left left) {
    return left == Left::rows ? y + 4 * i : 4 * y + i;
  }
  SAMESTATE_DEVICE static int column(int x, int j, Right right) {
    return right == Right::rows ? 2 * x + j : x + 8 * j;
  }
};

/// each(row, column, sum over l < depth of A[row, l] B[l, column]) for every element of A B [rows, columns];
/// all three sizes are multiples of 16. Which lane visits an element depends on the sizes alone. No barrier
/// inside.
template <Left left, Right right, Structure structure, class Operand, class Each>
SAMESTATE_DEVICE void multiply(const Operand* a, int a_stride, const Operand* b, int b_stride, int rows,
                               int columns, int depth, Each&& each) {
  const int tiles_across = columns / 16;
  for (int tile = warp_index(); tile < rows / 16 * tiles_across; tile += block_warps()) {
    const int row = tile / tiles_across * 16;
    const int column = tile % tiles_across * 16;
    Tile<Operand> product;
    if (structure != Structure::lower_result || column <= row) {
      product.template multiply<left, right>(a + (left == Left::rows ? row * a_stride : row), a_stride,
                                             b + (right == Right::rows ? column : column * b_stride),
                                             b_stride, structure == Structure::lower_left ? row + 16 : depth);
    }
    product.template visit<left, right>(row, column, each);
  }
}

}  // namespace samestate::cuda
