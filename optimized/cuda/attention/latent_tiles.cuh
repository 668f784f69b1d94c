#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/attention.cuh"
#include "optimized/cuda/units/key_tiles.cuh"

/// Parts that the two grids of latent attention on the asynchronous matrix unit have in common (latent_chunk_wgmma.cuh).
namespace samestate::cuda {

inline constexpr int kLatentColumns = 512, kRotaryColumns = 64;  ///< the most of either
inline constexpr int kLatentPartKeys = 128;                      ///< parts of the keys are multiples of it
inline constexpr std::int64_t kLatentBlocks = 132;               ///< at a time, on an H100

/// The input of both grids: where the parts of queries and keys are, as bulk copies read them. No row [c |
/// k^R] is assembled.
struct LatentParameters {
  /// The parameters for a single key head without a gate. width counts the columns of [c
  /// k^R]; k is c, with value_width columns. chunk is not read.
  AttentionParameters<Bf16> p;
  const Bf16* rotary = nullptr;  ///< [batch, keys, width - value_width]
  float* maxima = nullptr;       ///< [maxima_parts, batch rows], scores before the scale
  std::int64_t maxima_parts = 1;
  std::int64_t maxima_part_keys = 1;
};
struct LatentMaps {
  LatentParameters of;
  KeyMap q, q_rotary, c, c_rotary;
  int rotary_column;  ///< begin of the rotary panel in its map; if there is none, beyond the map (zeros)

  explicit LatentMaps(const LatentParameters& parameters) : of(parameters) {
    const AttentionParameters<Bf16>& p = of.p;
    const std::int64_t turned = p.width - p.value_width;
    q = q_rotary = key_map({p.q, p.value_width, 1, p.rows(), p.batch, p.width});
    c = c_rotary = key_map({p.k, p.value_width, 1, p.keys, p.batch, p.key_stride});
    rotary_column = turned > 0 ? 0 : kLatentColumns;
    if (turned == 0) return;
    q_rotary = key_map({p.q + p.value_width, turned, 1, p.rows(), p.batch, p.width});
    c_rotary = key_map({of.rotary, turned, 1, p.keys, p.batch, turned});
  }
};

/// The item of block `block`. Row tiles of the same keys follow each other: the first brings them into the cache. Rows that see the
/// most come first.
SAMESTATE_DEVICE AttentionItem latent_item(const AttentionParameters<Bf16>& p, std::int64_t block,
                                           int tile_rows) {
  const auto number = static_cast<std::uint32_t>(block);  // a grid's blocks are fewer than 2^31
  const auto row_tiles = static_cast<std::uint32_t>(p.row_tiles(tile_rows));
  const auto parts = static_cast<std::uint32_t>(p.parts);
  AttentionItem at;
  at.column = 0, at.key_head = 0;
  at.part = number / row_tiles % parts, at.b = number / row_tiles / parts;
  at.first_row = std::int64_t{row_tiles - 1 - number % row_tiles} * tile_rows;
  const std::int64_t behind = at.first_row + tile_rows;
  const std::int64_t seen = p.seen((behind < p.rows() ? behind : p.rows()) - 1);
  at.begin = at.part * p.part_keys;
  at.end = at.begin + p.part_keys < seen ? at.begin + p.part_keys : seen;
  return at;
}

/// The parts that the grids share. A row of queries or keys is nine tiles of 64 columns, eight of c and one
/// of k^R, each filled with zeros after its columns. Two warpgroups multiply, and one thread fetches.
template <class Kernel>
struct LatentBlock {
  using Parameters = LatentMaps;
  static constexpr int kGroups = 2, kGroupThreads = 128;
  static constexpr int kThreads = (1 + kGroups) * kGroupThreads;
  static constexpr int kLatentPanels = kLatentColumns / kTileColumns;
  static constexpr int kPanels = kLatentPanels + kRotaryColumns / kTileColumns;
  static constexpr int kTile = kTileBytes / 2;  ///< elements
  static constexpr int kAlignment = 1024;       ///< bytes, of tiles

  static constexpr std::size_t shared_bytes() {
    constexpr std::size_t bytes =
        std::size_t{kTileBytes} * Kernel::kTiles + kAlignment + sizeof(typename Kernel::Shared);
    static_assert(bytes <= 227 * 1024, "what a block may have");
    return bytes;
  }
  static void launch(const LatentMaps& maps, cudaStream_t stream) {
    const AttentionParameters<Bf16>& p = maps.of.p;
    cuda::launch<Kernel>(blocks_of(p.row_tiles(Kernel::kRows) * p.parts * p.batch, 1), shared_bytes(), maps,
                         stream);
  }
  static SAMESTATE_DEVICE void run(const LatentMaps& maps, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)maps, (void)shared;
    __trap();  // in_latent_tiles() asks first whether the device is one of 9.0
#else
    const auto first = reinterpret_cast<std::uintptr_t>(shared);
    auto* const bytes = shared + (kAlignment - first % kAlignment) % kAlignment;
    auto* const tiles = reinterpret_cast<Bf16*>(bytes);
    auto& rest = *reinterpret_cast<typename Kernel::Shared*>(bytes + kTileBytes * Kernel::kTiles);
    if (thread_index() == 0) {
      rest.init();
      barriers_ready();
    }
    block_barrier();
    const AttentionItem item = latent_item(maps.of.p, block_index(), Kernel::kRows);
    const int role = uniform(warp_index() / 4);
    if (role == kGroups) {
      fewer_registers<24>();
      if (thread_index() == kGroups * kGroupThreads && item.begin < item.end)
        Kernel::fetch(maps, item, tiles, rest);
    } else {
      more_registers<240>();
      typename Kernel::Group group(maps.of, item, role, tiles, rest);
      group.attend();
      group.write();
    }
#endif
  }

 protected:
  static SAMESTATE_DEVICE int keys_of(const AttentionItem& item) {
    return item.begin < item.end ? static_cast<int>(item.end - item.begin) : 0;
  }
  static SAMESTATE_DEVICE void load_queries(const LatentMaps& maps, const AttentionItem& item, Bf16* to,
                                            Barrier& full, int row_tiles) {
    full.expect(row_tiles * kPanels * kTileBytes);
    for (int i = 0; i < row_tiles * kPanels; ++i) {
      const int panel = i % kPanels, row = static_cast<int>(item.first_row) + i / kPanels * kTileRows;
      load_panel(to + i * kTile, maps.q, maps.q_rotary, maps.rotary_column, full, panel, row, item);
    }
  }
  /// Loads keys, which are counted from the first of the sequence.
  static SAMESTATE_DEVICE void load_keys(const LatentMaps& maps, const AttentionItem& item, Bf16* to,
                                         Barrier& full, int panel, int key) {
    load_panel(to, maps.c, maps.c_rotary, maps.rotary_column, full, panel, key, item);
  }

  /// A warpgroup and its rows, of which a thread has columns 8 j + 2 (lane % 4) + {0, 1} of two, 8 apart.
  struct Rows {
    const AttentionParameters<Bf16>& p;
    const AttentionItem& item;
    int seen[2];
    int count, full;  ///< tiles of keys, and of those the ones that every row sees

    SAMESTATE_DEVICE Rows(const AttentionParameters<Bf16>& parameters, const AttentionItem& of, int first_row,
                          int keys)
        : p(parameters), item(of), origin(first_row) {
      count = uniform((keys_of(item) + keys - 1) / keys);
      full = uniform(seen_by(origin) / keys);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) seen[i] = seen_by(row_of(i));
    }
    /// Within the item.
    SAMESTATE_DEVICE int row_of(int i) const {
      return origin + thread_index() % kGroupThreads / 32 * 16 + lane_index() / 4 + 8 * i;
    }
    SAMESTATE_DEVICE bool exists(int i) const { return item.first_row + row_of(i) < p.rows(); }
    /// Rows after the last are computed like any other, but not written.
    SAMESTATE_DEVICE int seen_by(int row) const {
      return item.first_row + row < p.rows() ? item.seen(p, row) : keys_of(item);
    }
    SAMESTATE_DEVICE std::int64_t summed_row(int i) const {
      return p.summed_row(item.part, item.b, 0, item.first_row + row_of(i));
    }

   private:
    const int origin;  ///< the item's row that is the group's first
  };

 private:
  static SAMESTATE_DEVICE void load_panel(Bf16* to, const KeyMap& latent, const KeyMap& rotary,
                                          int rotary_column, Barrier& full, int panel, int row,
                                          const AttentionItem& item) {
    const auto b = static_cast<int>(item.b);
    if (panel < kLatentPanels) {
      load_key_tile(to, latent, full, panel * kTileColumns, 0, row, b);
    } else {
      load_key_tile(to, rotary, full, rotary_column, 0, row, b);
    }
  }
};

}  // namespace samestate::cuda
