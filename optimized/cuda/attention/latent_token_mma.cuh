#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/latent_tiles.cuh"
#include "optimized/cuda/units/bf16_parts.cuh"

/// Latent attention of few rows in bf16, with one grid that reads the cache once. The contract rounds weights
/// under the largest score of all keys, which no block knows before it has met the last key, so they are not
/// rounded here: a weight is kept as three bf16 numbers whose sum it is. Then any base will do, and the keys
/// may be divided and met a tile at a time. The additional work of the matrix unit for a row is hidden by the
/// loads of its keys.
namespace samestate::cuda {

/// A block takes 16 rows and a part of the keys, kKeys at a time. Four warps split the columns: each fetches its own, 128 of the
/// latent, by tensor copies, has the scores of those and of 16 rotary ones, and the values' sums of the same 128, so that it
/// meets the others once a tile, for their share of the scores. Then all have all scores, and what follows of a row's softmax
/// each keeps for itself: the same numbers in the same order. Queries and sums stay in registers.
template <int kKeys, int kStages>
struct LatentDecode {
  struct Parameters {
    LatentParameters of;
    KeyMap c, c_rotary;
    int rotary_column;  ///< begin of the rotary panel in its map; if there is none, beyond the map (zeros)
  };
  static constexpr int kRows = 16;
  static constexpr int kWarps = 4, kThreads = 32 * kWarps;
  static constexpr int kLatentPanels = kLatentColumns / kTileColumns, kPanels = kLatentPanels + 1;
  static constexpr int kPanel = kKeys * kTileColumns;  ///< elements
  static constexpr int kWarpPanels = kLatentPanels / kWarps, kWarpColumns = kWarpPanels * kTileColumns;
  static constexpr int kLatentSteps = kWarpColumns / 16, kSteps = kLatentSteps + 1;
  static constexpr int kScores = kKeys / 8, kValueSteps = kKeys / 16;
  static_assert(kRotaryColumns == 16 * kWarps, "a warp 16 of them");
  static_assert(kKeys % 16 == 0 && kPanel * 2 % 1024 == 0, "operands; aligned tiles");

  /// A lane's four scores of 8 keys.
  using Scores = Vector<float, 4>;
  struct Shared {
    KeyRing<kStages> latent[kWarps];  ///< each warp's columns
    KeyRing<kStages> rotary;
    Scores scores[2][kWarps][kScores][32];  ///< for every other tile, the sums of each warp's columns
  };
  static constexpr std::size_t kTileShared = std::size_t{2} * kPanel * kPanels * kStages;
  static constexpr std::size_t kShared = kTileShared + sizeof(Shared) + kTileAlignment;
  static constexpr int kResidentBlocks = 2 * (kShared + 1024) <= 228 * 1024 ? 2 : 1;
  static_assert(kShared <= 227 * 1024, "what a block may have");

  static void launch(const LatentParameters& of, cudaStream_t stream) {
    const AttentionParameters<Bf16>& p = of.p;
    const std::int64_t turned = p.width - p.value_width;
    Parameters maps{of, key_map({p.k, p.value_width, 1, p.keys, p.batch, p.key_stride, kKeys}), {}, 0};
    maps.rotary_column = turned > 0 ? 0 : kLatentColumns;
    maps.c_rotary =
        turned > 0 ? key_map({of.rotary, turned, 1, p.keys, p.batch, turned, kKeys}) : KeyMap(maps.c);
    cuda::launch<LatentDecode>(blocks_of(p.row_tiles(kRows) * p.parts * p.batch, 1), kShared, maps, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& maps, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)maps, (void)shared;
    __trap();  // in_latent_tiles() asks first whether the device is one of 9.0
#else
    let_next_grid_start();
    const auto first = reinterpret_cast<std::uintptr_t>(shared);
    unsigned char* const tiles = shared + (kTileAlignment - first % kTileAlignment) % kTileAlignment;
    auto& rest = *reinterpret_cast<Shared*>(tiles + kTileShared);
    if (thread_index() == 0) {
      for (KeyRing<kStages>& ring : rest.latent) ring.init(1);
      rest.rotary.init(kWarps);
      barriers_ready();
    }
    block_barrier();
    const AttentionItem item = latent_item(maps.of.p, block_index(), kRows);
    Group group(maps, item, reinterpret_cast<Bf16*>(tiles), rest);
    group.attend();
    group.write();
#endif
  }

 private:
  static SAMESTATE_DEVICE int tiles_of(const AttentionItem& item) {
    return item.begin < item.end ? static_cast<int>((item.end - item.begin + kKeys - 1) / kKeys) : 0;
  }

  /// A warp's columns of all rows, of which a thread has two, 8 apart.
  struct Group {
    const Parameters& maps;
    const AttentionParameters<Bf16>& p;
    const AttentionItem& item;
    Bf16* const tiles;
    Shared& shared;
    const int count;  ///< number of tiles
    int seen[2];
    RowSoftmax softmax[2];
    float kept[2];
    float weights[2] = {};  ///< sums of this thread's
    float s[kScores][4];
    std::uint32_t queries[kSteps][4];
    float o[kWarpColumns / 8][4] = {};

    SAMESTATE_DEVICE Group(const Parameters& parameters, const AttentionItem& of, Bf16* shared_tiles,
                           Shared& rest)
        : maps(parameters),
          p(parameters.of.p),
          item(of),
          tiles(shared_tiles),
          shared(rest),
          count(tiles_of(of)) {
      SAMESTATE_UNROLL
      for (int n = 0; n < kStages; ++n) {
        fetch_latent(n);
        fetch_rotary(n);
      }
      SAMESTATE_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        SAMESTATE_UNROLL
        for (int at = 0; at < 4; ++at)
          queries[step][at] = query(at % 2, step, lane_index() % 4 * 2 + at / 2 * 8);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) seen[i] = item.seen(p, row_of(i));
    }
    static SAMESTATE_DEVICE int row_of(int i) { return lane_index() / 4 + 8 * i; }
    [[nodiscard]] SAMESTATE_DEVICE bool exists(int i) const { return item.first_row + row_of(i) < p.rows(); }

    /// Two neighbours of a query, zeros where there are none.
    [[nodiscard]] SAMESTATE_DEVICE std::uint32_t query(int i, int step, int of_step) const {
      const bool latent = step < kLatentSteps;
      const int column = latent ? warp_index() * kWarpColumns + step * 16 + of_step
                                : p.value_width + warp_index() * 16 + of_step;
      if (!exists(i) || column >= (latent ? p.value_width : p.width)) return 0;
      const std::int64_t row = p.head_of_row(item.b, 0, item.first_row + row_of(i));
      return *reinterpret_cast<const std::uint32_t*>(p.q + row * p.width + column);
    }

    [[nodiscard]] SAMESTATE_DEVICE int first_key(int n) const {
      return static_cast<int>(item.begin) + n * kKeys;
    }
    /// This warp's columns of tile n, when it has no more to read of the one that was there.
    SAMESTATE_DEVICE void fetch_latent(int n) const {
      if (n < count && lane_index() == 0) {
        KeyRing<kStages>& ring = shared.latent[warp_index()];
        ring.wait_empty(n);
        ring.full[n % kStages].expect(2 * kPanel * kWarpPanels);
        SAMESTATE_UNROLL
        for (int i = 0; i < kWarpPanels; ++i) {
          const int index = warp_index() * kWarpPanels + i;
          load_key_tile(panel(n, index), maps.c, ring.full[n % kStages], index * kTileColumns, 0,
                        first_key(n), static_cast<int>(item.b));
        }
      }
      warp_barrier();
    }
    SAMESTATE_DEVICE void fetch_rotary(int n) const {
      if (n < count && thread_index() == 0) {
        shared.rotary.wait_empty(n);
        shared.rotary.full[n % kStages].expect(2 * kPanel);
        load_key_tile(panel(n, kLatentPanels), maps.c_rotary, shared.rotary.full[n % kStages],
                      maps.rotary_column, 0, first_key(n), static_cast<int>(item.b));
      }
      warp_barrier();
    }

    [[nodiscard]] SAMESTATE_DEVICE Bf16* panel(int n, int index) const {
      return tiles + (n % kStages * kPanels + index) * kPanel;
    }
    /// Returns the address of 8 columns of row `row` of a panel, from `column` on.
    static SAMESTATE_DEVICE const Bf16* at(const Bf16* of_panel, int row, int column) {
      return of_panel + swizzled(row, column * 2) / 2;
    }

    /// The sums of this warp's columns.
    SAMESTATE_DEVICE void multiply_scores(int n) {
      const int matrix = lane_index() / 8, r = lane_index() % 8;
      SAMESTATE_UNROLL
      for (int j = 0; j < kScores; ++j) {
        SAMESTATE_UNROLL
        for (float& score : s[j]) score = 0.0F;
      }
      SAMESTATE_UNROLL
      for (int step = 0; step < kSteps; ++step) {
        const bool latent = step < kLatentSteps;
        const Bf16* const keys = panel(n, latent ? warp_index() * kWarpPanels + step / 4 : kLatentPanels);
        const int column = (latent ? step % 4 : warp_index()) * 16 + matrix % 2 * 8;
        SAMESTATE_UNROLL
        for (int j = 0; j < kScores; j += 2) {
          std::uint32_t b[4];
          load_matrices<false>(b, at(keys, 8 * j + matrix / 2 * 8 + r, column));
          multiply_bf16(s[j], queries[step], b[0], b[1]);
          multiply_bf16(s[j + 1], queries[step], b[2], b[3]);
        }
      }
    }

    /// The sums of all columns, in every warp.
    SAMESTATE_DEVICE void meet(int n) {
      auto& of_warps = shared.scores[n % 2];
      SAMESTATE_UNROLL
      for (int j = 0; j < kScores; ++j) of_warps[warp_index()][j][lane_index()] = narrowed<float>(s[j]);
      block_barrier();
      SAMESTATE_UNROLL
      for (int j = 0; j < kScores; ++j) {
        SAMESTATE_UNROLL
        for (int warp = 0; warp < kWarps; ++warp) {
          const Scores part = of_warps[warp][j][lane_index()];
          SAMESTATE_UNROLL
          for (int i = 0; i < 4; ++i) s[j][i] = warp == 0 ? element(part, i) : s[j][i] + element(part, i);
        }
      }
    }

    /// Scores to weights; what follows for the sums of the tiles before.
    SAMESTATE_DEVICE void weigh(int n) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int left = seen[i] - n * kKeys - lane_index() % 4 * 2;
        float most = kUnseen;
        SAMESTATE_UNROLL
        for (int k = 0; k < 2 * kScores; ++k) {
          float& score = s[k / 2][2 * i + k % 2];
          score = k / 2 * 8 + k % 2 < left ? score : kUnseen;
          most = larger(most, score);
        }
        most = larger(most, shuffle_xor(most, 1));
        softmax[i].meet(larger(most, shuffle_xor(most, 2)), true);
        kept[i] = softmax[i].template raise<Bf16>(true, p.scale);
        float sum = 0.0F;
        SAMESTATE_UNROLL
        for (int k = 0; k < 2 * kScores; ++k) {
          float& score = s[k / 2][2 * i + k % 2];
          score = score == kUnseen ? 0.0F : weight_of<Bf16>(score - softmax[i].base, p.scale);
          sum += score;
        }
        weights[i] = fused(weights[i], kept[i], sum);
      }
    }

    /// The parts of the weights of 16 keys.
    SAMESTATE_DEVICE void split_weights(int step, std::uint32_t (&operand)[kParts][4]) const {
      SAMESTATE_UNROLL
      for (int k = 0; k < 4; ++k) {
        const float* const pair = s[2 * step + k / 2] + 2 * (k % 2);
        std::uint32_t parts[kParts];
        split_pair(pair[0], pair[1], parts);
        SAMESTATE_UNROLL
        for (int part = 0; part < kParts; ++part) operand[part][k] = parts[part];
      }
    }

    /// o <- kept o + weights values, this warp's columns 16 at a time.
    SAMESTATE_DEVICE void multiply_values(int n) {
      const int matrix = lane_index() / 8, r = lane_index() % 8;
      SAMESTATE_UNROLL
      for (int i = 0; i < kWarpColumns / 2; ++i) o[i / 4][i % 4] *= kept[i % 4 / 2];
      SAMESTATE_UNROLL
      for (int step = 0; step < kValueSteps; ++step) {
        std::uint32_t operand[kParts][4];
        split_weights(step, operand);
        SAMESTATE_UNROLL
        for (int c = 0; c < kWarpColumns / 16; ++c) {
          std::uint32_t b[4];
          load_matrices<true>(b, at(panel(n, warp_index() * kWarpPanels + c / 4),
                                    16 * step + matrix % 2 * 8 + r, c % 4 * 16 + matrix / 2 * 8));
          SAMESTATE_UNROLL
          for (int part = 0; part < kParts; ++part) {
            multiply_bf16(o[2 * c], operand[part], b[0], b[1]);
            multiply_bf16(o[2 * c + 1], operand[part], b[2], b[3]);
          }
        }
      }
    }

    SAMESTATE_DEVICE void attend() {
      SAMESTATE_NO_UNROLL
      for (int n = 0; n < count; ++n) {
        shared.latent[warp_index()].wait_full(n);
        shared.rotary.wait_full(n);
        multiply_scores(n);
        shared.rotary.release(n);
        meet(n);
        fetch_rotary(n + kStages);
        weigh(n);
        multiply_values(n);
        shared.latent[warp_index()].release(n);
        fetch_latent(n + kStages);
      }
    }

    /// The quotients, or a part's sums.
    SAMESTATE_DEVICE void write() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        weights[i] += shuffle_xor(weights[i], 1);
        weights[i] += shuffle_xor(weights[i], 2);
        if (!exists(i)) continue;
        if (p.parts > 1) {
          write_sums(i);
        } else {
          write_quotients(i, 1.0F / weights[i]);
        }
      }
    }

   private:
    static SAMESTATE_DEVICE int first_column() { return warp_index() * kWarpColumns + lane_index() % 4 * 2; }
    SAMESTATE_DEVICE void write_sums(int i) const {
      const std::int64_t row = p.summed_row(item.part, item.b, 0, item.first_row + row_of(i));
      if (thread_index() < 32 && lane_index() % 4 == 0) {
        p.largest[row] = softmax[i].largest;
        p.weights[row] = weights[i];
      }
      float* const to = p.sums + row * p.summed_width() + first_column();
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        if (first_column() + 8 * n < p.value_width) store_pair(to + 8 * n, o[n][2 * i], o[n][2 * i + 1]);
      }
    }
    SAMESTATE_DEVICE void write_quotients(int i, float inverse) const {
      Bf16* const to = p.o + p.head_of_row(item.b, 0, item.first_row + row_of(i)) * p.value_width;
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        const int column = first_column() + 8 * n;
        if (column < p.value_width)
          *reinterpret_cast<std::uint32_t*>(to + column) =
              narrow_pair(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
      }
    }
  };
};

}  // namespace samestate::cuda
