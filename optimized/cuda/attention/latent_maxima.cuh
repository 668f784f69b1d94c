#pragma once

#include <cstdint>

#include "optimized/cuda/attention/latent_tiles.cuh"
#include "optimized/cuda/units/wgmma_wide.cuh"

namespace samestate::cuda {

/// The largest score of each row and part: a block takes 128 rows, so that each key that it fetches has two products, and
/// scores 128 keys a product, which reads shared memory less often than 64 twice. Keys come 64 columns at a time, each given
/// back as soon as both groups have multiplied it.
struct LatentMaxima : LatentBlock<LatentMaxima> {
  static constexpr int kRows = kGroups * kTileRows;
  static constexpr int kKeys = kLatentPartKeys;
  static constexpr int kKeyTiles = kKeys / kTileRows;
  static constexpr int kStages = 5;
  static constexpr int kTiles = kGroups * kPanels + kStages * kKeyTiles;

  struct Shared {
    Barrier queries;
    KeyRing<kStages> keys;

    SAMESTATE_DEVICE void init() {
      queries.init(1);
      keys.init(kGroups * 4);
    }
  };

  static SAMESTATE_DEVICE Bf16* piece(Bf16* tiles, int n) {
    return tiles + (kGroups * kPanels + n % kStages * kKeyTiles) * kTile;
  }
  static SAMESTATE_DEVICE void fetch(const LatentMaps& maps, const AttentionItem& item, Bf16* tiles,
                                     Shared& shared) {
    load_queries(maps, item, tiles, shared.queries, kGroups);
    const int count = (keys_of(item) + kKeys - 1) / kKeys * kPanels;
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      shared.keys.wait_empty(n);
      Barrier& full = shared.keys.full[KeyRing<kStages>::stage(n)];
      full.expect(kKeyTiles * kTileBytes);
      for (int i = 0; i < kKeyTiles; ++i)
        load_keys(maps, item, piece(tiles, n) + i * kTile, full, n % kPanels,
                  static_cast<int>(item.begin) + n / kPanels * kKeys + i * kTileRows);
    }
  }

  struct Group : Rows {
    const LatentParameters& of;
    const Bf16* const queries;
    Bf16* const tiles;
    Shared& shared;
    float most[2] = {kUnseen, kUnseen};
    float s[32 * kKeyTiles];

    SAMESTATE_DEVICE Group(const LatentParameters& parameters, const AttentionItem& at, int group,
                           Bf16* shared_tiles, Shared& rest)
        : Rows(parameters.p, at, kTileRows * group, kKeys),
          of(parameters),
          queries(shared_tiles + group * kPanels * kTile),
          tiles(shared_tiles),
          shared(rest) {}

    SAMESTATE_DEVICE void multiply_scores(int first_piece) {
      SAMESTATE_UNROLL
      for (int panel = 0; panel < kPanels; ++panel) {
        const int n = first_piece + panel;
        shared.keys.wait_full(n);
        products_begin();
        SAMESTATE_UNROLL
        for (int step = 0; step < 4; ++step)
          multiply_rows(s, by_rows(queries + panel * kTile, step), by_rows(piece(tiles, n), step),
                        panel + step > 0);
        products_commit();
        if (panel == 0) continue;
        products_wait<1>();
        shared.keys.release(n - 1);
      }
      products_wait<0>();
      shared.keys.release(first_piece + kPanels - 1);
    }

    template <bool masked>
    SAMESTATE_DEVICE void meet(int n) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int left = seen[i] - n * kKeys - lane_index() % 4 * 2;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kKeyTiles; ++j) {
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e) {
            const float score = s[4 * j + 2 * i + e];
            most[i] = larger(!masked || 8 * j + e < left ? score : kUnseen, most[i]);
          }
        }
      }
    }

    SAMESTATE_DEVICE void attend() {
      if (count > 0) shared.queries.wait(0);
      int n = 0;
      SAMESTATE_NO_UNROLL
      for (; n < full; ++n) {
        multiply_scores(n * kPanels);
        meet<false>(n);
      }
      SAMESTATE_NO_UNROLL
      for (; n < count; ++n) {
        multiply_scores(n * kPanels);
        meet<true>(n);
      }
    }
    SAMESTATE_DEVICE void write() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        most[i] = larger(most[i], shuffle_xor(most[i], 1));
        most[i] = larger(most[i], shuffle_xor(most[i], 2));
        if (lane_index() % 4 == 0 && exists(i)) of.maxima[summed_row(i)] = most[i];
      }
    }
  };
};

}  // namespace samestate::cuda
