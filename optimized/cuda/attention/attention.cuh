#pragma once

#include <algorithm>
#include <cstdint>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"
#include "optimized/cuda/units/row_parts.cuh"

/// The parts that the kernels of causal softmax attention (EQ-14, EQ-15, EQUATIONS 5.7) share. They take the
/// keys a chunk at a time. The query heads of a key head stand under one another, row `token * group + head`,
/// so that a tile of rows reads a key once for all of them, in decode too. A weight e^{score - base} is
/// rounded to Operand as an operand of the values, and the case determines base: the largest score of the
/// chunks so far, or of the chunk alone. The sums are then brought to the largest score so far in fp32, so
/// that chunks which do not know of each other may be summed by different blocks.
namespace samestate::cuda {

inline constexpr int kAttentionKeys = 64;    ///< keys of a tile, the most that are in shared memory at a time
inline constexpr int kAttentionParts = 256;  ///< most parts into which the keys of a row are split
/// The score of a key that is not seen, and the largest of none.
inline constexpr float kUnseen = -__builtin_huge_valf();

template <class Operand>
struct AttentionParameters {
  const Operand* q = nullptr;  ///< [batch, tokens, heads, width], the last `tokens` of the positions
  const Operand* k = nullptr;  ///< [batch, keys, key_heads, width], rows of `key_stride` elements
  const Operand* v = nullptr;  ///< [batch, keys, key_heads, value_width], rows of `value_stride`
  Operand* o = nullptr;        ///< [batch, tokens, heads, value_width]
  /// o is multiplied by the logistic function of it: heads as those of o, `gate_stride` elements apart; null: it is not.
  const Operand* gate = nullptr;
  float* sums = nullptr;     ///< [parts, batch key_heads rows, summed_width()], where there are several parts
  float* largest = nullptr;  ///< [parts, batch key_heads rows], scores before the scale
  float* weights = nullptr;  ///< the same: sums of weights
  std::int64_t batch = 0;
  std::int64_t tokens = 0;
  std::int64_t keys = 0;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
  std::int64_t gate_stride = 0;
  std::int64_t chunk = 1;
  std::int64_t parts = 1;
  std::int64_t part_keys = 1;  ///< a multiple of chunk
  int key_heads = 1;
  int group = 1;  ///< query heads a key head
  int width = 1;
  int value_width = 1;
  float scale = 1.0F;
  bool running = false;  ///< base is the largest score of all chunks so far, which then are of one part

  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t rows() const { return tokens * group; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t heads() const {
    return static_cast<std::int64_t>(key_heads) * group;
  }
  [[nodiscard]] SAMESTATE_HOST_DEVICE int summed_width() const { return (value_width + 3) / 4 * 4; }
  [[nodiscard]] SAMESTATE_HOST_DEVICE std::int64_t row_tiles(int tile) const {
    return (rows() + tile - 1) / tile;
  }
  /// A device holds fewer than 2^32 rows: a division in 32 bits, of which every thread does several before its first load.
  [[nodiscard]] SAMESTATE_DEVICE std::int64_t token_of(std::int64_t row) const {
    return static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(group);
  }
  /// Returns the index in heads at which row `row` of a key head begins in q and in o.
  [[nodiscard]] SAMESTATE_DEVICE std::int64_t head_of_row(std::int64_t b, int key_head,
                                                          std::int64_t row) const {
    const std::int64_t token = token_of(row);
    return (b * tokens + token) * heads() + static_cast<std::int64_t>(key_head) * group + row - token * group;
  }
  /// Returns the number of keys that a row sees; 0 after the last row.
  [[nodiscard]] SAMESTATE_DEVICE std::int64_t seen(std::int64_t row) const {
    return row < rows() ? keys - tokens + token_of(row) + 1 : 0;
  }
  /// The quotient of column `column` of `head`, which counts as in q, as o has it.
  [[nodiscard]] SAMESTATE_DEVICE float gated(float quotient, std::int64_t head, int column) const {
    return gate == nullptr ? quotient : quotient * logistic(widen(gate[head * gate_stride + column]));
  }
  /// Where a row's part of the sums is.
  [[nodiscard]] SAMESTATE_DEVICE std::int64_t summed_row(std::int64_t part, std::int64_t b, int key_head,
                                                         std::int64_t row) const {
    return ((part * batch + b) * key_heads + key_head) * rows() + row;
  }
};

/// Splits the keys so that the grid, which has `tiles` blocks without, has some `blocks`: parts of whole chunks.
template <class Operand>
void split_keys(AttentionParameters<Operand>& p, std::int64_t tiles, std::int64_t blocks) {
  const std::int64_t chunks = std::max<std::int64_t>((p.keys + p.chunk - 1) / p.chunk, 1);
  const std::int64_t wanted =
      p.running || tiles == 0
          ? 1
          : std::clamp<std::int64_t>(blocks / tiles, 1, std::min<std::int64_t>(chunks, kAttentionParts));
  p.part_keys = (chunks + wanted - 1) / wanted * p.chunk;
  p.parts = std::max<std::int64_t>((p.keys + p.part_keys - 1) / p.part_keys, 1);
}

/// A block's work: row tile and part of one sequence and key head.
struct AttentionItem {
  std::int64_t b;
  std::int64_t part;
  std::int64_t first_row;
  std::int64_t begin, end;  ///< keys, `end` where the last row sees no more
  int key_head;
  int column;  ///< first of the columns of the values

  /// The item's first key and value, of its key head.
  template <class Operand>
  [[nodiscard]] SAMESTATE_DEVICE const Operand* keys(const AttentionParameters<Operand>& p) const {
    return p.k + (b * p.keys + begin) * p.key_stride + static_cast<std::int64_t>(key_head) * p.width;
  }
  template <class Operand>
  [[nodiscard]] SAMESTATE_DEVICE const Operand* values(const AttentionParameters<Operand>& p) const {
    return p.v + (b * p.keys + begin) * p.value_stride + static_cast<std::int64_t>(key_head) * p.value_width;
  }
  /// Returns how many of the item's keys its row `row` sees.
  template <class Operand>
  [[nodiscard]] SAMESTATE_DEVICE int seen(const AttentionParameters<Operand>& p, int row) const {
    const std::int64_t of_row = p.seen(first_row + row);
    const std::int64_t last = of_row < end ? of_row : end;
    return last > begin ? static_cast<int>(last - begin) : 0;
  }
};

/// The item of block `block`. Rows that see the most come first, so that no long item begins when the others end.
template <class Operand>
SAMESTATE_DEVICE AttentionItem attention_item(const AttentionParameters<Operand>& p, std::int64_t block,
                                              int tile_rows, int tile_columns) {
  auto left = static_cast<std::uint32_t>(block);  // a grid's blocks are fewer than 2^31
  const auto next = [&](std::int64_t count) {
    const std::uint32_t digit = left % static_cast<std::uint32_t>(count);
    left /= static_cast<std::uint32_t>(count);
    return static_cast<int>(digit);
  };
  AttentionItem at;
  at.column = next((p.value_width + tile_columns - 1) / tile_columns) * tile_columns;
  at.key_head = next(p.key_heads);
  at.b = next(p.batch);
  at.part = next(p.parts);
  at.first_row = (p.row_tiles(tile_rows) - 1 - left) * tile_rows;
  const std::int64_t last = at.first_row + tile_rows < p.rows() ? at.first_row + tile_rows : p.rows();
  const std::int64_t seen = p.seen(last - 1);
  at.begin = at.part * p.part_keys;
  at.end = at.begin + p.part_keys < seen ? at.begin + p.part_keys : seen;
  return at;
}

template <class Operand>
SAMESTATE_HOST_DEVICE std::int64_t attention_items(const AttentionParameters<Operand>& p, int tile_rows,
                                                   int tile_columns) {
  return p.row_tiles(tile_rows) * p.parts * p.batch * p.key_heads *
         ((p.value_width + tile_columns - 1) / tile_columns);
}

/// The tiles of an item's keys in their order, counted from its first key. A chunk of several is met twice: its largest score
/// must be known before its first weight is rounded.
struct AttentionSteps {
  int chunk;
  int end;          ///< end of the item
  int chunk_begin;  ///< begin of this step's chunk
  int begin;        ///< begin of this step's keys
  bool values;      ///< the second time, or the only one

  SAMESTATE_DEVICE AttentionSteps(const AttentionItem& item, std::int64_t keys_of_chunk)
      : end(item.begin < item.end ? static_cast<int>(item.end - item.begin) : 0), chunk_begin(0), begin(0) {
    chunk = keys_of_chunk < end ? static_cast<int>(keys_of_chunk) : end;
    values = single();
  }
  [[nodiscard]] SAMESTATE_DEVICE int chunk_end() const {
    return chunk < end - chunk_begin ? chunk_begin + chunk : end;
  }
  [[nodiscard]] SAMESTATE_DEVICE bool single() const { return chunk_end() - chunk_begin <= kAttentionKeys; }
  [[nodiscard]] SAMESTATE_DEVICE bool left() const { return begin < end; }
  /// Returns true if this is the first visit to a chunk.
  [[nodiscard]] SAMESTATE_DEVICE bool opens() const { return begin == chunk_begin && (!values || single()); }
  [[nodiscard]] SAMESTATE_DEVICE bool first_values() const { return values && begin == chunk_begin; }
  [[nodiscard]] SAMESTATE_DEVICE int keys() const {
    const int count = chunk_end() - begin;
    return count < kAttentionKeys ? count : kAttentionKeys;
  }
  SAMESTATE_DEVICE void advance() {
    begin += kAttentionKeys;
    if (begin < chunk_end()) return;
    if (values) {
      begin = chunk_begin = chunk_end();
      values = single();
    } else {
      begin = chunk_begin;
      values = true;
    }
  }
};

/// e^{scale x}, x a difference of scores that is at most 0.
template <class Operand>
SAMESTATE_DEVICE float weight_of(float x, float scale) {
  if constexpr (sizeof(Operand) == sizeof(float)) return exponential(x * scale);
  return exponential2(x * (scale * 1.4426950408889634F));
}

/// The running softmax of one row; scores before the scale, which is positive.
struct RowSoftmax {
  float largest = kUnseen;  ///< the largest score of the chunks so far
  float most = kUnseen;     ///< the largest score of this chunk so far
  float base = 0.0F;        ///< subtracted from the scores of this chunk
  float of_chunk = 1.0F;    ///< e^{base - largest}

  /// The largest score of a tile, kUnseen where the row sees none of it; `opens` where it is the chunk's first.
  SAMESTATE_DEVICE void meet(float of_tile, bool opens) { most = opens || of_tile > most ? of_tile : most; }
  /// After all of a chunk's tiles were met. Returns what the sums of the chunks before, of weights too, are multiplied by; those of this one by
  /// of_chunk.
  template <class Operand>
  SAMESTATE_DEVICE float raise(bool running, float scale) {
    if (most == kUnseen) return 1.0F;
    const float before = largest;
    largest = before > most ? before : most;
    base = running ? largest : most;
    of_chunk = base == largest ? 1.0F : weight_of<Operand>(base - largest, scale);
    return before == kUnseen ? 0.0F : before == largest ? 1.0F : weight_of<Operand>(before - largest, scale);
  }
};

/// Few parts of rows together: a warp takes one row and 128 columns, and asks for all sums before it knows their factors. It is on
/// the device before the parts are all there.
template <class Operand>
struct MergeFewParts {
  using Parameters = AttentionParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr bool kStartsEarly = true;
  static constexpr int kParts = 8;
  static constexpr int kColumns = 128;

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.batch * p.key_heads * p.rows() * ((p.value_width + kColumns - 1) / kColumns);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<MergeFewParts>(blocks_of(items(p), kThreads / 32), 0, p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char*) {
    for (std::int64_t i = block_index() * (kThreads / 32) + warp_index(); i < items(p);
         i += grid_blocks() * (kThreads / 32))
      merge(p, i);
  }

 private:
  static SAMESTATE_DEVICE void merge(const Parameters& p, std::int64_t item) {
    const std::int64_t slices = (p.value_width + kColumns - 1) / kColumns;
    const std::int64_t row = item / slices, rows = p.batch * p.key_heads * p.rows();
    const int column = static_cast<int>(item % slices) * kColumns + 4 * lane_index();
    const bool mine = lane_index() < p.parts;
    const float largest = mine ? p.largest[lane_index() * rows + row] : kUnseen;
    const float of_part = mine ? p.weights[lane_index() * rows + row] : 0.0F;
    Vector<float, 4> asked[kParts];
    SAMESTATE_UNROLL
    for (int part = 0; part < kParts; ++part)
      asked[part] = load_settled<true>(
          reinterpret_cast<const Vector<float, 4>*>(p.sums + (part * rows + row) * p.summed_width() + column),
          part < p.parts && column < p.summed_width());
    float most = largest;
    SAMESTATE_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = shuffle_xor(most, mask);
      most = other > most ? other : most;
    }
    const float factor = largest == kUnseen ? 0.0F
                         : largest == most  ? 1.0F
                                            : weight_of<Operand>(largest - most, p.scale);
    const float weights = warp_sum(factor > 0.0F ? factor * of_part : 0.0F);
    float sum[4] = {};
    SAMESTATE_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const float of_all = shuffle(factor, part);
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i)
        sum[i] = of_all > 0.0F ? fused(of_all, element(asked[part], i), sum[i]) : sum[i];
    }
    const std::int64_t head = p.head_of_row(row / p.rows() / p.key_heads,
                                            static_cast<int>(row / p.rows() % p.key_heads), row % p.rows());
    if (column >= p.value_width) return;
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (column + i < p.value_width) sum[i] = p.gated(sum[i] / weights, head, column + i);
    }
    store_part<Operand, 4>(p.o + head * p.value_width, column, p.value_width, p.value_width % 4 == 0, sum);
  }
};

/// The parts of rows together, under the largest of their scores: a block takes one row and 64 columns, 16 threads a part. It is on
/// the device before the parts are all there, and asks for sums before it knows their factors.
template <class Operand>
struct MergeParts {
  using Parameters = AttentionParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr bool kStartsEarly = true;
  static constexpr int kColumns = 64;
  static constexpr int kAtATime = kThreads / (kColumns / 4);
  static constexpr int kAsked = 4;  ///< sums a thread asks for at first
  static constexpr std::size_t kShared =
      sizeof(float) * (kAttentionParts + 2 * kThreads / 32 + kAtATime * kColumns);
  static_assert(kAttentionParts <= kThreads, "a thread a part");

  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.batch * p.key_heads * p.rows() * ((p.value_width + kColumns - 1) / kColumns);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    for (std::int64_t i = block_index(); i < items(p); i += grid_blocks()) {
      merge(p, i, reinterpret_cast<float*>(shared));
      block_barrier();
    }
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<MergeParts>(blocks_of(items(p), 1), kShared, p, stream);
  }

 private:
  static SAMESTATE_DEVICE void merge(const Parameters& p, std::int64_t item, float* factors) {
    float* of_warps = factors + kAttentionParts;
    float* sums = of_warps + 2 * kThreads / 32;  // [kAtATime, kColumns]
    const int slices = (p.value_width + kColumns - 1) / kColumns;
    const int thread = thread_index();
    const std::int64_t row = item / slices;  // of batch and key heads
    const std::int64_t rows = p.batch * p.key_heads * p.rows();
    const int column = static_cast<int>(item % slices) * kColumns + thread % (kColumns / 4) * 4;

    const int first = thread / (kColumns / 4);
    const auto sums_of = [&](std::int64_t part) {
      return load_settled<true>(
          reinterpret_cast<const Vector<float, 4>*>(p.sums + (part * rows + row) * p.summed_width() + column),
          part < p.parts && column < p.summed_width());
    };
    Vector<float, 4> asked[kAsked];
    SAMESTATE_UNROLL
    for (int i = 0; i < kAsked; ++i) asked[i] = sums_of(first + i * kAtATime);
    const float mine = thread < p.parts ? p.largest[thread * rows + row] : kUnseen;
    const float mine_weights = thread < p.parts ? p.weights[thread * rows + row] : 0.0F;
    float most = mine;
    SAMESTATE_UNROLL
    for (int mask = 16; mask > 0; mask /= 2) {
      const float other = shuffle_xor(most, mask);
      most = other > most ? other : most;
    }
    if (lane_index() == 0) of_warps[warp_index()] = most;
    block_barrier();
    SAMESTATE_UNROLL
    for (int w = 0; w < kThreads / 32; ++w) most = of_warps[w] > most ? of_warps[w] : most;
    const float factor = mine == kUnseen ? 0.0F
                         : mine == most  ? 1.0F
                                         : weight_of<Operand>(mine - most, p.scale);
    if (thread < p.parts) factors[thread] = factor;
    const float weight = warp_sum(mine == kUnseen ? 0.0F : factor * mine_weights);
    if (lane_index() == 0) of_warps[kThreads / 32 + warp_index()] = weight;
    block_barrier();
    float weights = 0.0F;
    SAMESTATE_UNROLL
    for (int w = 0; w < kThreads / 32; ++w) weights += of_warps[kThreads / 32 + w];

    float sum[4] = {};
    const auto add = [&](std::int64_t part, const Vector<float, 4>& values) {
      if (part >= p.parts || !(factors[part] > 0.0F)) return;
      SAMESTATE_UNROLL
      for (int i = 0; i < 4; ++i) sum[i] = fused(factors[part], element(values, i), sum[i]);
    };
    SAMESTATE_UNROLL
    for (int i = 0; i < kAsked; ++i) add(first + i * kAtATime, asked[i]);
    for (std::int64_t part = first + kAsked * kAtATime; part < p.parts; part += kAtATime)
      add(part, sums_of(part));
    SAMESTATE_UNROLL
    for (int i = 0; i < 4; ++i) sums[4 * thread + i] = sum[i];
    block_barrier();
    const int mine_column = static_cast<int>(item % slices) * kColumns + thread;
    if (thread >= kColumns || mine_column >= p.value_width) return;
    float total = 0.0F;
    SAMESTATE_UNROLL
    for (int n = 0; n < kAtATime; ++n) total += sums[n * kColumns + thread];
    const std::int64_t head = p.head_of_row(row / p.rows() / p.key_heads,
                                            static_cast<int>(row / p.rows() % p.key_heads), row % p.rows());
    p.o[head * p.value_width + mine_column] = narrow<Operand>(p.gated(total / weights, head, mine_column));
  }
};

template <class Operand>
void merge_parts(const AttentionParameters<Operand>& p, cudaStream_t stream) {
  if (p.parts == 1) return;
  if (p.parts <= MergeFewParts<Operand>::kParts) {
    MergeFewParts<Operand>::launch(p, stream);
  } else {
    MergeParts<Operand>::launch(p, stream);
  }
}

}  // namespace samestate::cuda
