#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/operators/few_rows_product.cuh"
#include "optimized/cuda/operators/key_tiles.cuh"
#include "optimized/cuda/operators/product.cuh"
#include "optimized/cuda/operators/wide_products.cuh"

/// The products of product.cuh on the asynchronous matrix unit: bf16, many rows a matrix, gathered or in groups, as no library takes
/// them.
namespace samestate::cuda {

/// 128 rows of x beside 256 of w, or 128 of w and as many of w2. A stage holds 64 columns of them.
template <bool paired>
struct AsynchronousTile {
  static constexpr int kRows = 2 * kTileRows, kColumns = 4 * kTileRows;
  static constexpr int kOutputs = paired ? kColumns / 2 : kColumns;
  static constexpr int kLines = kRows + kColumns;
  static constexpr int kStages = 4, kStageBytes = kLines * kTileColumns * 2;
  static constexpr int kWarpsK = 1;
  static constexpr int kSumStride = kColumns + 8;  ///< rows lie in different banks
};

/// A block a tile: two warpgroups multiply, 64 rows each with their sums in registers, and a third copies, four stages ahead. No
/// thread waits for another of its own group but for a stage.
template <class Epilogue>
struct AsynchronousProduct : ProductPlan<Bf16, Epilogue, AsynchronousTile<Epilogue::kPaired>> {
  using Tile = AsynchronousTile<Epilogue::kPaired>;
  using Plan = ProductPlan<Bf16, Epilogue, Tile>;
  using typename Plan::Parameters;
  static constexpr int kGroups = 2, kGroupThreads = 128, kMultiplying = kGroups * kGroupThreads;
  static constexpr int kThreads = kMultiplying + kGroupThreads;
  static constexpr int kBehind = 2;  ///< stages asked for before one is awaited

  struct Shared {
    Barrier full[Tile::kStages], empty[Tile::kStages];
    const Bf16* lines[Tile::kLines];
  };
  static constexpr std::size_t kShared =
      std::size_t{Tile::kStages} * Tile::kStageBytes + kTileAlignment + sizeof(Shared);
  static_assert(kShared <= 227 * 1024, "what a block may have");
  static_assert(std::size_t{4} * Tile::kRows * Tile::kSumStride <=
                std::size_t{Tile::kStages} * Tile::kStageBytes);

  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<AsynchronousProduct>(blocks_of(Plan::tiles_down(p) * Plan::tiles_across(p) * p.batch, 1),
                                      kShared, p, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)p, (void)shared;
    __trap();  // multiply_asynchronously() asks first whether the device is one of 9.0
#else
    ProductTile at;
    const std::int64_t column = Plan::place(p, at);
    if (at.rows == 0) return;
    const auto first = reinterpret_cast<std::uintptr_t>(shared);
    unsigned char* const stages = shared + (kTileAlignment - first % kTileAlignment) % kTileAlignment;
    auto& rest = *reinterpret_cast<Shared*>(stages + Tile::kStages * Tile::kStageBytes);
    if (thread_index() == 0) {
      for (Barrier& b : rest.full) b.init(kGroupThreads / 32);
      for (Barrier& b : rest.empty) b.init(kMultiplying / 32);
      barriers_ready();
    }
    for (int line = thread_index(); line < Tile::kLines; line += kThreads)
      rest.lines[line] = Plan::find_line(p, at, column, line);
    block_barrier();
    const int steps = uniform(static_cast<int>(p.depth / kTileColumns)), role = uniform(warp_index() / 4);
    if (role == kGroups) {
      fewer_registers<40>();
      fetch(steps, stages, rest);
    } else {
      more_registers<232>();
      float sums[128];
      multiply_stages(role * kTileRows < at.rows ? steps : 0, steps, role, stages, rest, sums);
      auto* const out = reinterpret_cast<float*>(stages);
      named_barrier(1, kMultiplying);  // both groups have read the last stage
      if (role * kTileRows < at.rows) store(sums, out + role * kTileRows * Tile::kSumStride);
      named_barrier(1, kMultiplying);
      Plan::hand_over(p, at, column, out, kMultiplying);
    }
#endif
  }

 private:
  static SAMESTATE_DEVICE Bf16* tile(unsigned char* stages, int n, int index) {
    return reinterpret_cast<Bf16*>(stages + n % Tile::kStages * Tile::kStageBytes + index * kTileBytes);
  }

  /// Eight threads copy a line's 128 bytes.
  static SAMESTATE_DEVICE void fetch(int steps, unsigned char* stages, Shared& shared) {
    const int thread = thread_index() - kMultiplying, piece = thread % 8;
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < steps + kBehind; ++n) {
      if (n < steps) {
        shared.empty[n % Tile::kStages].wait(n / Tile::kStages - 1);
        unsigned char* const stage = stages + n % Tile::kStages * Tile::kStageBytes;
        SAMESTATE_UNROLL_BY(8)
        for (int line = thread / 8; line < Tile::kLines; line += kGroupThreads / 8) {
          const Bf16* const from = shared.lines[line];
          // Lines beyond the matrices keep what they held: no sum that is wanted reads them.
          if (from != nullptr)
            copy_async_16(stage + product_piece(line, piece), from + n * kTileColumns + piece * 8);
        }
      }
      copies_commit();
      if (n < kBehind) continue;
      copies_wait<kBehind>();
      fence_async();
      shared.full[(n - kBehind) % Tile::kStages].arrive_warp();
    }
  }

  /// `mine` of the steps are multiplied, all or none.
  static SAMESTATE_DEVICE void multiply_stages(int mine, int steps, int role, unsigned char* stages,
                                               Shared& shared, float (&sums)[128]) {
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < mine; ++n) {
      shared.full[n % Tile::kStages].wait(n / Tile::kStages);
      products_begin();
      SAMESTATE_UNROLL
      for (int step = 0; step < kTileColumns / 16; ++step)
        multiply_rows(sums, by_rows(tile(stages, n, role), step), by_rows(tile(stages, n, kGroups), step),
                      n + step > 0);
      products_commit();
      products_wait<0>();
      shared.empty[n % Tile::kStages].arrive_warp();
    }
    SAMESTATE_NO_UNROLL
    for (int n = mine; n < steps; ++n) {
      shared.full[n % Tile::kStages].wait(n / Tile::kStages);
      shared.empty[n % Tile::kStages].arrive_warp();
    }
  }

  /// Of lane l the elements (l / 4 + 8 i, 8 j + 2 (l % 4) + {0, 1}) of its warp's 16 rows.
  static SAMESTATE_DEVICE void store(const float (&sums)[128], float* to) {
    const int row = thread_index() % kGroupThreads / 32 * 16 + lane_index() / 4;
    SAMESTATE_UNROLL
    for (int j = 0; j < Tile::kColumns / 8; ++j) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i)
        store_pair(to + (row + 8 * i) * Tile::kSumStride + 8 * j + 2 * (lane_index() % 4),
                   sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
    }
  }
};

/// Tiles without groups from which on a block a multiprocessor is enough.
inline constexpr std::int64_t kAsynchronousTiles = 64;

/// Whether the asynchronous unit takes a product, whose pieces of 16 bytes are known to be there (Parameters::in_pieces): in groups,
/// or of two matrices, which no library multiplies at once.
template <class Epilogue>
bool in_asynchronous_product(const ProductParameters<Bf16, Epilogue>& p) {
  using Grid = AsynchronousProduct<Epilogue>;
  if (!has_asynchronous_products() || !p.in_pieces || p.depth <= 0 || p.depth % kTileColumns != 0)
    return false;
  if (p.tiles != nullptr) return p.tiling == ProductTiling::wide;
  return Epilogue::kPaired && p.rows > kTileRows &&
         Grid::Plan::tiles_down(p) * Grid::Plan::tiles_across(p) * p.batch >= kAsynchronousTiles;
}

/// A product, in `groups` groups where it is in groups, by whichever kernel takes it.
template <class Operand, class Epilogue>
void multiply_groups(ProductParameters<Operand, Epilogue> p, std::int64_t groups, cudaStream_t stream) {
  p.in_pieces = product_in_pieces(p);
  if (in_few_rows(p, groups)) return FewRowsProduct<Operand, Epilogue>::launch(p, stream);
  if constexpr (sizeof(Operand) == sizeof(Bf16)) {
    if (in_asynchronous_product(p)) return AsynchronousProduct<Epilogue>::launch(p, stream);
  }
  Product<Operand, Epilogue>::launch(p, stream);
}

}  // namespace samestate::cuda
