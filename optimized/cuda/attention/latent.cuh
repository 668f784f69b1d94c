#pragma once

#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// Parts of latent attention (MLA-3 .. MLA-7, EQUATIONS 5.9) between its products.
namespace samestate::cuda {

/// Columns [0, pairs of two) of rows, neighbours turned by their token's angles.
template <class Operand>
struct TurnParameters {
  const Operand* x = nullptr;     ///< [rows, 2 pairs], from row to row x_stride
  const float* cosine = nullptr;  ///< [rows / heads, pairs], and sine
  const float* sine = nullptr;
  Operand* y = nullptr;  ///< the same, y_stride
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  int heads = 1;
  int pairs = 0;
};

/// (a, b) -> (a cos - b sin, b cos + a sin): pair `item` of all rows'.
template <class Operand>
struct TurnedPair {
  using Parameters = TurnParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows * p.pairs; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t row = item / p.pairs, pair = item % p.pairs;
    const Operand* const x = p.x + row * p.x_stride + 2 * pair;
    const float a = widen(x[0]), b = widen(x[1]);
    const float cosine = p.cosine[row / p.heads * p.pairs + pair];
    const float sine = p.sine[row / p.heads * p.pairs + pair];
    Operand* const y = p.y + row * p.y_stride + 2 * pair;
    y[0] = narrow<Operand>(fused(b, -sine, a * cosine));
    y[1] = narrow<Operand>(fused(a, sine, b * cosine));
  }
};

template <class Operand>
struct LatentNormParameters {
  const Operand* x = nullptr;     ///< [rows, width], from row to row x_stride
  const float* weight = nullptr;  ///< [width]
  Operand* y = nullptr;           ///< [rows, width]
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  int width = 1;
};

/// x (mean x^2 + 1e-6)^-1/2 w of a row by one warp, n elements a lane at a time, which divides width and x_stride. The second
/// reading finds the row in the cache.
template <class Operand, int n>
struct LatentNormRow {
  using Parameters = LatentNormParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows; }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) {
    using Elements = Vector<Operand, n>;
    const Operand* const x = p.x + row * p.x_stride;
    float squares = 0.0F;
    for (int column = lane_index() * n; column < p.width; column += 32 * n) {
      const Elements part = *reinterpret_cast<const Elements*>(x + column);
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) squares = fused(element(part, i), element(part, i), squares);
    }
    const float factor = inverse_root(warp_sum(squares) / static_cast<float>(p.width) + 1e-6F);
    for (int column = lane_index() * n; column < p.width; column += 32 * n) {
      const Elements part = *reinterpret_cast<const Elements*>(x + column);
      float y[n];
      SAMESTATE_UNROLL
      for (int i = 0; i < n; ++i) y[i] = element(part, i) * factor * p.weight[column + i];
      *reinterpret_cast<Elements*>(p.y + row * p.width + column) = narrowed<Operand>(y);
    }
  }
};

/// Columns of rows, from one matrix to another.
template <class Operand>
struct CopyParameters {
  const Operand* x = nullptr;  ///< [rows / heads, columns], from row to row x_stride
  Operand* y = nullptr;        ///< [rows, columns], y_stride
  std::int64_t rows = 0;
  std::int64_t x_stride = 0;
  std::int64_t y_stride = 0;
  int heads = 1;  ///< rows of y that have one of x
  int columns = 0;
};

/// n adjacent columns of a row, which divides columns and strides.
template <class Operand, int n>
struct CopiedColumns {
  using Parameters = CopyParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.rows * (p.columns / n); }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    using Elements = Vector<Operand, n>;
    const int pieces = p.columns / n;
    const std::int64_t row = quotient(item, pieces), column = (item - row * pieces) * n;
    *reinterpret_cast<Elements*>(p.y + row * p.y_stride + column) =
        *reinterpret_cast<const Elements*>(p.x + quotient(row, p.heads) * p.x_stride + column);
  }
};

/// Copies 16 bytes per thread if all rows begin at a multiple of them.
template <class Operand>
void copy_columns(const CopyParameters<Operand>& p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const auto begins = reinterpret_cast<std::uintptr_t>(p.x) | reinterpret_cast<std::uintptr_t>(p.y);
  if (p.columns % n == 0 && p.x_stride % n == 0 && p.y_stride % n == 0 && begins % 16 == 0) {
    EachThread<CopiedColumns<Operand, n>>::launch(p, stream);
  } else {
    EachThread<CopiedColumns<Operand, 1>>::launch(p, stream);
  }
}

/// W_UK of every head, [dn, dc], as a product with q^N reads it: [dc, dn].
template <class Operand>
struct TransposeParameters {
  const Operand* x = nullptr;  ///< [heads][rows, columns], from matrix to matrix x_batch
  Operand* y = nullptr;        ///< [heads, columns, rows]
  std::int64_t x_batch = 0;
  int heads = 1;
  int rows = 1;
  int columns = 1;
};

/// A block turns 64 x 64 elements over in shared memory, so that both sides of it are read and written along their rows.
template <class Operand>
struct TransposedTile {
  using Parameters = TransposeParameters<Operand>;
  static constexpr int kThreads = 256, kSide = 64;
  // Words of a column then lie in different banks.
  static constexpr int kRow = kSide + 4 / static_cast<int>(sizeof(Operand));
  static SAMESTATE_HOST_DEVICE std::int64_t tiles(std::int64_t n) { return (n + kSide - 1) / kSide; }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<TransposedTile>(blocks_of(p.heads * tiles(p.rows) * tiles(p.columns), 1),
                                 sizeof(Operand) * kSide * kRow, p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    auto* const tile = reinterpret_cast<Operand*>(shared);
    const std::int64_t line = quotient(block_index(), tiles(p.columns));
    const std::int64_t head = quotient(line, tiles(p.rows));
    const std::int64_t column = (block_index() - line * tiles(p.columns)) * kSide;
    const std::int64_t row = (line - head * tiles(p.rows)) * kSide;
    const Operand* const x = p.x + head * p.x_batch;
    Operand* const y = p.y + head * p.columns * p.rows;
    const int across = thread_index() % kSide;
    SAMESTATE_UNROLL
    for (int i = 0; i < kSide * kSide / kThreads; ++i) {
      const int down = i * (kThreads / kSide) + thread_index() / kSide;
      if (row + down < p.rows && column + across < p.columns)
        tile[down * kRow + across] = x[(row + down) * p.columns + column + across];
    }
    block_barrier();
    SAMESTATE_UNROLL
    for (int i = 0; i < kSide * kSide / kThreads; ++i) {
      const int down = i * (kThreads / kSide) + thread_index() / kSide;
      if (column + down < p.columns && row + across < p.rows)
        y[(column + down) * p.rows + row + across] = tile[across * kRow + down];
    }
  }
};

template <class Operand>
void transpose(const TransposeParameters<Operand>& p, cudaStream_t stream) {
  TransposedTile<Operand>::launch(p, stream);
}

template <class Operand>
void norm_latent(const LatentNormParameters<Operand>& p, cudaStream_t stream) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  if (p.width % n == 0 && p.x_stride % n == 0) {
    EachWarp<LatentNormRow<Operand, n>>::launch(p, stream);
  } else {
    EachWarp<LatentNormRow<Operand, 1>>::launch(p, stream);
  }
}

}  // namespace samestate::cuda
