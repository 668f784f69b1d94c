#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/attention.cuh"
#include "optimized/cuda/units/bits.cuh"
#include "optimized/cuda/units/key_tiles.cuh"
#include "optimized/cuda/units/wgmma_wide.cuh"

/// Softmax attention of many queries on the asynchronous matrix unit, bf16, chunks of a tile of keys.
namespace samestate::cuda {

/// A block takes 128 rows, with two warpgroups of 64 that have a row's sums in registers, and a thread that
/// fetches keys and values tile by tile. A warpgroup starts the scores of tile n and the values of tile n - 1
/// at once, and weighs the scores while the unit multiplies the values, its own and those of the other group.
/// kPanels and kValuePanels are the widths in 64 columns; the columns after these are zero. A tile is a
/// chunk, so its largest score is known in one piece.
template <int kPanels, int kValuePanels, int kHalves>
struct AttentionPrefill {
  struct Parameters {
    AttentionParameters<Bf16> p;
    KeyMap k, v;
  };
  static constexpr int kGroups = 2, kGroupThreads = 128;
  static constexpr int kThreads = (1 + kGroups) * kGroupThreads;
  static constexpr int kRows = kGroups * kTileRows;
  static constexpr int kKeys = kHalves * kTileRows;
  static constexpr int kTile = kTileBytes / 2;  ///< elements
  static constexpr int kKeyTiles = kPanels * kHalves, kValueTiles = kValuePanels * kHalves;
  static constexpr float kLargeBase = 0x1p16F;       ///< its rounding moves weights by half a percent at most
  static constexpr std::int64_t kCached = 16 << 20;  ///< bytes of keys and values, a third of an H100's L2
  static constexpr int kMostTiles = 27;              ///< as many as fit the 227 KB that a block may have
  static constexpr int kFitting = (kMostTiles - kGroups * kPanels) / (kKeyTiles + kValueTiles);
  static constexpr int kStages = kFitting < 4 ? kFitting : 4;
  static_assert(kStages >= 2, "one is read, one is fetched");
  static_assert(kValuePanels <= kPanels, "results go where the queries were");

  struct Barriers {
    KeyRing<kStages> k, v;
    Barrier turn[kGroups];  ///< whose products the unit is given next
  };
  static constexpr std::size_t kTileShared =
      static_cast<std::size_t>(kTileBytes) * (kGroups * kPanels + kStages * (kKeyTiles + kValueTiles));
  static constexpr std::size_t kShared = kTileShared + sizeof(Barriers) + kTileAlignment;
  static_assert(kShared <= 227 * 1024, "what a block may have");

  static void launch(const AttentionParameters<Bf16>& p, cudaStream_t stream) {
    const Parameters of{p, key_map({p.k, p.width, p.key_heads, p.keys, p.batch, p.key_stride}),
                        key_map({p.v, p.value_width, p.key_heads, p.keys, p.batch, p.value_stride})};
    cuda::launch<AttentionPrefill>(blocks_of(attention_items(p, kRows, 64 * kValuePanels), 1), kShared, of,
                                   stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& of, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)of, (void)shared;
    __trap();  // in_prefill() asks first whether the device is one of 9.0
#else
    work(of, shared);
#endif
  }

 private:
  static SAMESTATE_DEVICE void work(const Parameters& of, unsigned char* shared) {
    const auto first = reinterpret_cast<std::uintptr_t>(shared);
    unsigned char* const tiles = shared + (kTileAlignment - first % kTileAlignment) % kTileAlignment;
    auto& barriers = *reinterpret_cast<Barriers*>(tiles + kTileShared);
    if (thread_index() == 0) {
      barriers.k.init(kGroups * 4);
      barriers.v.init(kGroups * 4);
      for (Barrier& b : barriers.turn) b.init(4);
      barriers_ready();
    }
    block_barrier();
    // No loop over items: what they have in common would be kept in registers.
    const AttentionItem item = item_of(of.p, block_index());
    const int role = uniform(warp_index() / 4);
    if (role == kGroups) {
      fewer_registers<24>();
      if (thread_index() == kGroups * kGroupThreads)
        fetch(of, item, reinterpret_cast<Bf16*>(tiles), barriers);
    } else {
      more_registers<240>();
      Group group(of.p, item, role, reinterpret_cast<Bf16*>(tiles), barriers);
      group.load_queries();
      group.attend();
      group.write();
    }
  }

  /// Rows that see the most come first, so that no long item begins when the others end; but of as many heads at a time as
  /// have their keys and values in the cache together, or every row tile of a head would fetch them from memory again.
  static SAMESTATE_DEVICE AttentionItem item_of(const AttentionParameters<Bf16>& p, std::int64_t block) {
    const std::int64_t of_head = p.keys * (p.width + p.value_width) * std::int64_t{sizeof(Bf16)};
    const auto heads = static_cast<std::uint32_t>(p.batch * p.key_heads);
    const auto row_tiles = static_cast<std::uint32_t>(p.row_tiles(kRows));
    const std::int64_t fitting = kCached / of_head;
    const std::uint32_t at_once = fitting < 1       ? 1
                                  : fitting < heads ? static_cast<std::uint32_t>(fitting)
                                                    : heads;
    const auto number = static_cast<std::uint32_t>(block);  // a grid's blocks are fewer than 2^31
    const std::uint32_t first = number / (at_once * row_tiles) * at_once;
    const std::uint32_t left = number - first * row_tiles;
    const std::uint32_t here = heads - first < at_once ? heads - first : at_once;
    const std::uint32_t head = first + left % here;
    AttentionItem at;
    at.column = 0, at.part = 0, at.begin = 0;
    at.key_head = static_cast<int>(head % static_cast<std::uint32_t>(p.key_heads));
    at.b = head / static_cast<std::uint32_t>(p.key_heads);
    at.first_row = std::int64_t{row_tiles - 1 - left / here} * kRows;
    const std::int64_t last = at.first_row + kRows < p.rows() ? at.first_row + kRows : p.rows();
    at.end = p.seen(last - 1);
    return at;
  }

  static SAMESTATE_DEVICE int tiles_of(const AttentionItem& item) {
    return static_cast<int>((item.end + kKeys - 1) / kKeys);
  }
  static SAMESTATE_DEVICE Bf16* key_tile(Bf16* tiles, int n) {
    return tiles + (kGroups * kPanels + n % kStages * kKeyTiles) * kTile;
  }
  static SAMESTATE_DEVICE Bf16* value_tile(Bf16* tiles, int n) {
    return tiles + (kGroups * kPanels + kStages * kKeyTiles + n % kStages * kValueTiles) * kTile;
  }

  static SAMESTATE_DEVICE void fetch(const Parameters& of, const AttentionItem& item, Bf16* tiles,
                                     Barriers& barriers) {
    const int count = tiles_of(item), b = static_cast<int>(item.b);
    const auto load = [&](Barrier& full, const KeyMap& from, Bf16* to, int panels, int n) {
      full.expect(panels * kHalves * kTileBytes);
      for (int i = 0; i < panels * kHalves; ++i)
        load_key_tile(to + i * kTile, from, full, i / kHalves * kTileColumns, item.key_head,
                      n * kKeys + i % kHalves * kTileRows, b);
    };
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      barriers.k.wait_empty(n);
      load(barriers.k.full[n % kStages], of.k, key_tile(tiles, n), kPanels, n);
      barriers.v.wait_empty(n);
      load(barriers.v.full[n % kStages], of.v, value_tile(tiles, n), kValuePanels, n);
    }
  }

  /// A warpgroup and its 64 rows, of which a thread has columns 8 j + 2 (lane % 4) + {0, 1} of two, 8 apart.
  struct Group {
    const AttentionParameters<Bf16>& p;
    const AttentionItem& item;
    const int index;
    Bf16* const tiles;
    Barriers& barriers;
    int count, full;  ///< tiles of keys, and of those the ones that every row sees
    int seen[2];
    float factor_of_scores;  ///< scale log2 e
    float largest[2] = {kUnseen, kUnseen};
    float weights[2] = {};  ///< sums of this thread's
    float kept[2];          ///< factors of the earlier sums
    float s[32 * kHalves];
    std::uint32_t operand[4 * kHalves][4];
    float o[32 * kValuePanels] = {};

    SAMESTATE_DEVICE Group(const AttentionParameters<Bf16>& parameters, const AttentionItem& of, int group,
                           Bf16* shared_tiles, Barriers& shared_barriers)
        : p(parameters), item(of), index(group), tiles(shared_tiles), barriers(shared_barriers) {
      count = uniform(tiles_of(item));
      full = uniform(seen_by(kTileRows * index) / kKeys);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) seen[i] = seen_by(row_of(i));
      factor_of_scores = p.scale * 1.4426950408889634F;
    }

    SAMESTATE_DEVICE int row_of(int i) const {
      return kTileRows * index + thread_index() % kGroupThreads / 32 * 16 + lane_index() / 4 + 8 * i;
    }
    /// Rows after the last are computed like any other, but not written.
    SAMESTATE_DEVICE int seen_by(int row) const {
      return item.first_row + row < p.rows() ? item.seen(p, row) : static_cast<int>(item.end);
    }
    SAMESTATE_DEVICE Bf16* queries() const { return tiles + index * kPanels * kTile; }

    /// Eight pieces a thread are under way at once; all of them would be code that no cache of instructions holds.
    SAMESTATE_DEVICE void load_queries() const {
      constexpr int kPieces = kPanels * kTileColumns / 8, kAtATime = kPanels < 2 ? 4 : 8;
      SAMESTATE_NO_UNROLL
      for (int first = 0; first < kTileRows * kPieces; first += kAtATime * kGroupThreads) {
        Words piece[kAtATime];
        const auto at = [&](int i) { return first + i * kGroupThreads + thread_index() % kGroupThreads; };
        SAMESTATE_UNROLL
        for (int i = 0; i < kAtATime; ++i) {
          const int column = at(i) % kPieces * 8;
          const std::int64_t row = item.first_row + kTileRows * index + at(i) / kPieces;
          piece[i] = words(0, 0, 0, 0);
          if (row < p.rows() && column < p.width)
            piece[i] = load_global_words(p.q + p.head_of_row(item.b, item.key_head, row) * p.width + column);
        }
        SAMESTATE_UNROLL
        for (int i = 0; i < kAtATime; ++i)
          store_words(queries(), offset(at(i) / kPieces, at(i) % kPieces * 8), piece[i]);
      }
      fence_async();
      named_barrier(1 + index, kGroupThreads);
    }

    SAMESTATE_DEVICE void multiply_scores(int n) {
      const Bf16* const keys = key_tile(tiles, n);
      products_begin();
      SAMESTATE_UNROLL
      for (int panel = 0; panel < kPanels; ++panel) {
        SAMESTATE_UNROLL
        for (int step = 0; step < 4; ++step)
          multiply_rows(s, by_rows(queries() + panel * kTile, step),
                        by_rows(keys + panel * kHalves * kTile, step), panel + step > 0);
      }
      products_commit();
    }

    SAMESTATE_DEVICE void multiply_values(int n) {
      const Bf16* const values = value_tile(tiles, n);
      products_begin();
      SAMESTATE_UNROLL
      for (int step = 0; step < 4 * kHalves; ++step)
        multiply_panels(o, operand[step], by_panels(values + step / 4 * kTile, step % 4, kHalves));
      products_commit();
    }

    /// Scores of tile n to weights under the largest score so far, e^{scale (score - largest)}.
    template <bool masked>
    SAMESTATE_DEVICE void weigh(int n) {
      float base[2];
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        float most = largest[i];
        const int left = seen[i] - n * kKeys - lane_index() % 4 * 2;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kHalves; ++j) {
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = s[4 * j + 2 * i + e];
            if (masked) score = 8 * j + e < left ? score : kUnseen;
            most = larger(score, most);
          }
        }
        most = larger(most, shuffle_xor(most, 1));
        most = larger(most, shuffle_xor(most, 2));
        kept[i] = most == largest[i] ? 1.0F : exponential2((largest[i] - most) * factor_of_scores);
        largest[i] = most;
        base[i] = -most * factor_of_scores;
      }
      // The rounding of a large base is a power of its own, from 2^31 on one beyond fp32: then the largest is taken off first.
      if (ballot(is_large(base[0]) || is_large(base[1])) != 0) take_off(base);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = 0.0F;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kHalves; ++j) {
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e) {
            float& score = s[4 * j + 2 * i + e];
            score = exponential2(fused(score, factor_of_scores, base[i]));
            sum += score;
          }
        }
        weights[i] = fused(weights[i], kept[i], sum);
      }
    }

    SAMESTATE_DEVICE static bool is_large(float base) { return base > kLargeBase || base < -kLargeBase; }
    SAMESTATE_DEVICE void take_off(float (&base)[2]) {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (!is_large(base[i])) continue;  // a row's bits are its own
        SAMESTATE_UNROLL
        for (int j = 0; j < 16 * kHalves; ++j) s[4 * (j / 2) + 2 * i + j % 2] -= largest[i];
        base[i] = 0.0F;
      }
    }

    /// Weights as operands of the values.
    SAMESTATE_DEVICE void round_weights() {
      SAMESTATE_UNROLL
      for (int step = 0; step < 4 * kHalves; ++step) {
        SAMESTATE_UNROLL
        for (int at = 0; at < 4; ++at) {
          const int first = 4 * (2 * step + at / 2) + 2 * (at % 2);
          operand[step][at] = pack(s[first], s[first + 1]);
        }
      }
    }

    /// A factor of 1 changes nothing: after a row's first tiles few raise its largest score.
    SAMESTATE_DEVICE void rescale() {
      if (ballot(kept[0] != 1.0F || kept[1] != 1.0F) == 0) return;
      SAMESTATE_UNROLL
      for (int e = 0; e < 32 * kValuePanels; ++e) o[e] *= kept[e % 4 / 2];
    }

    template <bool masked>
    SAMESTATE_DEVICE void step(int n) {
      barriers.k.wait_full(n);
      barriers.v.wait_full(n - 1);
      // In turn: else both groups weigh at once, and the unit waits.
      barriers.turn[index].wait(index == 0 ? n - 2 : n - 1);
      multiply_scores(n);
      multiply_values(n - 1);
      barriers.turn[1 - index].arrive_warp();
      products_wait<1>();
      barriers.k.release(n);
      weigh<masked>(n);
      products_wait<0>();
      barriers.v.release(n - 1);
      round_weights();
      rescale();
    }

    SAMESTATE_DEVICE void attend() {
      barriers.k.wait_full(0);
      multiply_scores(0);
      products_wait<0>();
      barriers.k.release(0);
      if (full > 0) {
        weigh<false>(0);
      } else {
        weigh<true>(0);
      }
      round_weights();
      int n = 1;
      SAMESTATE_NO_UNROLL
      for (; n < full; ++n) step<false>(n);
      SAMESTATE_NO_UNROLL
      for (; n < count; ++n) step<true>(n);
      barriers.v.wait_full(count - 1);
      multiply_values(count - 1);
      products_wait<0>();
    }

    /// Writes the quotients as operands through the memory of the group's queries, which are no longer
    /// needed, with 16 bytes per access.
    SAMESTATE_DEVICE void write() {
      named_barrier(1 + index, kGroupThreads);
      // Two branches of all columns, not one of each: once a block, code is fetched from memory.
      if (p.gate == nullptr) {
        store_quotients<false>();
      } else {
        store_quotients<true>();
      }
      warp_barrier();
      constexpr int kPieces = kValuePanels * kTileColumns / 8, kWarpRows = 16,
                    kAtATime = kPieces < 16 ? 2 : 4;
      SAMESTATE_NO_UNROLL
      for (int first = 0; first < kWarpRows * kPieces; first += 32 * kAtATime) {
        SAMESTATE_UNROLL
        for (int i = 0; i < kAtATime; ++i) {
          const int piece = first + 32 * i + lane_index(), column = piece % kPieces * 8;
          const int of_group = thread_index() % kGroupThreads / 32 * kWarpRows + piece / kPieces;
          const std::int64_t row = item.first_row + kTileRows * index + of_group;
          if (row >= p.rows() || column >= p.value_width) continue;
          Bf16* const to = p.o + p.head_of_row(item.b, item.key_head, row) * p.value_width + column;
          store_result<false>(reinterpret_cast<Words*>(to), load_words(queries(), offset(of_group, column)));
        }
      }
    }

    template <bool gated>
    SAMESTATE_DEVICE void store_quotients() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        float sum = weights[i];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        const float inverse = 1.0F / sum;
        const std::int64_t row = item.first_row + row_of(i);
        const std::int64_t head = gated && row < p.rows() ? p.head_of_row(item.b, item.key_head, row) : 0;
        const Bf16* const gates = gated ? p.gate + head * p.gate_stride + lane_index() % 4 * 2 : nullptr;
        SAMESTATE_UNROLL
        for (int j = 0; j < 8 * kValuePanels; ++j) {
          const int column = 8 * j + lane_index() % 4 * 2;
          // Gates are read for this many columns at a time; there are no registers for more next to the sums.
          if (gated && j % 2 == 0) warp_barrier();
          float x = o[4 * j + 2 * i] * inverse, y = o[4 * j + 2 * i + 1] * inverse;
          if (gated && column < p.value_width) {
            const auto gate = *reinterpret_cast<const Vector<Bf16, 2>*>(gates + 8 * j);
            x *= logistic_for<Bf16>(element(gate, 0)), y *= logistic_for<Bf16>(element(gate, 1));
          }
          auto* const to =
              reinterpret_cast<unsigned char*>(queries()) + offset(row_of(i) % kTileRows, column);
          *reinterpret_cast<std::uint32_t*>(to) = narrow_pair(x, y);
        }
      }
    }

    /// Returns the byte offset of element `column` of a row in tiles side by side.
    static SAMESTATE_DEVICE int offset(int row, int column) {
      return column / kTileColumns * kTileBytes + swizzled(row, column % kTileColumns * 2);
    }
  };
};

}  // namespace samestate::cuda
