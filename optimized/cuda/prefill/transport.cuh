#pragma once

#include "optimized/cuda/prefill/layout.cuh"

/// The producer warps: what they fetch and store, chunk by chunk. Full chunks travel by bulk copies; the last chunk
/// of a sequence, and rows that are no multiple of 16 bytes, by ordinary accesses: a tile across a sequence's end
/// would bring the neighbour's rows in and overwrite them.
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

/// One arrival at `full` with the rows of a chunk: by one copy a tile, or by the whole warp.
SAMESTATE_DEVICE void load_chunk(Barrier& full, Bf16* tiles, int panels, const Source& from,
                                 std::int64_t first, int rows, bool bulk) {
  if (bulk && rows == kChunk) {
    if (lane_index() == 0) {
      full.expect(panels * kTileBytes);
      for (int i = 0; i < panels; ++i)
        load_tile(tiles + i * (kTileBytes / 2), from.map, full, from.column + i * kTileColumns, from.head,
                  static_cast<int>(first));
    }
  } else {
    const std::int64_t step = static_cast<std::int64_t>(from.heads) * from.width;
    copy_rows(tiles, panels, from.data + first * step + from.head * from.width + from.column, step, rows,
              from.width - from.column);
    full.arrive_warp();
  }
  warp_barrier();  // a lane that fell two chunks behind would take the phase after next for its own
}

/// Rows of chunk n of the task.
SAMESTATE_DEVICE int rows_of(const Prefill& c, const Task& x, int n) {
  const std::int64_t left = x.tokens - static_cast<std::int64_t>(n) * c.p.chunk;
  return static_cast<int>(left < c.p.chunk ? left : c.p.chunk);
}

/// Q, K of a helper's chunks, and K, V, Q of a state block's, by one warp.
SAMESTATE_DEVICE void load_helper(HelperShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  const Parameters<Bf16>& p = c.p;
  const int heads = static_cast<int>(p.Hk);
  SAMESTATE_NO_UNROLL
  for (int m = 0, n = x.part; n < x.chunks; ++m, n += kHelpers) {
    const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * p.chunk;
    const int rows = rows_of(c, x, n);
    const int at = s.key_ring.stage(m);
    s.key_ring.wait_empty(m);
    load_chunk(s.key_ring.full[at], s.k[at][0], kPanels, {maps.k, p.k, heads, x.key_head, p.dk, 0}, first,
               rows, c.bulk);
    s.query_ring.wait_empty(m);
    load_chunk(s.query_ring.full[at], s.q[at][0], kPanels, {maps.q, p.q, heads, x.key_head, p.dk, 0}, first,
               rows, c.bulk);
  }
}
SAMESTATE_DEVICE void load_state_block(StateShared& s, const Prefill& c, const Maps& maps, const Task& x) {
  const Parameters<Bf16>& p = c.p;
  const int heads = static_cast<int>(p.Hk);
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * p.chunk;
    const int rows = rows_of(c, x, n);
    const int at = s.key_ring.stage(n);
    s.key_ring.wait_empty(n);
    load_chunk(s.key_ring.full[at], s.k[at][0], kPanels, {maps.k, p.k, heads, x.key_head, p.dk, 0}, first,
               rows, c.bulk);
    s.value_ring.wait_empty(n);
    load_chunk(s.value_ring.full[s.value_ring.stage(n)], s.v[s.value_ring.stage(n)][0], 1,
               {maps.v, p.v, static_cast<int>(p.Hv), x.head, p.dv, x.part * kTileColumns}, first, rows,
               c.bulk);
    s.query_ring.wait_empty(n);
    load_chunk(s.query_ring.full[at], s.q[at][0], kPanels, {maps.q, p.q, heads, x.key_head, p.dk, 0}, first,
               rows, c.bulk);
  }
}

/// What the helpers publish, by one thread: the wait for a flag must hold back no other load.
SAMESTATE_DEVICE void load_prepared(StateShared& s, const Prefill& c, const Task& x, int launch) {
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const std::int64_t slot = x.slot + n * c.p.Hv;
    const int at = s.made_ring.stage(n);
    await(&c.ready[slot], launch);
    s.made_ring.wait_empty(n);
    s.made_ring.full[at].expect(Prepared::kBytes);
    load_bytes(&s.made[at], &c.prepared[slot], s.made_ring.full[at], Prepared::kBytes);
  }
}

/// O of every chunk, 64 columns by one warp: of state warpgroup `group`, from column `column`.
template <class SharedMemory>
SAMESTATE_DEVICE void store_output(SharedMemory& s, const Prefill& c, const Maps& maps, const Task& x,
                                   int group, int column) {
  const Parameters<Bf16>& p = c.p;
  Ring<1>& ring = s.o_ring[group];
  const Bf16* const tile = s.o[group];
  SAMESTATE_NO_UNROLL
  for (int n = 0; n < x.chunks; ++n) {
    const std::int64_t first = x.first_token + static_cast<std::int64_t>(n) * p.chunk;
    const int rows = rows_of(c, x, n);
    ring.wait_full(n);
    if (c.bulk && rows == kChunk) {
      if (lane_index() == 0) {
        store_tile(maps.o, tile, column, x.head, static_cast<int>(first));
        commit_stores();
        wait_stores_read();
      }
    } else {
      write_rows(p.o + (first * p.Hv + x.head) * p.dv + column, tile, p.Hv * p.dv, rows, p.dv - column);
    }
    ring.release(n);
  }
}

/// The gates of a helper's chunks: G log2 e, the cumulative sum by a tree, and beta; one warp, two tokens a lane.
/// Fetched four chunks ahead, by copies that only the lane itself reads back: an ordinary load waits behind the tiles'.
template <bool delta>
SAMESTATE_DEVICE void gate_warp(HelperShared& s, const Prefill& c, const Task& x) {
  constexpr float kLog2e = 1.4426950408889634F;
  constexpr float kReset = -128.0F;  ///< BUGS M09: e^g is no fp32 number below it
  const Parameters<Bf16>& p = c.p;
  const int lane = lane_index();
  const auto fetch = [&](int m) {
    const int n = x.part + m * kHelpers;
    float(&to)[4][32] = s.raw[m % 4];
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
  };
  SAMESTATE_NO_UNROLL
  for (int m = 0; m < 4; ++m) fetch(m);
  SAMESTATE_NO_UNROLL
  for (int m = 0, n = x.part; n < x.chunks; ++m, n += kHelpers) {
    const int at = s.gate_ring.stage(m);
    copy_wait_but<3>();
    const float(&raw)[4][32] = s.raw[m % 4];
    const float g0 = (raw[0][lane] < kReset ? kReset : raw[0][lane]) * kLog2e;
    const float g1 = (raw[1][lane] < kReset ? kReset : raw[1][lane]) * kLog2e;
    const float b0 = raw[2][lane];
    const float b1 = raw[3][lane];
    float sum = g0 + g1;
    SAMESTATE_UNROLL
    for (int d = 1; d < 32; d *= 2) {
      const float other = shuffle_up(sum, d);
      if (lane >= d) sum += other;
    }
    float before = shuffle_up(sum, 1);
    if (lane == 0) before = 0.0F;
    s.gate_ring.wait_empty(m);
    store_pair(&s.decay[at][2 * lane], before + g0, sum);
    store_pair(&s.beta[at][2 * lane], b0, b1);
    s.gate_ring.full[at].arrive_warp();
    fetch(m + 4);
  }
}

/// What maker `maker` has ready leaves for its slot, and the flag after it; by one thread a maker, since a store takes
/// some 3,000 cycles until it is in memory.
SAMESTATE_DEVICE void publish_chunks(HelperShared& s, const Prefill& c, const Task& x, int maker,
                                     int launch) {
  SAMESTATE_NO_UNROLL
  for (int m = maker; x.part + m * kHelpers < x.chunks; m += kMakers) {
    const std::int64_t slot = x.slot + (x.part + m * kHelpers) * c.p.Hv;
    s.made_ring.wait_full(m);
    store_bytes(&c.prepared[slot], &s.made[s.made_ring.stage(m)], Prepared::kBytes);
    commit_stores();
    wait_stores_read();
    s.made_ring.empty[s.made_ring.stage(m)].arrive();
    wait_stores();
    publish(&c.ready[slot], launch);
  }
}

}  // namespace samestate::cuda
