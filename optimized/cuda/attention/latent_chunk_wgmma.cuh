#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/attention/latent_maxima.cuh"
#include "optimized/cuda/attention/latent_token_mma.cuh"
#include "optimized/cuda/attention/launch.cuh"
#include "optimized/cuda/units/wgmma_wide.cuh"

/// Softmax attention of many query heads over one latent row a token on the asynchronous matrix unit, bf16: keys are
/// [c | k^R], values are c itself. Weights are rounded under the largest score of all the keys that a row sees, so there are
/// two grids: LatentMaxima has the scores alone, LatentValues has them again and the sums. As the second knows the base from
/// the start, it has no sums to rescale, and both may split the keys at any tile: the sums of parts under one base are added.
/// Few rows go to LatentDecode, which rounds no weight.
namespace samestate::cuda {

/// The sums of values under the bases that LatentMaxima has found: a block takes 64 rows, and each warpgroup 256 columns of
/// their sums in registers. The groups have the scores of a tile of 64 keys in turn, all 64 at once: products of 32 would take
/// a third longer for half the scores. Its weights are operands of the group that made them in registers, and of the other in
/// shared memory, where the tile's rotary columns were, which the values do not have. So a block holds 64 queries and two
/// tiles of keys: one is multiplied while the other is fetched, and a group gives its half of a tile back by itself.
struct LatentValues : LatentBlock<LatentValues> {
  static constexpr int kRows = kTileRows, kKeys = kTileRows;
  static constexpr int kStages = 2;
  static constexpr int kTiles = kPanels * (1 + kStages);
  static constexpr int kGroupPanels = kLatentPanels / kGroups;
  /// The parts in which a tile arrives and is released: the columns of values of each group, and the rotary
  /// columns.
  static constexpr int kShares = kGroups + 1;

  struct Shared {
    Barrier queries;
    KeyRing<kStages> shares[kShares];
    Barrier weighed[kStages];  ///< a tile's weights are in shared memory
    Barrier summed;            ///< both groups' sums are there, and all products have been waited for
    float sums[kGroups][kRows];

    SAMESTATE_DEVICE void init() {
      queries.init(1);
      for (KeyRing<kStages>& share : shares) share.init(4);
      for (Barrier& b : weighed) b.init(4);
      summed.init(4 * kGroups);
    }
  };

  static SAMESTATE_DEVICE Bf16* key_tile(Bf16* tiles, int n) {
    return tiles + (1 + n % kStages) * kPanels * kTile;
  }
  static SAMESTATE_DEVICE void fetch(const LatentMaps& maps, const AttentionItem& item, Bf16* tiles,
                                     Shared& shared) {
    load_queries(maps, item, tiles, shared.queries, 1);
    const int count = (keys_of(item) + kKeys - 1) / kKeys;
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      SAMESTATE_NO_UNROLL
      for (int share = 0; share < kShares; ++share) {
        const int first = share * kGroupPanels,
                  panels = share < kGroups ? kGroupPanels : kPanels - kLatentPanels;
        shared.shares[share].wait_empty(n);
        Barrier& full = shared.shares[share].full[n % kStages];
        full.expect(panels * kTileBytes);
        for (int panel = first; panel < first + panels; ++panel)
          load_keys(maps, item, key_tile(tiles, n) + panel * kTile, full, panel,
                    static_cast<int>(item.begin) + n * kKeys);
      }
    }
  }

  struct Group : Rows {
    const LatentParameters& of;
    const int index;
    Bf16* const tiles;
    Shared& shared;
    float factor;  ///< scale log2 e
    float base[2];
    float weights[2] = {};  ///< sums of this thread's
    float s[32];
    std::uint32_t operand[4][4];
    float o[32 * kGroupPanels] = {};

    SAMESTATE_DEVICE Group(const LatentParameters& parameters, const AttentionItem& at, int group,
                           Bf16* shared_tiles, Shared& rest)
        : Rows(parameters.p, at, 0, kKeys), of(parameters), index(group), tiles(shared_tiles), shared(rest) {
      factor = p.scale * 1.4426950408889634F;
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) base[i] = base_of(i);
    }

    /// Returns the largest score of a row, or of some other row for a row after the last. Each of the four
    /// threads that share the row looks at every fourth part.
    SAMESTATE_DEVICE float base_of(int i) const {
      const std::int64_t row = exists(i) ? item.first_row + row_of(i) : item.first_row;
      float most = kUnseen;
      for (std::int64_t part = lane_index() % 4; part < of.maxima_parts; part += 4)
        most = larger(most, of.maxima[p.summed_row(part, item.b, 0, row)]);
      most = larger(most, shuffle_xor(most, 1));
      return larger(most, shuffle_xor(most, 2));
    }

    SAMESTATE_DEVICE Bf16* weight_tile(int n) const { return key_tile(tiles, n) + kLatentPanels * kTile; }
    SAMESTATE_DEVICE const Bf16* values(int n) const {
      return key_tile(tiles, n) + index * kGroupPanels * kTile;
    }

    SAMESTATE_DEVICE void multiply_scores(int n) {
      const Bf16* const keys = key_tile(tiles, n);
      SAMESTATE_UNROLL
      for (int share = 0; share < kShares; ++share) {
        shared.shares[share].wait_full(n);
        products_begin();
        SAMESTATE_UNROLL
        for (int panel = share * kGroupPanels; panel < (share + 1) * kGroupPanels && panel < kPanels;
             ++panel) {
          SAMESTATE_UNROLL
          for (int step = 0; step < 4; ++step)
            multiply_rows(s, by_rows(tiles + panel * kTile, step), by_rows(keys + panel * kTile, step),
                          panel + step > 0);
        }
      }
      products_commit();
      products_wait<0>();
    }

    /// Scores of tile n to weights, e^{scale (score - base)}, and those to operands.
    template <bool masked>
    SAMESTATE_DEVICE void weigh(int n) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int left = seen[i] - n * kKeys - lane_index() % 4 * 2;
        float sum = 0.0F;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8; ++j) {
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = s[4 * j + 2 * i + e];
            score = exponential2((score - base[i]) * factor);
            if (masked) score = 8 * j + e < left ? score : 0.0F;
            sum += score;
          }
        }
        weights[i] += sum;
      }
      SAMESTATE_UNROLL
      for (int step = 0; step < 4; ++step) {
        SAMESTATE_UNROLL
        for (int at = 0; at < 4; ++at) {
          const int first = 4 * (2 * step + at / 2) + 2 * (at % 2);
          operand[step][at] = pack(s[first], s[first + 1]);
        }
      }
    }

    SAMESTATE_DEVICE void publish_weights(int n) {
      // All of the group's warps have read the rotary columns.
      named_barrier(1 + index, kGroupThreads);
      const int row = thread_index() % kGroupThreads / 32 * 16 + lane_index() % 16;
      SAMESTATE_UNROLL
      for (int step = 0; step < 4; ++step)
        store_matrices<false>(weight_tile(n), swizzled(row, 32 * step + lane_index() / 16 * 16),
                              words(operand[step][0], operand[step][1], operand[step][2], operand[step][3]));
      fence_async();
      shared.weighed[n % kStages].arrive_warp();
    }

    /// A tile whose scores this group has.
    SAMESTATE_DEVICE void take_own(int n) {
      multiply_scores(n);
      if (n < full) {
        weigh<false>(n);
      } else {
        weigh<true>(n);
      }
      publish_weights(n);
      products_begin();
      SAMESTATE_UNROLL
      for (int step = 0; step < 4; ++step) multiply_panels(o, operand[step], by_panels(values(n), step, 1));
      products_commit();
      products_wait<0>();
      shared.shares[index].release(n);
    }
    /// A tile whose scores the other group has.
    SAMESTATE_DEVICE void take_other(int n) {
      shared.shares[index].wait_full(n);
      shared.weighed[n % kStages].wait(n / kStages);
      products_begin();
      SAMESTATE_UNROLL
      for (int step = 0; step < 4; ++step)
        multiply_panels(o, by_rows(weight_tile(n), step), by_panels(values(n), step, 1));
      products_commit();
      products_wait<0>();
      shared.shares[index].release(n);
      shared.shares[kGroups].release(n);
    }

    SAMESTATE_DEVICE void attend() {
      if (count == 0) return;
      shared.queries.wait(0);
      if (index == 1) take_other(0);
      SAMESTATE_NO_UNROLL
      for (int n = index; n < count; n += kGroups) {
        take_own(n);
        if (n + 1 < count) take_other(n + 1);
      }
    }

    SAMESTATE_DEVICE void write() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        weights[i] += shuffle_xor(weights[i], 1);
        weights[i] += shuffle_xor(weights[i], 2);
        if (lane_index() % 4 == 0) shared.sums[index][row_of(i)] = weights[i];
      }
      // Every lane for itself: of a barrier of these eight warps alone compute-sanitizer does not always know what it orders.
      shared.summed.arrive_warp();
      shared.summed.wait(0);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) weights[i] = shared.sums[0][row_of(i)] + shared.sums[1][row_of(i)];
      if (p.parts > 1) {
        write_sums();
      } else {
        write_quotients();
      }
    }

   private:
    /// A part's; all have the base of the row's keys, so that MergeParts adds them as they are.
    SAMESTATE_DEVICE void write_sums() const {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (!exists(i)) continue;
        const std::int64_t row = this->summed_row(i);
        if (index == 0 && lane_index() % 4 == 0) {
          p.largest[row] = seen[i] > 0 ? base[i] : kUnseen;
          p.weights[row] = weights[i];
        }
        const int first = index * kGroupPanels * kTileColumns + lane_index() % 4 * 2;
        float* const sums = p.sums + row * p.summed_width() + first;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kGroupPanels; ++j) {
          const float pair[2] = {o[4 * j + 2 * i], o[4 * j + 2 * i + 1]};
          if (first + 8 * j < p.value_width)
            *reinterpret_cast<Vector<float, 2>*>(sums + 8 * j) = narrowed<float>(pair);
        }
      }
    }

    /// Writes through the memory of the queries, which are no longer needed: all scores existed before the
    /// last weights. 16 bytes per access.
    SAMESTATE_DEVICE void write_quotients() const {
      Bf16* const staged = tiles + index * kGroupPanels * kTile;
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float inverse = 1.0F / weights[i];
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kGroupPanels; ++j) {
          const int at = j / 8 * kTileBytes + swizzled(row_of(i), j % 8 * 16 + lane_index() % 4 * 4);
          *reinterpret_cast<std::uint32_t*>(reinterpret_cast<unsigned char*>(staged) + at) =
              narrow_pair(o[4 * j + 2 * i] * inverse, o[4 * j + 2 * i + 1] * inverse);
        }
      }
      warp_barrier();
      constexpr int kPieces = kGroupPanels * kTileColumns / 8, kWarpRows = 16;
      static_assert(kPieces == 32, "a lane a piece");
      const int piece = lane_index(), column = index * kGroupPanels * kTileColumns + piece * 8;
      SAMESTATE_NO_UNROLL
      for (int first = 0; first < kWarpRows; first += 4) {
        SAMESTATE_UNROLL
        for (int r = first; r < first + 4; ++r) {
          const int of_item = thread_index() % kGroupThreads / 32 * kWarpRows + r;
          const std::int64_t row = item.first_row + of_item;
          if (row >= p.rows() || column >= p.value_width) continue;
          Bf16* const to = p.o + p.head_of_row(item.b, 0, row) * p.value_width + column;
          store_result<false>(reinterpret_cast<Words*>(to),
                              load_words(staged, piece / 8 * kTileBytes + swizzled(of_item, piece % 8 * 16)));
        }
      }
    }
  };
};

/// Returns true if these grids take a latent with this many columns; narrower rows are left to
/// AttentionTiles.
inline bool in_latent_tiles(std::int64_t columns, std::int64_t rotary) {
  return has_asynchronous_products() && columns % 8 == 0 && rotary % 8 == 0 && columns <= kLatentColumns &&
         rotary <= kRotaryColumns && columns + rotary > kMostTileWidth;
}

/// Returns how many keys a part of a grid has that has `blocks` blocks without parts. It minimises the time
/// of all rounds of blocks, where a block takes `aside` times the time of 128 keys before its first tile and
/// after its last, and merging the sums of parts takes `merge` times that time.
inline std::int64_t latent_part_keys(std::int64_t keys, std::int64_t blocks, std::int64_t aside,
                                     std::int64_t merge) {
  const std::int64_t units = std::max<std::int64_t>((keys + kLatentPartKeys - 1) / kLatentPartKeys, 1);
  std::int64_t least = 0, best = units;
  for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(units, kAttentionParts); ++parts) {
    const std::int64_t of_part = (units + parts - 1) / parts;
    const std::int64_t rounds = (blocks * parts + kLatentBlocks - 1) / kLatentBlocks;
    const std::int64_t time = rounds * (of_part + aside) + (parts > 1 ? merge : 0);
    if (parts == 1 || time < least) least = time, best = of_part;
  }
  return best * kLatentPartKeys;
}

/// Rows a sequence up to which LatentDecode takes them.
inline constexpr std::int64_t kLatentDecodeRows = 32;
/// Parts of their keys are multiples of it.
inline constexpr std::int64_t kLatentDecodeUnit = 32;
using LatentOfFewRows = LatentDecode<32, 2>;

inline bool in_latent_decode(const AttentionParameters<Bf16>& p) { return p.rows() <= kLatentDecodeRows; }

template <class Tensors>
void take_parts(AttentionParameters<Bf16>& p, Tensors& tensors) {
  if (p.parts == 1) return;
  const std::int64_t rows = p.batch * p.rows();
  p.sums = tensors.template scratch<float>(p.parts * rows * p.summed_width());
  p.largest = tensors.template scratch<float>(p.parts * rows);
  p.weights = tensors.template scratch<float>(p.parts * rows);
}

/// Splits the keys where the rows are few, and takes the memory between the grids from `tensors`.
template <class Tensors>
void prepare_latent(LatentParameters& of, Tensors& tensors) {
  AttentionParameters<Bf16>& p = of.p;
  if (in_latent_decode(p)) {
    p.chunk = kLatentDecodeUnit;
    // A block a multiprocessor: of twice as many the parts' merge takes longer than their tiles become shorter.
    split_keys(p, p.row_tiles(LatentOfFewRows::kRows) * p.batch, kLatentBlocks);
    return take_parts(p, tensors);
  }
  const auto parts = [&](std::int64_t part_keys) {
    return std::max<std::int64_t>((p.keys + part_keys - 1) / part_keys, 1);
  };
  of.maxima_part_keys = latent_part_keys(p.keys, p.row_tiles(LatentMaxima::kRows) * p.batch, 1, 0);
  of.maxima_parts = parts(of.maxima_part_keys);
  p.part_keys = latent_part_keys(p.keys, p.row_tiles(LatentValues::kRows) * p.batch, 2, 1);
  p.parts = parts(p.part_keys);
  of.maxima = tensors.template scratch<float>(of.maxima_parts * p.batch * p.rows());
  take_parts(p, tensors);
}

inline void enqueue_latent(const LatentParameters& of, cudaStream_t stream) {
  if (of.p.batch * of.p.rows() == 0) return;
  if (in_latent_decode(of.p)) {
    LatentOfFewRows::launch(of, stream);
    return merge_parts(of.p, stream);
  }
  const LatentMaps values(of);
  LatentMaps maxima = values;
  maxima.of.p.parts = of.maxima_parts, maxima.of.p.part_keys = of.maxima_part_keys;
  LatentMaxima::launch(maxima, stream);
  LatentValues::launch(values, stream);
  merge_parts(of.p, stream);
}

}  // namespace samestate::cuda
