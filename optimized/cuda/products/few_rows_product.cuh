#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/products/product.cuh"

/// The products of product.cuh where a matrix has a few rows: what they wait for is the memory of w, which is read once, by 16
/// bytes, straight into registers. FMA units are enough.
namespace samestate::cuda {

/// A warp's four columns, of w or of both matrices; kRows rows of x at a time.
template <bool paired>
struct FewRowsTile {
  static constexpr int kRows = 16;  ///< as those of ProductTiling::skinny
  static constexpr int kWarps = 4, kWarpColumns = 4;
  static constexpr int kOutputs = kWarps * kWarpColumns;
  static constexpr int kColumns = paired ? 2 * kOutputs : kOutputs;
  static constexpr int kWarpsK = 1, kSumStride = kColumns;
};

template <class Operand, class Epilogue>
struct FewRowsProduct : ProductPlan<Operand, Epilogue, FewRowsTile<Epilogue::kPaired>> {
  using Tile = FewRowsTile<Epilogue::kPaired>;
  using Plan = ProductPlan<Operand, Epilogue, Tile>;
  using typename Plan::Parameters;
  static constexpr int kThreads = 32 * Tile::kWarps;
  static constexpr int kRows = 4;  ///< at a time
  static constexpr int kPiece = 16 / static_cast<int>(sizeof(Operand));
  static constexpr int kLines = Epilogue::kPaired ? 2 * Tile::kWarpColumns : Tile::kWarpColumns;
  static constexpr int kResidentBlocks =
      Epilogue::kPaired ? 2 : 3;  ///< as many as the pieces asked for leave
  using Piece = Vector<Operand, kPiece>;

  static std::size_t shared_bytes(const Parameters& p) {
    return kRows * sizeof(Operand) * static_cast<std::size_t>(p.depth);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<FewRowsProduct>(blocks_of(Plan::tiles_down(p) * Plan::tiles_across(p) * p.batch, 1),
                                 shared_bytes(p), p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    ProductTile at;
    const std::int64_t column = Plan::place(p, at);
    auto* const x = reinterpret_cast<Operand*>(shared);  // [kRows, depth]
    SAMESTATE_NO_UNROLL
    for (int first = 0; first < at.rows; first += kRows) {
      if (first > 0) block_barrier();  // the rows before have been read
      WarpColumns columns(p, at, column + warp_index() * Tile::kWarpColumns);
      stage_rows(p, at, first, x);
      block_barrier();
      columns.multiply(x);
      columns.give(first);
    }
  }

 private:
  /// Stages rows from `first` of the tile on, with zeros after the last.
  static SAMESTATE_DEVICE void stage_rows(const Parameters& p, const ProductTile& at, int first, Operand* x) {
    const auto depth = static_cast<int>(p.depth);
    SAMESTATE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Operand* const row = Plan::find_line(p, at, 0, first + r);
      SAMESTATE_NO_UNROLL
      for (int k = thread_index() * kPiece; k < depth; k += kThreads * kPiece)
        *reinterpret_cast<Piece*>(x + r * depth + k) =
            row != nullptr ? *reinterpret_cast<const Piece*>(row + k) : Piece{};
    }
  }

  /// Computes columns from `column` on for kRows rows: a lane has every 32nd piece, and requests kAhead
  /// before it multiplies the first.
  struct WarpColumns {
    static constexpr int kAhead = 2, kStride = 32 * kPiece;
    const Parameters& p;
    const ProductTile& at;
    const std::int64_t column;
    const int depth;
    const Operand* lines[kLines];
    Piece asked[kAhead][kLines];
    float sums[kRows][kLines] = {};

    SAMESTATE_DEVICE WarpColumns(const Parameters& parameters, const ProductTile& tile,
                                 std::int64_t first_column)
        : p(parameters), at(tile), column(first_column), depth(static_cast<int>(parameters.depth)) {
      SAMESTATE_UNROLL
      for (int i = 0; i < kLines; ++i) {
        // Beyond the last column this computes the last column's sums again, which are not used.
        const std::int64_t of = column + i % Tile::kWarpColumns, last = p.columns - 1;
        lines[i] = (i < Tile::kWarpColumns ? p.w : p.w2) + at.group * p.w_batch +
                   (of < last ? of : last) * p.w_stride;
      }
      SAMESTATE_UNROLL
      for (int ahead = 0; ahead < kAhead; ++ahead) ask(ahead, lane_index() * kPiece + ahead * kStride);
    }
    SAMESTATE_DEVICE void ask(int ahead, int k) {
      SAMESTATE_UNROLL
      for (int i = 0; i < kLines; ++i)
        asked[ahead][i] = load_settled<true>(reinterpret_cast<const Piece*>(lines[i] + k), k < depth);
    }
    SAMESTATE_DEVICE void multiply(const Operand* x) {
      SAMESTATE_NO_UNROLL
      for (int first = lane_index() * kPiece; first < depth; first += kAhead * kStride) {
        SAMESTATE_UNROLL
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          const int k = first + ahead * kStride;
          if (k < depth) add(x + k, asked[ahead]);
          ask(ahead, k + kAhead * kStride);
        }
      }
    }
    SAMESTATE_DEVICE void add(const Operand* x, const Piece (&w)[kLines]) {
      SAMESTATE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Piece of_row = *reinterpret_cast<const Piece*>(x + r * depth);
        SAMESTATE_UNROLL
        for (int i = 0; i < kLines; ++i) {
          SAMESTATE_UNROLL
          for (int e = 0; e < kPiece; ++e)
            sums[r][i] = fused(element(of_row, e), element(w[i], e), sums[r][i]);
        }
      }
    }
    /// The sums of rows from `first` of the tile on.
    SAMESTATE_DEVICE void give(int first) const {
      SAMESTATE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        float of_both[2][Tile::kWarpColumns] = {};
        SAMESTATE_UNROLL
        for (int i = 0; i < kLines; ++i)
          of_both[i / Tile::kWarpColumns][i % Tile::kWarpColumns] = warp_sum(sums[r][i]);
        if (lane_index() == r && first + r < at.rows && column < p.columns)
          Plan::give_quad(p, at, at.first + first + r, column, of_both[0], of_both[1]);
      }
    }
  };
};

/// Rows of a matrix, on average, up to which it takes a product in groups; rows of one that is not; what x takes of shared memory.
inline constexpr std::int64_t kFewRowsOfGroup = 2, kFewRows = 4, kFewRowsDepth = 8192;

/// Returns true if it takes a product, in `groups` groups, whose pieces of 16 bytes are known to exist
/// (Parameters::in_pieces).
template <class Operand, class Epilogue>
bool in_few_rows(const ProductParameters<Operand, Epilogue>& p, std::int64_t groups) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  return p.in_pieces && p.depth > 0 && p.depth % n == 0 && p.depth <= kFewRowsDepth &&
         (p.tiles != nullptr ? p.tiling == ProductTiling::skinny && p.rows <= kFewRowsOfGroup * groups
                             : p.rows <= kFewRows);
}

/// A product, in `groups` groups where it is in groups, by whichever kernel takes it.
template <class Operand, class Epilogue>
void multiply_groups(ProductParameters<Operand, Epilogue> p, std::int64_t groups, cudaStream_t stream) {
  p.in_pieces = product_in_pieces(p);
  if (in_few_rows(p, groups)) return FewRowsProduct<Operand, Epilogue>::launch(p, stream);
  Product<Operand, Epilogue>::launch(p, stream);
}

}  // namespace samestate::cuda
