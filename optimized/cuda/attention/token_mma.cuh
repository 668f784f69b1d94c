#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/attention.cuh"
#include "optimized/cuda/units/key_tiles.cuh"

/// Softmax attention of few queries over many keys on the matrix unit, bf16, chunks of a tile of keys: what it waits for is
/// memory.
namespace samestate::cuda {

/// A block takes 16 rows. One warp fetches keys and values by tensor copies whose maps end with each
/// sequence, alternately through one ring of tiles. Four others divide the keys of a tile among themselves
/// for the scores, and the columns for the values. Two blocks fit a multiprocessor, so that the begin, the
/// end and the barriers of one overlap with the copies of the other. Every thread that has a row keeps its
/// running softmax for itself, so a tile takes two barriers: for the maxima and for the weights. kPanels is
/// the larger width in 64 columns; the columns after that are zero.
template <int kPanels>
struct AttentionDecode {
  struct Parameters {
    AttentionParameters<Bf16> p;
    KeyMap k, v;
  };
  static constexpr int kWarps = 4, kGroupThreads = 32 * kWarps;
  static constexpr int kThreads = kGroupThreads + 32;
  static constexpr int kRows = 16;
  static constexpr int kKeys = kTileRows, kWarpKeys = kKeys / kWarps;
  static constexpr int kTile = kTileBytes / 2;  ///< elements
  static constexpr int kStages = 12 / kPanels;  ///< 96 KB of keys and values
  static constexpr int kWarpColumns = kPanels * kTileColumns / kWarps;
  // 16 bytes more than a row has: eight rows of a matrix then lie in different banks.
  static constexpr int kWeightRow = kKeys + 8, kQueryRow = kPanels * kTileColumns + 8;
  static constexpr int kResidentBlocks = 2;

  struct Shared {
    KeyRing<kStages> ring;
    alignas(16) float maxima[kRows][kWarps];  ///< maxima of a tile's scores, then sums of weights
    alignas(16) Bf16 weights[kRows * kWeightRow];
    alignas(16) Bf16 queries[kRows * kQueryRow];
  };
  static constexpr std::size_t kTileShared = static_cast<std::size_t>(kTileBytes) * kStages * kPanels;
  static constexpr std::size_t kShared = kTileShared + sizeof(Shared) + kTileAlignment;
  static_assert(kResidentBlocks * (kShared + 1024) <= 228 * 1024, "what a multiprocessor has");
  static_assert(kStages >= 3, "one is read, two are fetched");

  static void launch(const AttentionParameters<Bf16>& p, cudaStream_t stream) {
    const std::int64_t items = attention_items(p, kRows, kPanels * kTileColumns);
    if (items == 0) return;  // without keys there is no map of them
    const Parameters of{p, key_map({p.k, p.width, p.key_heads, p.keys, p.batch, p.key_stride}),
                        key_map({p.v, p.value_width, p.key_heads, p.keys, p.batch, p.value_stride})};
    cuda::launch<AttentionDecode>(blocks_of(items, 1), kShared, of, stream);
  }

  static SAMESTATE_DEVICE void run(const Parameters& of, unsigned char* shared) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
    (void)of, (void)shared;
    __trap();  // in_decode() asks first whether the device is one of 9.0
#else
    let_next_grid_start();
    const auto first = reinterpret_cast<std::uintptr_t>(shared);
    unsigned char* const tiles = shared + (kTileAlignment - first % kTileAlignment) % kTileAlignment;
    auto& rest = *reinterpret_cast<Shared*>(tiles + kTileShared);
    if (thread_index() == kGroupThreads) {
      rest.ring.init(kWarps);
      barriers_ready();
    }
    block_barrier();
    // No loop over items: what they have in common would be kept in registers.
    const AttentionItem item = attention_item(of.p, block_index(), kRows, kPanels * kTileColumns);
    if (uniform(warp_index()) == kWarps) {
      if (lane_index() == 0) fetch(of, item, reinterpret_cast<Bf16*>(tiles), rest);
    } else {
      Group group(of.p, item, reinterpret_cast<const Bf16*>(tiles), rest);
      group.attend();
      group.write();
    }
#endif
  }

 private:
  static SAMESTATE_DEVICE int tiles_of(const AttentionItem& item) {
    return item.begin < item.end ? static_cast<int>((item.end - item.begin + kKeys - 1) / kKeys) : 0;
  }

  /// Tile n of the ring: keys of tile n / 2, or their values.
  static SAMESTATE_DEVICE void fetch(const Parameters& of, const AttentionItem& item, Bf16* tiles,
                                     Shared& shared) {
    const int count = 2 * tiles_of(item), b = static_cast<int>(item.b);
    SAMESTATE_NO_UNROLL
    for (int n = 0; n < count; ++n) {
      shared.ring.wait_empty(n);
      Barrier& full = shared.ring.full[n % kStages];
      full.expect(kPanels * kTileBytes);
      SAMESTATE_UNROLL
      for (int panel = 0; panel < kPanels; ++panel)
        load_key_tile(tiles + (n % kStages * kPanels + panel) * kTile, n % 2 == 0 ? of.k : of.v, full,
                      panel * kTileColumns, item.key_head, static_cast<int>(item.begin) + n / 2 * kKeys, b);
    }
  }

  /// The rows, of which a thread has two, 8 apart.
  struct Group {
    const AttentionParameters<Bf16>& p;
    const AttentionItem& item;
    const Bf16* const tiles;
    Shared& shared;
    int seen[2];
    RowSoftmax softmax[2];
    float kept[2];
    float weights[2] = {};  ///< sums of this thread's
    float s[2][4];
    float o[kWarpColumns / 8][4] = {};

    SAMESTATE_DEVICE Group(const AttentionParameters<Bf16>& parameters, const AttentionItem& of,
                           const Bf16* shared_tiles, Shared& rest)
        : p(parameters), item(of), tiles(shared_tiles), shared(rest) {
      load_queries();
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) seen[i] = item.seen(p, row_of(i));
      named_barrier(1, kGroupThreads);
    }
    static SAMESTATE_DEVICE int row_of(int i) { return lane_index() / 4 + 8 * i; }
    [[nodiscard]] SAMESTATE_DEVICE bool exists(int i) const { return item.first_row + row_of(i) < p.rows(); }
    [[nodiscard]] SAMESTATE_DEVICE std::int64_t head(int i) const {
      return p.head_of_row(item.b, item.key_head, item.first_row + row_of(i));
    }

    SAMESTATE_DEVICE void load_queries() const {
      constexpr int kPieces = kPanels * kTileColumns / 8;
      SAMESTATE_UNROLL
      for (int i = 0; i < kRows * kPieces / kGroupThreads; ++i) {
        const int piece = i * kGroupThreads + thread_index();
        const int row = piece / kPieces, column = piece % kPieces * 8;
        const bool inside = item.first_row + row < p.rows() && column < p.width;
        const std::int64_t head =
            inside ? p.head_of_row(item.b, item.key_head, item.first_row + row) : std::int64_t{0};
        *reinterpret_cast<Vector<Bf16, 8>*>(shared.queries + row * kQueryRow + column) =
            inside ? *reinterpret_cast<const Vector<Bf16, 8>*>(p.q + head * p.width + column)
                   : Vector<Bf16, 8>{};
      }
    }

    [[nodiscard]] SAMESTATE_DEVICE const Bf16* tile(int n) const {
      return tiles + n % kStages * kPanels * kTile;
    }
    /// Returns the address of 8 columns of row `row` of a panel, from `column` on.
    static SAMESTATE_DEVICE const Bf16* at(const Bf16* panel, int row, int column) {
      return panel + swizzled(row, column * 2) / 2;
    }

    /// This warp's keys; two sums of every other 16 columns, whose products need not wait for each other.
    SAMESTATE_DEVICE void multiply_scores(const Bf16* keys) {
      const int matrix = lane_index() / 8, r = lane_index() % 8;
      const int row = warp_index() * kWarpKeys + matrix / 2 * 8 + r;
      const Bf16* const of_rows = shared.queries + (matrix % 2 * 8 + r) * kQueryRow + matrix / 2 * 8;
      float sum[2][2][4] = {};
      SAMESTATE_UNROLL
      for (int n = 0; n < 4 * kPanels; ++n) {
        std::uint32_t a[4], b[4];
        load_matrices<false>(a, of_rows + 16 * n);
        load_matrices<false>(b, at(keys + n / 4 * kTile, row, n % 4 * 16 + matrix % 2 * 8));
        multiply_bf16(sum[n % 2][0], a, b[0], b[1]);
        multiply_bf16(sum[n % 2][1], a, b[2], b[3]);
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < 8; ++i) s[i / 4][i % 4] = sum[0][i / 4][i % 4] + sum[1][i / 4][i % 4];
    }

    /// Scores of keys that a row does not see to kUnseen; the largest of each row among all keys of the tile, and what follows
    /// for its sums.
    SAMESTATE_DEVICE void raise(int n) {
      const int first = n * kKeys + warp_index() * kWarpKeys + lane_index() % 4 * 2;
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        float most = kUnseen;
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j) {
          float& score = s[j / 2][2 * i + j % 2];
          score = first + j / 2 * 8 + j % 2 < seen[i] ? score : kUnseen;
          most = larger(most, score);
        }
        most = larger(most, shuffle_xor(most, 1));
        most = larger(most, shuffle_xor(most, 2));
        if (lane_index() % 4 == 0) shared.maxima[row_of(i)][warp_index()] = most;
      }
      named_barrier(1, kGroupThreads);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const Quad of_warps = load_quad(shared.maxima[row_of(i)]);
        softmax[i].meet(larger(larger(of_warps.x, of_warps.y), larger(of_warps.z, of_warps.w)), true);
        kept[i] = softmax[i].template raise<Bf16>(p.running, p.scale);
      }
    }

    /// Scores to weights, as operands of all warps.
    SAMESTATE_DEVICE void weigh() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        Bf16* const to =
            shared.weights + row_of(i) * kWeightRow + warp_index() * kWarpKeys + lane_index() % 4 * 2;
        float sum = 0.0F;
        SAMESTATE_UNROLL
        for (int j = 0; j < 2; ++j) {
          float w[2];
          SAMESTATE_UNROLL
          for (int e = 0; e < 2; ++e) {
            const float score = s[j][2 * i + e];
            w[e] = score == kUnseen ? 0.0F : weight_of<Bf16>(score - softmax[i].base, p.scale);
            sum += w[e];
          }
          *reinterpret_cast<std::uint32_t*>(to + 8 * j) = narrow_pair(w[0], w[1]);
        }
        weights[i] = fused(softmax[i].of_chunk, sum, weights[i] * kept[i]);
      }
      named_barrier(1, kGroupThreads);
    }

    /// o <- kept o + of_chunk (weights values), this warp's columns 16 at a time.
    SAMESTATE_DEVICE void multiply_values(const Bf16* values) {
      const int matrix = lane_index() / 8, r = lane_index() % 8;
      const int first_column = warp_index() * kWarpColumns;
      const Bf16* const panel = values + first_column / kTileColumns * kTile;
      std::uint32_t a[kKeys / 16][4];
      SAMESTATE_UNROLL
      for (int n = 0; n < kKeys / 16; ++n)
        load_matrices<false>(a[n],
                             shared.weights + (matrix % 2 * 8 + r) * kWeightRow + 16 * n + matrix / 2 * 8);
      SAMESTATE_UNROLL
      for (int c = 0; c < kWarpColumns / 16; ++c) {
        float sum[2][4] = {};
        SAMESTATE_UNROLL
        for (int n = 0; n < kKeys / 16; ++n) {
          std::uint32_t b[4];
          load_matrices<true>(b, at(panel, 16 * n + matrix % 2 * 8 + r,
                                    first_column % kTileColumns + 16 * c + matrix / 2 * 8));
          multiply_bf16(sum[0], a[n], b[0], b[1]);
          multiply_bf16(sum[1], a[n], b[2], b[3]);
        }
        SAMESTATE_UNROLL
        for (int i = 0; i < 8; ++i) {
          float& total = o[2 * c + i / 4][i % 4];
          total = fused(softmax[i % 4 / 2].of_chunk, sum[i / 4][i % 4], total * kept[i % 4 / 2]);
        }
      }
    }

    SAMESTATE_DEVICE void attend() {
      const int count = tiles_of(item);
      SAMESTATE_NO_UNROLL
      for (int n = 0; n < count; ++n) {
        shared.ring.wait_full(2 * n);
        multiply_scores(tile(2 * n));
        shared.ring.release(2 * n);
        raise(n);
        weigh();
        shared.ring.wait_full(2 * n + 1);
        multiply_values(tile(2 * n + 1));
        shared.ring.release(2 * n + 1);
      }
    }

    /// The quotients, or a part's sums.
    SAMESTATE_DEVICE void write() {
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        weights[i] += shuffle_xor(weights[i], 1);
        weights[i] += shuffle_xor(weights[i], 2);
        if (lane_index() % 4 == 0) shared.maxima[row_of(i)][warp_index()] = weights[i];
      }
      named_barrier(1, kGroupThreads);
      SAMESTATE_UNROLL
      for (int i = 0; i < 2; ++i) {
        if (!exists(i)) continue;
        const Quad of_warps = load_quad(shared.maxima[row_of(i)]);
        const float sum = of_warps.x + of_warps.y + of_warps.z + of_warps.w;
        if (p.parts > 1) {
          write_sums(i, sum);
        } else {
          write_quotients(i, 1.0F / sum);
        }
      }
    }

   private:
    static SAMESTATE_DEVICE int first_column() { return warp_index() * kWarpColumns + lane_index() % 4 * 2; }
    SAMESTATE_DEVICE void write_sums(int i, float sum) const {
      const std::int64_t row = p.summed_row(item.part, item.b, item.key_head, item.first_row + row_of(i));
      if (thread_index() % 4 == 0 && warp_index() == 0) {
        p.largest[row] = softmax[i].largest;
        p.weights[row] = sum;
      }
      float* const to = p.sums + row * p.summed_width() + first_column();
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        if (first_column() + 8 * n < p.value_width) store_pair(to + 8 * n, o[n][2 * i], o[n][2 * i + 1]);
      }
    }
    SAMESTATE_DEVICE void write_quotients(int i, float inverse) const {
      const std::int64_t of_row = head(i);
      Bf16* const to = p.o + of_row * p.value_width;
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        const int column = first_column() + 8 * n;
        if (column < p.value_width)
          *reinterpret_cast<std::uint32_t*>(to + column) =
              narrow_pair(p.gated(o[n][2 * i] * inverse, of_row, column),
                          p.gated(o[n][2 * i + 1] * inverse, of_row, column + 1));
      }
    }
  };
};

}  // namespace samestate::cuda
