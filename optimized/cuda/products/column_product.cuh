#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// y = x W of every head for few rows, W as it lies, a row for each of x's columns: what product.cuh, whose matrices lie the other
/// way, would have transposed first. It waits for W's memory, so FMA units are enough.
namespace samestate::cuda {

template <class Operand>
struct ColumnProductParameters {
  const Operand* x =
      nullptr;  ///< [rows][heads, depth], `x_stride` from row to row, `x_head` from head to head
  const Operand* w = nullptr;  ///< [heads][depth, columns], `w_head` from matrix to matrix
  Operand* y = nullptr;        ///< [rows][heads, columns], `y_stride`, `y_head`
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  std::int64_t x_head = 0;
  std::int64_t w_head = 0;
  std::int64_t y_stride = 0;
  std::int64_t y_head = 0;
  int heads = 1;
  int depth = 1;
  int columns = 1;
};

/// A block takes kRows rows of one head and eight times 16 bytes of columns; of its 32 groups of eight threads each sums over every
/// 32nd of the depth, and the sums of groups are added in their order.
template <class Operand, int kRows>
struct ColumnProduct {
  using Parameters = ColumnProductParameters<Operand>;
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Operand));  ///< elements
  static constexpr int kLanes = 8, kGroups = kThreads / kLanes;
  static constexpr int kColumns = kLanes * kPiece;
  static_assert(kRows % 4 == 0, "x is read by four rows");

  static SAMESTATE_HOST_DEVICE std::int64_t column_tiles(const Parameters& p) {
    return (p.columns + kColumns - 1) / kColumns;
  }
  static SAMESTATE_HOST_DEVICE std::int64_t blocks(const Parameters& p) {
    return (p.rows + kRows - 1) / kRows * p.heads * column_tiles(p);
  }
  static std::size_t shared_bytes(const Parameters& p) {
    return sizeof(float) * kRows * (static_cast<std::size_t>(p.depth) + kWarps * kColumns);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<ColumnProduct>(blocks_of(blocks(p), 1), shared_bytes(p), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    auto left = static_cast<std::uint32_t>(block_index());
    const auto next = [&](std::int64_t count) {
      const std::uint32_t digit = left % static_cast<std::uint32_t>(count);
      left /= static_cast<std::uint32_t>(count);
      return static_cast<int>(digit);
    };
    const int first_column = next(column_tiles(p)) * kColumns, head = next(p.heads);
    const std::int64_t first_row = std::int64_t{left} * kRows;
    float* const x = reinterpret_cast<float*>(shared);  // [depth, kRows]
    float* const parts = x + p.depth * kRows;           // [kWarps, kRows, kColumns]

    for (int i = thread_index(); i < p.depth * kRows; i += kThreads) {
      const int row = i / p.depth, k = i % p.depth;
      x[k * kRows + row] =
          first_row + row < p.rows ? widen(p.x[(first_row + row) * p.x_stride + head * p.x_head + k]) : 0.0F;
    }
    block_barrier();

    const int lane = thread_index() % kLanes, column = first_column + lane * kPiece;
    const Operand* const w = p.w + head * p.w_head + column;
    float sum[kRows][kPiece] = {};
    constexpr int kAsked = 4;  // pieces under way
    SAMESTATE_NO_UNROLL
    for (int first = thread_index() / kLanes; first < p.depth; first += kAsked * kGroups) {
      Vector<Operand, kPiece> piece[kAsked];
      SAMESTATE_UNROLL
      for (int i = 0; i < kAsked; ++i) {
        const int k = first + i * kGroups;
        piece[i] = load_settled<false>(
            reinterpret_cast<const Vector<Operand, kPiece>*>(w + std::int64_t{k} * p.columns),
            k < p.depth && column < p.columns);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < kAsked; ++i) {
        const int k = first + i * kGroups;
        if (k < p.depth) add(sum, x + k * kRows, piece[i]);
      }
    }
    meet(sum, parts);
    for (int i = thread_index(); i < kRows * kColumns; i += kThreads) {
      const int row = i / kColumns, at = first_column + i % kColumns;
      if (first_row + row >= p.rows || at >= p.columns) continue;
      float total = 0.0F;
      SAMESTATE_UNROLL
      for (int warp = 0; warp < kWarps; ++warp) total += parts[warp * kRows * kColumns + i];
      p.y[(first_row + row) * p.y_stride + head * p.y_head + at] = narrow<Operand>(total);
    }
  }

 private:
  static SAMESTATE_DEVICE void add(float (&sum)[kRows][kPiece], const float* x,
                                   const Vector<Operand, kPiece>& piece) {
    SAMESTATE_UNROLL
    for (int row = 0; row < kRows; row += 4) {
      const Quad four = load_quad(x + row);
      SAMESTATE_UNROLL
      for (int e = 0; e < kPiece; ++e) {
        const float of_column = element(piece, e);
        sum[row][e] = fused(four.x, of_column, sum[row][e]);
        sum[row + 1][e] = fused(four.y, of_column, sum[row + 1][e]);
        sum[row + 2][e] = fused(four.z, of_column, sum[row + 2][e]);
        sum[row + 3][e] = fused(four.w, of_column, sum[row + 3][e]);
      }
    }
  }

  /// The sums of a warp's four groups, then all warps' in shared memory.
  static SAMESTATE_DEVICE void meet(float (&sum)[kRows][kPiece], float* parts) {
    SAMESTATE_UNROLL
    for (int row = 0; row < kRows; ++row) {
      SAMESTATE_UNROLL
      for (int e = 0; e < kPiece; ++e) {
        sum[row][e] += shuffle_xor(sum[row][e], 8);
        sum[row][e] += shuffle_xor(sum[row][e], 16);
      }
    }
    if (lane_index() < kLanes) {
      SAMESTATE_UNROLL
      for (int row = 0; row < kRows; ++row) {
        SAMESTATE_UNROLL
        for (int e = 0; e < kPiece; ++e)
          parts[(warp_index() * kRows + row) * kColumns + lane_index() * kPiece + e] = sum[row][e];
      }
    }
    block_barrier();
  }
};

/// Rows beyond which the matrix unit is worth a transposed W; what x takes of shared memory.
inline constexpr std::int64_t kColumnProductRows = 64, kColumnProductDepth = 1024;

/// Returns true if this is the kernel for it: 16 bytes of W's rows are one access.
template <class Operand>
bool in_column_product(const ColumnProductParameters<Operand>& p) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  return p.rows <= kColumnProductRows && p.depth <= kColumnProductDepth && p.columns % n == 0 &&
         p.w_head % n == 0 && reinterpret_cast<std::uintptr_t>(p.w) % 16 == 0;
}

/// `work.template operator()<kRows>()` with those of a block.
template <class Operand, class Work>
void with_column_rows(const ColumnProductParameters<Operand>& p, Work&& work) {
  p.rows <= 4 ? work.template operator()<4>() : work.template operator()<16>();
}

}  // namespace samestate::cuda
