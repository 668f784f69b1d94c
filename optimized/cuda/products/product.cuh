#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/products/product_parameters.cuh"

/// Products of matrices y = x w^T, rows of both contiguous along K: projections, logits, experts. bf16 operands go to the tensor
/// cores, fp32 ones to the FMA units, sums are fp32. Any sizes and strides; rows that begin at 16 bytes (strides too) travel by
/// asynchronous copies, others element by element.
///
///     ProductParameters<Operand, StoreProduct<Operand>> p;
///     p.x = x, p.w = w, p.rows = M, p.columns = N, p.depth = K, p.x_stride = p.w_stride = K;
///     p.epilogue = {y, N};
///     Product<Operand, StoreProduct<Operand>>::launch(p, stream);
///
/// An `Epilogue` receives the sums and stores them: `operator()(batch, row, column, const float (&sums)[n]) const`, device code
/// templated on n, with n = 4 adjacent columns or n = 1. One with `kPaired` receives those of two matrices w and w2 of the same
/// shape, `(batch, row, column, sums, sums2)`, as a gated unit needs them. Nothing else is rounded or written. Each sum is
/// the same in every run; its order depends on the sizes.
///
/// Products that are one plain matrix and only stored go to a library where there is one (product_library.h).
namespace samestate::cuda {

/// A block's tile m x n as warps_m x warps_n tiles of warps, each warps_k times: warp k of them sums over every warps_k-th slab
/// of 128 bytes of depth, which `stages` of the asynchronous copies hold in turn. For 8 warps and 96 KB: two blocks an SM.
template <int m, int n, int warps_m, int warps_n, int warps_k, bool paired>
struct ProductTile8Warps {
  static constexpr int kRows = m, kColumns = n;
  static constexpr int kOutputs = paired ? n / 2 : n;  ///< columns of y; w2 gives the other half of the tile
  static constexpr int kWarpsN = warps_n, kWarpsK = warps_k;
  static constexpr int kWarpRows = m / warps_m, kWarpColumns = n / warps_n;
  static constexpr int kStages = 3, kLines = m + n;
  static constexpr int kStageBytes = warps_k * kLines * 128;
  static constexpr int kSumStride = n + 8;  ///< pairs of eight rows lie in different banks
  static_assert(warps_m * warps_n * warps_k == 8 && kStages * kStageBytes == 96 * 1024);
  static_assert(warps_k * m * kSumStride * 4 <= kStages * kStageBytes);
};

/// A slab's line: eight pieces of 16 bytes, permuted so that one piece of eight lines, or all of one line, lie in different
/// banks.
SAMESTATE_DEVICE int product_piece(int line, int piece) { return line * 128 + (piece ^ (line % 8)) * 16; }

/// The elements at `at` of a row of `depth` elements that exist, then zeros. No row: zeros.
template <class Operand>
SAMESTATE_DEVICE void load_product_elements(unsigned char* to, const Operand* row, std::int64_t at,
                                            std::int64_t depth) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  float values[n];
  SAMESTATE_UNROLL
  for (int i = 0; i < n; ++i) values[i] = row != nullptr && at + i < depth ? widen(row[at + i]) : 0.0F;
  *reinterpret_cast<Vector<Operand, n>*>(to) = narrowed<Operand>(values);
}

/// One warp's sums.
template <class Tile, class Operand>
struct ProductSums;

/// Lane l holds element (l / 4 + 8 h, 2 (l % 4) + e) of each 16 x 8 block.
template <class Tile>
struct ProductSums<Tile, Bf16> {
  static constexpr int kM = Tile::kWarpRows / 16, kN = Tile::kWarpColumns / 8;
  float sum[kM][kN][4] = {};

  /// Adds a slab whose lines of x and of w begin at `x` and `w`, multiples of 8, and whose depth is `depth`.
  SAMESTATE_DEVICE void add(const unsigned char* slab, int x, int w, int depth) {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int s = 0; s < 4; ++s) {
      if (16 * s >= depth) break;
      std::uint32_t a[kM][4], b[kN / 2][4];
      SAMESTATE_UNROLL
      for (int i = 0; i < kM; ++i)
        load_matrices<false>(a[i], reinterpret_cast<const Bf16*>(
                                       slab + product_piece(x + 16 * i + lane % 16, 2 * s + lane / 16)));
      SAMESTATE_UNROLL
      for (int j = 0; j < kN / 2; ++j)
        load_matrices<false>(
            b[j], reinterpret_cast<const Bf16*>(
                      slab + product_piece(w + 16 * j + lane % 8 + 8 * (lane / 16), 2 * s + lane / 8 % 2)));
      SAMESTATE_UNROLL
      for (int i = 0; i < kM; ++i) {
        SAMESTATE_UNROLL
        for (int j = 0; j < kN; ++j)
          multiply_bf16(sum[i][j], a[i], b[j / 2][2 * (j % 2)], b[j / 2][2 * (j % 2) + 1]);
      }
    }
  }
  SAMESTATE_DEVICE void store(float* to) const {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int i = 0; i < kM; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < kN; ++j) {
        SAMESTATE_UNROLL
        for (int h = 0; h < 2; ++h)
          store_pair(to + (16 * i + 8 * h + lane / 4) * Tile::kSumStride + 8 * j + 2 * (lane % 4),
                     sum[i][j][2 * h], sum[i][j][2 * h + 1]);
      }
    }
  }
};

/// Lane l holds the elements (l / 8 + 4 i, l % 8 + 8 j).
template <class Tile>
struct ProductSums<Tile, float> {
  static constexpr int kM = Tile::kWarpRows / 4, kN = Tile::kWarpColumns / 8;
  float sum[kM][kN] = {};

  SAMESTATE_DEVICE void add(const unsigned char* slab, int x, int w, int depth) {
    const int lane = lane_index();
    SAMESTATE_NO_UNROLL
    for (int s = 0; 4 * s < depth; ++s) {
      Quad a[kM];
      SAMESTATE_UNROLL
      for (int i = 0; i < kM; ++i)
        a[i] = load_quad(reinterpret_cast<const float*>(slab + product_piece(x + 4 * i + lane / 8, s)));
      SAMESTATE_UNROLL
      for (int j = 0; j < kN; ++j) {
        const Quad b =
            load_quad(reinterpret_cast<const float*>(slab + product_piece(w + 8 * j + lane % 8, s)));
        SAMESTATE_UNROLL
        for (int i = 0; i < kM; ++i) {
          sum[i][j] = fused(a[i].x, b.x, sum[i][j]);
          sum[i][j] = fused(a[i].y, b.y, sum[i][j]);
          sum[i][j] = fused(a[i].z, b.z, sum[i][j]);
          sum[i][j] = fused(a[i].w, b.w, sum[i][j]);
        }
      }
    }
  }
  SAMESTATE_DEVICE void store(float* to) const {
    const int lane = lane_index();
    SAMESTATE_UNROLL
    for (int i = 0; i < kM; ++i) {
      SAMESTATE_UNROLL
      for (int j = 0; j < kN; ++j) to[(4 * i + lane / 8) * Tile::kSumStride + 8 * j + lane % 8] = sum[i][j];
    }
  }
};

/// A block a tile. Tiles that run at a time are those of eight neighbours in rows and many in columns, whose operands the L2
/// holds. What the kernels of products have in common: which tile a block has, its lines, and whom its sums are given to.
template <class Operand, class Epilogue, class Tile>
struct ProductPlan {
  using Parameters = ProductParameters<Operand, Epilogue>;
  static constexpr int kBand = 8;

  static SAMESTATE_HOST_DEVICE std::int64_t tiles_down(const Parameters& p) {
    return p.tiles != nullptr ? p.tile_count : (p.rows + Tile::kRows - 1) / Tile::kRows;
  }
  static SAMESTATE_HOST_DEVICE std::int64_t tiles_across(const Parameters& p) {
    return (p.columns + Tile::kOutputs - 1) / Tile::kOutputs;
  }

  /// Returns the first column of this block's tile.
  static SAMESTATE_DEVICE std::int64_t place(const Parameters& p, ProductTile& at) {
    // A launch holds 2^31 blocks: more outputs than any memory.
    const std::int64_t down = tiles_down(p), across = tiles_across(p);
    const std::int64_t batch = block_index() / (down * across), i = block_index() % (down * across);
    const std::int64_t band = i / (kBand * across) * kBand, in_band = i % (kBand * across);
    const std::int64_t high = down - band < kBand ? down - band : kBand;
    const std::int64_t tile = band + in_band % high;
    at = {static_cast<std::int32_t>(batch), Tile::kRows, tile * Tile::kRows};
    if (p.tiles != nullptr) {
      at = p.tiles[tile];
    } else if (p.rows - at.first < Tile::kRows) {
      at.rows = static_cast<std::int32_t>(p.rows - at.first);
    }
    return in_band / high * Tile::kOutputs;
  }

  /// A line of the tile: a row of x, a column of w or of w2; null beyond them.
  static SAMESTATE_DEVICE const Operand* find_line(const Parameters& p, const ProductTile& at,
                                                   std::int64_t column, int line) {
    if (line < Tile::kRows) {
      if (line >= at.rows) return nullptr;
      const std::int64_t row = at.first + line;
      return p.x + (p.tiles == nullptr ? at.group * p.x_batch : 0) +
             (p.x_rows == nullptr ? row : p.x_rows[row]) * p.x_stride;
    }
    line -= Tile::kRows;
    const std::int64_t of = column + line % Tile::kOutputs;
    if (of >= p.columns) return nullptr;
    return (line < Tile::kOutputs ? p.w : p.w2) + at.group * p.w_batch + of * p.w_stride;
  }

  /// Called by the block's first `threads` threads.
  static SAMESTATE_DEVICE void hand_over(const Parameters& p, const ProductTile& at, std::int64_t column,
                                         const float* sums, int threads) {
    constexpr int kQuads = Tile::kOutputs / 4;
    for (int i = thread_index(); i < at.rows * kQuads; i += threads) {
      const int row = i / kQuads, quad = i % kQuads * 4;
      if (column + quad >= p.columns) continue;
      float x[4], x2[4];
      add_up(sums + row * Tile::kSumStride + quad, x);
      if constexpr (Epilogue::kPaired) add_up(sums + row * Tile::kSumStride + quad + Tile::kOutputs, x2);
      give_quad(p, at, at.first + row, column + quad, x, x2);
    }
  }
  /// Passes on those of four columns that exist; `x2` is read if the epilogue is paired.
  static SAMESTATE_DEVICE void give_quad(const Parameters& p, const ProductTile& at, std::int64_t row,
                                         std::int64_t column, const float (&x)[4], const float (&x2)[4]) {
    const auto give = [&](std::int64_t to, const auto& one, const auto& two) {
      if constexpr (Epilogue::kPaired) {
        p.epilogue(at.group, row, to, one, two);
      } else {
        p.epilogue(at.group, row, to, one);
      }
    };
    if (column + 4 <= p.columns) return give(column, x, x2);
    SAMESTATE_UNROLL
    for (int e = 0; e < 4; ++e) {
      const float one[1] = {x[e]}, two[1] = {Epilogue::kPaired ? x2[e] : 0.0F};
      if (column + e < p.columns) give(column + e, one, two);
    }
  }
  static SAMESTATE_DEVICE void add_up(const float* from, float (&x)[4]) {
    x[0] = x[1] = x[2] = x[3] = 0.0F;
    SAMESTATE_UNROLL
    for (int k = 0; k < Tile::kWarpsK; ++k) {
      const Quad part = load_quad(from + k * Tile::kRows * Tile::kSumStride);
      x[0] += part.x, x[1] += part.y, x[2] += part.z, x[3] += part.w;
    }
  }
};

template <class Operand, class Epilogue, class Tile>
struct ProductGrid : ProductPlan<Operand, Epilogue, Tile> {
  using Plan = ProductPlan<Operand, Epilogue, Tile>;
  using typename Plan::Parameters;
  static constexpr int kThreads = 256;
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Operand));  ///< elements
  static constexpr int kSlab = 8 * kPiece;
  static constexpr int kDepth = kSlab * Tile::kWarpsK;               ///< depth of a stage
  static constexpr int kPieces = Tile::kStageBytes / 16 / kThreads;  ///< pieces of a stage per thread
  /// Where the sums leave registers for it.
  static constexpr int kResidentBlocks = sizeof(Operand) == 2 ? 2 : 1;
  static constexpr std::size_t kShared = Tile::kStages * Tile::kStageBytes + Tile::kLines * sizeof(Operand*);

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    ProductTile at;
    const std::int64_t column = Plan::place(p, at);
    if (at.rows > 0) multiply_tile(p, at, column, shared);
  }

  static SAMESTATE_DEVICE void multiply_tile(const Parameters& p, const ProductTile& at, std::int64_t column,
                                             unsigned char* shared) {
    const Operand** const lines =
        reinterpret_cast<const Operand**>(shared + Tile::kStages * Tile::kStageBytes);
    for (int line = thread_index(); line < Tile::kLines; line += kThreads)
      lines[line] = Plan::find_line(p, at, column, line);
    block_barrier();
    const auto load = [&](int step) {
      unsigned char* const stage = shared + step % Tile::kStages * Tile::kStageBytes;
      const int piece = thread_index() % 8;
      const std::int64_t begin = std::int64_t{step} * kDepth + piece * kPiece;
      const auto each_piece = [&](int i, auto&& copy) {
        const int line = i * kThreads / 8 % Tile::kLines + thread_index() / 8;
        const int slab = i * kThreads / 8 / Tile::kLines;
        copy(stage + slab * Tile::kLines * 128 + product_piece(line, piece), lines[line],
             begin + slab * kSlab);
      };
      if (p.in_pieces && begin + kDepth - piece * kPiece <= p.depth) {
        SAMESTATE_UNROLL
        for (int i = 0; i < kPieces; ++i)
          each_piece(i, [](unsigned char* to, const Operand* line, std::int64_t k) {
            // Lines beyond the matrices keep what they held: no sum that is wanted reads them.
            if (line != nullptr) copy_async_16(to, line + k);
          });
      } else if (begin - piece * kPiece < p.depth) {
        SAMESTATE_NO_UNROLL
        for (int i = 0; i < kPieces; ++i)
          each_piece(i, [&](unsigned char* to, const Operand* line, std::int64_t k) {
            load_product_elements(to, line, k, p.depth);
          });
      }
      copies_commit();
    };
    const int warp = warp_index();
    const int k = warp % Tile::kWarpsK;
    const int n = warp / Tile::kWarpsK % Tile::kWarpsN * Tile::kWarpColumns;
    const int m = warp / Tile::kWarpsK / Tile::kWarpsN * Tile::kWarpRows;
    const bool wanted = m < at.rows && column + n % Tile::kOutputs < p.columns;
    ProductSums<Tile, Operand> sums;
    SAMESTATE_UNROLL
    for (int step = 0; step < Tile::kStages - 1; ++step) load(step);
    const auto steps = static_cast<int>((p.depth + kDepth - 1) / kDepth);
    for (int step = 0; step < steps; ++step) {
      copies_wait<Tile::kStages - 2>();
      block_barrier();  // everybody's copies are there, and the stage before this one has been read
      load(step + Tile::kStages - 1);
      const std::int64_t left = p.depth - std::int64_t{step} * kDepth - k * kSlab;
      const unsigned char* const slab =
          shared + step % Tile::kStages * Tile::kStageBytes + k * Tile::kLines * 128;
      if (wanted && left > 0)
        sums.add(slab, m, Tile::kRows + n, left < kSlab ? static_cast<int>(left) : kSlab);
    }
    copies_wait<0>();
    block_barrier();
    float* const out = reinterpret_cast<float*>(shared);
    sums.store(out + (k * Tile::kRows + m) * Tile::kSumStride + n);
    block_barrier();
    Plan::hand_over(p, at, column, out, kThreads);
  }
};

/// Returns true if every row begins at a multiple of 16 bytes.
template <class Operand, class Epilogue>
bool product_in_pieces(const ProductParameters<Operand, Epilogue>& p) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  const auto aligned = [](const Operand* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  return aligned(p.x) && aligned(p.w) && aligned(p.w2) && p.x_stride % n == 0 && p.w_stride % n == 0 &&
         p.x_batch % n == 0 && p.w_batch % n == 0;
}

template <class Operand, class Epilogue>
struct Product {
  using Parameters = ProductParameters<Operand, Epilogue>;
  using Wide = ProductGrid<Operand, Epilogue, ProductTile8Warps<128, 128, 4, 2, 1, Epilogue::kPaired>>;
  using Medium = ProductGrid<Operand, Epilogue, ProductTile8Warps<64, 64, 2, 2, 2, Epilogue::kPaired>>;
  using Skinny = ProductGrid<Operand, Epilogue, ProductTile8Warps<16, 16, 1, 1, 8, Epilogue::kPaired>>;

  static void launch(Parameters p, cudaStream_t stream) {
    p.in_pieces = product_in_pieces(p);
    if (const auto plain = plain_product(p); plain && multiply_by_library(*plain, stream)) return;
    if (p.tiles == nullptr) {
      // Fewer blocks than SMs leave some without work: then each sums over a part of the depth of its own.
      constexpr std::int64_t kEnough = 100, kFew = 17;
      const auto tiles = [&]<class Grid>() { return Grid::tiles_down(p) * Grid::tiles_across(p) * p.batch; };
      p.tiling = p.rows <= 32 || tiles.template operator()<Medium>() < kFew ? ProductTiling::skinny
                 : tiles.template operator()<Wide>() >= kEnough             ? ProductTiling::wide
                                                                            : ProductTiling::medium;
    }
    if (p.tiling == ProductTiling::skinny) return launch_grid<Skinny>(p, stream);
    if (p.tiling == ProductTiling::medium) return launch_grid<Medium>(p, stream);
    launch_grid<Wide>(p, stream);
  }

 private:
  template <class Grid>
  static void launch_grid(const Parameters& p, cudaStream_t stream) {
    cuda::launch<Grid>(blocks_of(Grid::tiles_down(p) * Grid::tiles_across(p) * p.batch, 1), Grid::kShared, p,
                       stream);
  }
};

}  // namespace samestate::cuda
