#pragma once

#include <cstdint>
#include <string>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/units/wgmma.cuh"

/// Tiles of 64 keys and 64 columns of one head, swizzled as products read them, by bulk copies from rows that
/// are `stride` elements apart in every sequence. The places after a sequence's last key, or after a head's
/// last column, are read as zero: no tile contains rows of the next sequence, which may be anything.
namespace samestate::cuda {

/// Where a tensor of keys or values is: [batch, keys, heads, width].
struct KeyRows {
  const Bf16* data = nullptr;
  std::int64_t width = 0, heads = 0, keys = 0, batch = 0;
  std::int64_t stride = 0;    ///< elements from a key to the next, a multiple of 8 as width is
  int tile_rows = kTileRows;  ///< keys that a copy brings, a multiple of 8
};

#ifdef __CUDACC__

using KeyMap = CUtensorMap;

/// Throws Error if the driver takes no such map.
inline KeyMap key_map(const KeyRows& of) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found),
          "cudaGetDriverEntryPointByVersion");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  KeyMap map;
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t extent[4] = {size(of.width), size(of.heads), size(of.keys), size(of.batch)};
  // Each a multiple of the one before, also where rows of one head are further apart than it is wide.
  const cuuint64_t stride[3] = {size((of.heads == 1 ? of.stride : of.width) * 2), size(of.stride * 2),
                                size(of.keys * of.stride * 2)};
  const cuuint32_t box[4] = {kTileColumns, 1, static_cast<cuuint32_t>(of.tile_rows), 1};
  const cuuint32_t step[4] = {1, 1, 1, 1};
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<Bf16*>(of.data), extent, stride, box, step,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error("cuTensorMapEncodeTiled: error " + std::to_string(status) + " for " +
                std::to_string(of.batch) + " x " + std::to_string(of.keys) + " x " +
                std::to_string(of.heads) + " x " + std::to_string(of.width) +
                "; use a chunk other than 64 and 128");
  }
  return map;
}

/// Columns [column, column + 64) of tile_rows keys from `key` on, of a head of sequence b; arrives with 128 bytes a key.
SAMESTATE_DEVICE void load_key_tile(Bf16* tile, const KeyMap& from, Barrier& barrier, int column, int head,
                                    int key, int b) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];" ::"r"(shared_address(tile)),
      "l"(&from), "r"(shared_address(&barrier)), "r"(column), "r"(head), "r"(key), "r"(b)
      : "memory");
}

SAMESTATE_DEVICE float larger(float a, float b) { return fmaxf(a, b); }

#else

using KeyMap = KeyRows;

inline KeyMap key_map(const KeyRows& of) { return of; }

inline void load_key_tile(Bf16* tile, const KeyMap& from, Barrier& barrier, int column, int head, int key,
                          int b) {
  if (reinterpret_cast<std::uintptr_t>(tile) % 1024 != 0)
    emulation::fail("a tile that is not 1024-byte aligned");
  if (from.width % 8 != 0 || from.stride % 8 != 0)
    emulation::fail("a tensor whose rows are no multiple of 16 bytes");
  const auto copy = [tile, &from, column, head, key, b] {
    auto* const bytes = reinterpret_cast<unsigned char*>(tile);
    for (int r = 0; r < from.tile_rows; ++r) {
      for (int c = 0; c < kTileColumns; ++c) {
        const bool inside =
            column + c < from.width && head < from.heads && key + r < from.keys && b < from.batch;
        const std::int64_t at = (b * from.keys + key + r) * from.stride + head * from.width + column + c;
        *reinterpret_cast<Bf16*>(bytes + swizzled(r, 2 * c)) = inside ? from.data[at] : Bf16{0};
      }
    }
  };
  barrier.land(copy, from.tile_rows * kTileColumns * 2);
}

inline float larger(float a, float b) { return a > b ? a : b; }

#endif

inline constexpr int kTileAlignment = 1024;  ///< bytes

/// A ring of shared memory that one thread fills by bulk copies and the warps of both groups empty.
template <int stages>
struct KeyRing {
  Barrier full[stages], empty[stages];

  SAMESTATE_DEVICE static int stage(int n) { return n % stages; }
  SAMESTATE_DEVICE void init(int reading_warps) {
    for (Barrier& b : full) b.init(1);
    for (Barrier& b : empty) b.init(reading_warps);
  }
  SAMESTATE_DEVICE void wait_full(int n) { full[stage(n)].wait(n / stages); }
  SAMESTATE_DEVICE void wait_empty(int n) { empty[stage(n)].wait(n / stages - 1); }
  SAMESTATE_DEVICE void release(int n) { empty[stage(n)].arrive_warp(); }
};

}  // namespace samestate::cuda
