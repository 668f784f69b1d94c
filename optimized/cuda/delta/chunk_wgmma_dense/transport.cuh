#pragma once

#include "optimized/cuda/delta/chunk_wgmma_dense/layout.cuh"

/// Fetches and stores chunk by chunk. Full chunks use bulk copies; the last chunk of a sequence, and rows
/// that are not a multiple of 16 bytes, use ordinary accesses: a tile across the end of a sequence would read
/// the next sequence's rows and overwrite them.
namespace samestate::cuda {

/// Rows [0, rows) of one head, `width` values each, `step` apart, into tiles side by side; zero elsewhere. By one
/// warp; visible to products after a barrier.
SAMESTATE_DEVICE void copy_rows(Bf16* tiles, int panels, const Bf16* from, std::int64_t step, int rows,
                                int width) {
  const bool aligned = width % 8 == 0 && step % 8 == 0;
  SAMESTATE_NO_UNROLL
  for (int i = lane_index(); i < kTileRows * panels * 8; i += 32) {
    const int row = i / (panels * 8);
    const int column = i % (panels * 8) * 8;
    const Bf16* const source = from + row * step + column;
    Words x = words(0, 0, 0, 0);
    if (row < rows && column < width) {
      if (aligned && column + 8 <= width) {
        x = load_global_words(source);
      } else {
        const auto element = [&](int e) {
          return column + e < width ? static_cast<std::uint32_t>(source[e].bits) : 0U;
        };
        x = words(element(0) | element(1) << 16, element(2) | element(3) << 16, element(4) | element(5) << 16,
                  element(6) | element(7) << 16);
      }
    }
    store_words(tiles + column / kTileColumns * (kTileBytes / 2), swizzled(row, column % kTileColumns * 2),
                x);
  }
  fence_async();
}

/// The inverse: rows and columns that exist, to global memory.
SAMESTATE_DEVICE void write_rows(Bf16* to, const Bf16* tile, std::int64_t step, int rows, int width) {
  SAMESTATE_NO_UNROLL
  for (int i = lane_index(); i < rows * 8; i += 32) {
    const int row = i / 8;
    const int column = i % 8 * 8;
    const Words x = load_words(tile, swizzled(row, 2 * column));
    const auto write = [&](int e, std::uint32_t bits) {
      if (column + e < width) to[row * step + column + e].bits = static_cast<std::uint16_t>(bits);
    };
    write(0, x.x), write(1, x.x >> 16), write(2, x.y), write(3, x.y >> 16);
    write(4, x.z), write(5, x.z >> 16), write(6, x.w), write(7, x.w >> 16);
  }
}

/// Rows of one head that a ring's stage is to hold.
struct Source {
  const TensorMap& map;
  const Bf16* data;
  int heads, head, width, column;
};

/// Rows of chunk n of the task.
SAMESTATE_DEVICE int rows_of(const Prefill& c, const Task& x, int n) {
  const std::int64_t left = x.tokens - static_cast<std::int64_t>(n) * c.p.chunk;
  return static_cast<int>(left < c.p.chunk ? left : c.p.chunk);
}

/// One arrival at `full` with the rows of chunk n: by one copy a tile, or by the whole warp.
SAMESTATE_DEVICE void load_chunk(Barrier& full, Bf16* tiles, int panels, const Source& from, const Prefill& c,
                                 const Task& x, int n) {
  // The whole warp knows that the stage is empty: a lane that still waited when it has been filled and left would take the
  // phase after next for its own.
  warp_barrier();
  if (n < x.whole) {
    if (lane_index() == 0) {
      full.expect(panels * kTileBytes);
      for (int i = 0; i < panels; ++i)
        load_tile(tiles + i * (kTileBytes / 2), from.map, full, from.column + i * kTileColumns, from.head,
                  static_cast<int>(x.first_token) + n * kChunk);
    }
  } else {
    const std::int64_t step = static_cast<std::int64_t>(from.heads) * from.width;
    const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * c.p.chunk;
    copy_rows(tiles, panels, from.data + first * step + from.head * from.width + from.column, step,
              rows_of(c, x, n), from.width - from.column);
    full.arrive_warp();
  }
}

/// O of chunk n, 64 columns from `column` on, from its tile to memory, by one warp; a copy is one group of stores.
SAMESTATE_DEVICE void store_chunk(const Bf16* tile, int column, const Prefill& c, const Maps& maps,
                                  const Task& x, int n) {
  if (n < x.whole) {
    if (lane_index() == 0) {
      store_tile(maps.o, tile, column, x.head, static_cast<int>(x.first_token) + n * kChunk);
      commit_stores();
    }
  } else {
    const Parameters<Bf16>& p = c.p;
    const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * p.chunk;
    write_rows(p.o + (first * p.Hv + x.head) * p.dv + column, tile, p.Hv * p.dv, rows_of(c, x, n),
               p.dv - column);
  }
}

/// The heads that a task reads; V from column `column`.
SAMESTATE_DEVICE Source queries_of(const Prefill& c, const Maps& maps, const Task& x) {
  return {maps.q, c.p.q, static_cast<int>(c.p.Hk), x.key_head, c.p.dk, 0};
}
SAMESTATE_DEVICE Source keys_of(const Prefill& c, const Maps& maps, const Task& x) {
  return {maps.k, c.p.k, static_cast<int>(c.p.Hk), x.key_head, c.p.dk, 0};
}
SAMESTATE_DEVICE Source values_of(const Prefill& c, const Maps& maps, const Task& x, int column) {
  return {maps.v, c.p.v, static_cast<int>(c.p.Hv), x.head, c.p.dv, column};
}

/// Loads g and beta of chunk n, but nothing after the last chunk. It runs in one warp, whose lanes read back
/// only their own copies, because an ordinary load would wait for those of the tiles.
template <bool delta>
SAMESTATE_DEVICE void fetch_gates(RawGates& to, const Prefill& c, const Task& x, int n) {
  const Parameters<Bf16>& p = c.p;
  const int lane = lane_index();
  const int rows = n < x.chunks ? rows_of(c, x, n) : 0;
  const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * p.chunk;
  SAMESTATE_UNROLL
  for (int e = 0; e < 2; ++e) {
    const std::int64_t gate = (first + 2 * lane + e) * p.Hv + x.head;
    const bool exists = 2 * lane + e < rows;
    if (exists && p.g)
      copy_async_4(&to[e][lane], p.g + gate);
    else
      to[e][lane] = 0.0F;
    if (delta && exists && p.beta)
      copy_async_4(&to[2 + e][lane], p.beta + gate);
    else
      to[2 + e][lane] = exists ? 1.0F : 0.0F;
  }
  copy_commit();
}

/// G log2 e of this lane's two tokens, the cumulative sum by a tree.
SAMESTATE_DEVICE Pair sum_gates(const RawGates& raw) {
  constexpr float kLog2e = 1.4426950408889634F;
  constexpr float kReset = -128.0F;  ///< below it, e^g is not an fp32 number (BUGS M09)
  const int lane = lane_index();
  const float g0 = (raw[0][lane] < kReset ? kReset : raw[0][lane]) * kLog2e;
  const float g1 = (raw[1][lane] < kReset ? kReset : raw[1][lane]) * kLog2e;
  float sum = g0 + g1;
  SAMESTATE_UNROLL
  for (int d = 1; d < 32; d *= 2) {
    const float other = shuffle_up(sum, d);
    if (lane >= d) sum += other;
  }
  float before = shuffle_up(sum, 1);
  if (lane == 0) before = 0.0F;
  return {before + g0, sum};
}

}  // namespace samestate::cuda
