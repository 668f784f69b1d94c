#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/attention.cuh"

/// Softmax attention on the matrix unit, bf16, widths in multiples of 8.
namespace samestate::cuda {

/// A block takes 16 kRowTiles kRowWarps rows. Its warps form a grid: those in a row of it share rows, and
/// divide the keys of a tile for the scores and the columns for the values; weights and row maxima meet in
/// shared memory. kStages tiles of keys and values are in shared memory or on their way. kWidth >= width and
/// kValueWidth >= value_width; the columns after these are zero.
template <int kWidth, int kValueWidth, int kRowWarps, int kRowTiles, int kColumnWarps, int kStages>
struct AttentionTiles {
  using Parameters = AttentionParameters<Bf16>;
  static constexpr int kThreads = 32 * kRowWarps * kColumnWarps;
  static constexpr int kRows = 16 * kRowTiles * kRowWarps;
  static constexpr int kKeys = kAttentionKeys;
  static constexpr int kWarpKeys = kKeys / kColumnWarps;
  static constexpr int kWarpColumns = kValueWidth / kColumnWarps;
  // Weights that a warp has in registers at a time: half of them where its sums take 128.
  static constexpr int kValueKeys = kRowTiles * kWarpColumns > 128 ? kKeys / 2 : kKeys;
  // 16 bytes more than a row has: eight rows of a matrix then lie in different banks.
  static constexpr int kKeyRow = kWidth + 8, kValueRow = kValueWidth + 8, kWeightRow = kKeys + 8;
  static constexpr int kKeyTile = kKeys * kKeyRow, kValueTile = kKeys * kValueRow;
  static constexpr std::size_t kShared =
      sizeof(Bf16) * (kRows * (kKeyRow + kWeightRow) + kStages * (kKeyTile + kValueTile)) +
      sizeof(std::int64_t) * (kRows + 3) +
      (sizeof(float) * (2 * kColumnWarps + 2) + sizeof(RowSoftmax)) * kRows;
  static_assert(kWarpKeys % 16 == 0 && kWarpColumns % 16 == 0 && kWidth % 32 == 0 && kStages >= 2);
  static_assert(kRows <= kThreads, "a thread a row");
  static_assert(kShared <= 227 * 1024, "what a block may have");

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return attention_items(p, kRows, kValueWidth);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<AttentionTiles>(blocks_of(items(p), 1), kShared, p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    // No loop over items: what they have in common would be kept in registers.
    AttentionTiles block(p, attention_item(p, block_index(), kRows, kValueWidth), shared);
    block.attend();
    block.write();
  }

 private:
  SAMESTATE_DEVICE AttentionTiles(const Parameters& parameters, const AttentionItem& of,
                                  unsigned char* shared)
      : p(parameters), item(of) {
    q = reinterpret_cast<Bf16*>(shared);
    weights = q + kRows * kKeyRow;
    k = weights + kRows * kWeightRow;
    v = k + kStages * kKeyTile;
    places = reinterpret_cast<std::int64_t*>(v + kStages * kValueTile);
    maxima = reinterpret_cast<float*>(places + kRows + 3);
    factors = maxima + kColumnWarps * kRows;
    summed = factors + kRows;
    last_seen = reinterpret_cast<int*>(summed + kColumnWarps * kRows);
    softmaxes = reinterpret_cast<RowSoftmax*>(last_seen + kRows);
  }

  static SAMESTATE_DEVICE int row_warp() { return warp_index() / kColumnWarps; }
  static SAMESTATE_DEVICE int column_warp() { return warp_index() % kColumnWarps; }
  /// Returns the first of this lane's rows of the item in its warp's m-th tile; the other is 8 below.
  static SAMESTATE_DEVICE int lane_row(int m) { return (row_warp() * kRowTiles + m) * 16 + lane_index() / 4; }

  static SAMESTATE_DEVICE void zero_16(Bf16* to) { *reinterpret_cast<Vector<Bf16, 8>*>(to) = {}; }

  /// `count` rows of `width` columns under way to a tile of kTileRows x kTileWidth, zeros around them.
  template <int kTileRows, int kTileWidth>
  static SAMESTATE_DEVICE void copy_rows(Bf16* to, const Bf16* from, std::int64_t stride, int count,
                                         int width) {
    constexpr int kPieces = kTileWidth / 8;
    SAMESTATE_NO_UNROLL
    for (int piece = thread_index(); piece < kTileRows * kPieces; piece += kThreads) {
      const int row = piece / kPieces, column = piece % kPieces * 8;
      Bf16* const at = to + row * (kTileWidth + 8) + column;
      if (row < count && column < width) {
        copy_async_16(at, from + row * stride + column);
      } else {
        zero_16(at);
      }
    }
  }

  /// `count` steps on, as far as there are any.
  static SAMESTATE_DEVICE AttentionSteps ahead(AttentionSteps step, int count) {
    SAMESTATE_UNROLL
    for (int i = 0; i < count; ++i) {
      if (step.left()) step.advance();
    }
    return step;
  }

  /// A step's tiles, of its values where it needs them; a group of copies in any case.
  SAMESTATE_DEVICE void load(const AttentionSteps& ahead, int stage) {
    if (ahead.left()) {
      copy_rows<kKeys, kWidth>(k + stage * kKeyTile, p.k + places[kRows + 1] + ahead.begin * p.key_stride,
                               p.key_stride, ahead.keys(), p.width);
      if (ahead.values) {
        copy_rows<kKeys, kValueWidth>(v + stage * kValueTile,
                                      p.v + places[kRows + 2] + ahead.begin * p.value_stride, p.value_stride,
                                      ahead.keys(), p.value_width);
      }
    }
    copies_commit();
  }

  SAMESTATE_DEVICE void load_queries() {
    for (int piece = thread_index(); piece < kRows * kWidth / 8; piece += kThreads) {
      const int row = piece / (kWidth / 8), column = piece % (kWidth / 8) * 8;
      Bf16* const to = q + row * kKeyRow + column;
      if (places[row] >= 0 && column < p.width) {
        copy_async_16(to, p.q + places[row] * p.width + column);
      } else {
        zero_16(to);
      }
    }
  }

  /// Stores what the rows see and where they are, in heads; -1 after the last.
  SAMESTATE_DEVICE void place_rows() {
    for (int row = thread_index(); row < kRows; row += kThreads) {
      last_seen[row] = item.seen(p, row);
      softmaxes[row] = {};
      places[row] =
          item.first_row + row < p.rows() ? p.head_of_row(item.b, item.key_head, item.first_row + row) : -1;
    }
    for (int i = thread_index(); i < kColumnWarps * kRows; i += kThreads) summed[i] = 0.0F;
    if (thread_index() == 0) {
      places[kRows] = p.summed_row(item.part, item.b, item.key_head, item.first_row);
      places[kRows + 1] = item.keys(p) - p.k;
      places[kRows + 2] = item.values(p) - p.v;
    }
    block_barrier();
  }

  using Scores = float[kRowTiles][kWarpKeys / 8][4];

  /// This warp's rows with its keys of the tile.
  SAMESTATE_DEVICE void multiply_scores(const Bf16* tile, Scores& s) const {
    const int matrix = lane_index() / 8, r = lane_index() % 8;
    const Bf16* const a_row =
        q + (row_warp() * kRowTiles * 16 + matrix % 2 * 8 + r) * kKeyRow + matrix / 2 * 8;
    const Bf16* const b_row =
        tile + (column_warp() * kWarpKeys + matrix / 2 * 8 + r) * kKeyRow + matrix % 2 * 8;
    SAMESTATE_NO_UNROLL
    for (int slice = 0; slice < kWidth; slice += 64) {
      SAMESTATE_UNROLL
      for (int c = slice; c < slice + 64; c += 16) {
        std::uint32_t a[kRowTiles][4];
        SAMESTATE_UNROLL
        for (int m = 0; m < kRowTiles; ++m) load_matrices<false>(a[m], a_row + m * 16 * kKeyRow + c);
        SAMESTATE_UNROLL
        for (int n = 0; n < kWarpKeys / 16; ++n) {
          std::uint32_t b[4];
          load_matrices<false>(b, b_row + n * 16 * kKeyRow + c);
          SAMESTATE_UNROLL
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_bf16(s[m][2 * n], a[m], b[0], b[1]);
            multiply_bf16(s[m][2 * n + 1], a[m], b[2], b[3]);
          }
        }
      }
    }
  }

  /// The scores of keys that a row does not see to kUnseen; the largest of each row among this warp's keys.
  SAMESTATE_DEVICE void mask(const AttentionSteps& step, Scores& s) const {
    SAMESTATE_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int m = i / 2, half = i % 2, row = lane_row(m) + 8 * half;
      const int seen = last_seen[row] - step.begin;
      const int count = (seen < step.keys() ? seen : step.keys()) - column_warp() * kWarpKeys;
      float largest = kUnseen;
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpKeys / 8; ++n) {
        SAMESTATE_UNROLL
        for (int e = 0; e < 2; ++e) {
          float& score = s[m][n][2 * half + e];
          score = 8 * n + lane_index() % 4 * 2 + e < count ? score : kUnseen;
          largest = score > largest ? score : largest;
        }
      }
      SAMESTATE_UNROLL
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        const float other = shuffle_xor(largest, lanes);
        largest = other > largest ? other : largest;
      }
      if (lane_index() % 4 == 0) maxima[column_warp() * kRows + row] = largest;
    }
  }

  /// One row's running softmax by one thread, for all that have the row.
  SAMESTATE_DEVICE void raise(const AttentionSteps& step) {
    const int row = thread_index();
    if (row >= kRows) return;
    float largest = maxima[row];
    SAMESTATE_UNROLL
    for (int w = 1; w < kColumnWarps; ++w)
      largest = maxima[w * kRows + row] > largest ? maxima[w * kRows + row] : largest;
    RowSoftmax softmax = softmaxes[row];
    softmax.meet(largest, step.opens());
    if (step.first_values()) {
      factors[row] = softmax.template raise<Bf16>(p.running, p.scale);
    } else if (step.values) {
      factors[row] = 1.0F;
    }
    softmaxes[row] = softmax;
  }

  /// Scores to weights, as operands in shared memory.
  SAMESTATE_DEVICE void weigh(const Scores& s) {
    SAMESTATE_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int m = i / 2, half = i % 2, row = lane_row(m) + 8 * half;
      const float base = softmaxes[row].base;
      Bf16* const to = weights + row * kWeightRow + column_warp() * kWarpKeys + lane_index() % 4 * 2;
      float sum = 0.0F;
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpKeys / 8; ++n) {
        float w[2];
        SAMESTATE_UNROLL
        for (int e = 0; e < 2; ++e) {
          const float score = s[m][n][2 * half + e];
          w[e] = score == kUnseen ? 0.0F : weight_of<Bf16>(score - base, p.scale);
          sum += w[e];
        }
        *reinterpret_cast<std::uint32_t*>(to + 8 * n) = narrow_pair(w[0], w[1]);
      }
      sum += shuffle_xor(sum, 1);
      sum += shuffle_xor(sum, 2);
      float& all = summed[column_warp() * kRows + row];
      if (lane_index() % 4 == 0) all = fused(softmaxes[row].of_chunk, sum, all * factors[row]);
    }
  }

  /// o <- kept o + of_chunk (weights values), this warp's columns 16 at a time: the product of a chunk's weights stands for
  /// itself until it is brought to the largest score so far.
  SAMESTATE_DEVICE void multiply_values(const Bf16* tile) {
    const int matrix = lane_index() / 8, r = lane_index() % 8;
    float kept[2 * kRowTiles], of_chunk[2 * kRowTiles];
    SAMESTATE_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      kept[i] = factors[lane_row(i / 2) + 8 * (i % 2)];
      of_chunk[i] = softmaxes[lane_row(i / 2) + 8 * (i % 2)].of_chunk;
    }
    SAMESTATE_NO_UNROLL
    for (int first = 0; first < kKeys; first += kValueKeys) {
      std::uint32_t a[kRowTiles][kValueKeys / 16][4];
      SAMESTATE_UNROLL
      for (int m = 0; m < kRowTiles; ++m) {
        SAMESTATE_UNROLL
        for (int n = 0; n < kValueKeys / 16; ++n)
          load_matrices<false>(
              a[m][n], weights + ((row_warp() * kRowTiles + m) * 16 + matrix % 2 * 8 + r) * kWeightRow +
                           first + 16 * n + matrix / 2 * 8);
      }
      const Bf16* const b_row =
          tile + (first + matrix % 2 * 8 + r) * kValueRow + column_warp() * kWarpColumns + matrix / 2 * 8;
      SAMESTATE_UNROLL
      for (int c = 0; c < kWarpColumns / 16; ++c) {
        float sum[kRowTiles][2][4] = {};
        SAMESTATE_UNROLL
        for (int n = 0; n < kValueKeys / 16; ++n) {
          std::uint32_t b[4];
          load_matrices<true>(b, b_row + 16 * n * kValueRow + 16 * c);
          SAMESTATE_UNROLL
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_bf16(sum[m][0], a[m][n], b[0], b[1]);
            multiply_bf16(sum[m][1], a[m][n], b[2], b[3]);
          }
        }
        SAMESTATE_UNROLL
        for (int m = 0; m < kRowTiles; ++m) {
          SAMESTATE_UNROLL
          for (int i = 0; i < 8; ++i) {
            const int row = 2 * m + i % 4 / 2;
            float& total = o[m][2 * c + i / 4][i % 4];
            total = fused(of_chunk[row], sum[m][i / 4][i % 4], total * kept[row]);
          }
        }
      }
      SAMESTATE_UNROLL
      for (int i = 0; i < 2 * kRowTiles; ++i) kept[i] = 1.0F;
    }
  }

  SAMESTATE_DEVICE void attend() {
    AttentionSteps step(item, p.chunk);
    place_rows();
    load_queries();
    SAMESTATE_UNROLL
    for (int stage = 0; stage < kStages - 1; ++stage) load(ahead(step, stage), stage);
    int stage = 0;
    SAMESTATE_NO_UNROLL
    for (; step.left(); step.advance()) {
      copies_wait<kStages - 2>();
      block_barrier();
      load(ahead(step, kStages - 1), stage == 0 ? kStages - 1 : stage - 1);
      Scores s = {};
      multiply_scores(k + stage * kKeyTile, s);
      mask(step, s);
      block_barrier();
      raise(step);
      block_barrier();
      if (step.values) {
        weigh(s);
        block_barrier();
        multiply_values(v + stage * kValueTile);
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }

  /// The quotients, or a part's sums.
  SAMESTATE_DEVICE void write() {
    block_barrier();
    if (thread_index() < kRows) {
      const int row = thread_index();
      float sum = 0.0F;
      SAMESTATE_UNROLL
      for (int w = 0; w < kColumnWarps; ++w) sum += summed[w * kRows + row];
      factors[row] = 1.0F / sum;
      if (p.parts > 1 && places[row] >= 0) {
        p.largest[places[kRows] + row] = softmaxes[row].largest;
        p.weights[places[kRows] + row] = sum;
      }
    }
    block_barrier();
    SAMESTATE_UNROLL
    for (int i = 0; i < 2 * kRowTiles; ++i) {
      const int row = lane_row(i / 2) + 8 * (i % 2);
      if (places[row] >= 0) write_row(i / 2, i % 2, row);
    }
    // Copies of the queries where there was no step.
    copy_wait();
  }

  SAMESTATE_DEVICE void write_row(int m, int half, int row) {
    const int first = column_warp() * kWarpColumns + lane_index() % 4 * 2;
    if (p.parts > 1) {
      float* const to = p.sums + (places[kRows] + row) * p.summed_width();
      SAMESTATE_UNROLL
      for (int n = 0; n < kWarpColumns / 8; ++n) {
        if (first + 8 * n < p.value_width)
          store_pair(to + first + 8 * n, o[m][n][2 * half], o[m][n][2 * half + 1]);
      }
      return;
    }
    Bf16* const to = p.o + places[row] * p.value_width;
    const float inverse = factors[row];
    SAMESTATE_UNROLL
    for (int n = 0; n < kWarpColumns / 8; ++n) {
      const int column = first + 8 * n;
      if (column < p.value_width)
        *reinterpret_cast<std::uint32_t*>(to + column) =
            narrow_pair(p.gated(o[m][n][2 * half] * inverse, places[row], column),
                        p.gated(o[m][n][2 * half + 1] * inverse, places[row], column + 1));
    }
  }

  const Parameters& p;
  const AttentionItem item;
  Bf16* q;        ///< [kRows, kKeyRow]
  Bf16* weights;  ///< [kRows, kWeightRow]
  Bf16* k;        ///< [kStages, kKeys, kKeyRow]
  Bf16* v;        ///< [kStages, kKeys, kValueRow]
  float* maxima;  ///< [kColumnWarps, kRows]
  /// [kRows + 3] of the rows in q and in o, in heads, of the first among the sums of the parts, of the first key in k and of
  /// its value in v. In shared memory, as all that is here, for want of registers.
  std::int64_t* places;
  int* last_seen;         ///< [kRows] keys of the item that a row sees
  float* factors;         ///< [kRows] factors of the sums before a step
  float* summed;          ///< [kColumnWarps, kRows] weights
  RowSoftmax* softmaxes;  ///< [kRows]
  float o[kRowTiles][kWarpColumns / 8][4] = {};
};

}  // namespace samestate::cuda
