#pragma once

#include <cstddef>
#include <cstdint>

#include "optimized/cuda/attention/attention.cuh"

/// Softmax attention by fused multiply-adds: fp32, and bf16 of widths that the matrix unit's kernel does not take.
namespace samestate::cuda {

/// A block takes 32 rows and 256 columns of the values. A thread has the scores of 8 rows with one key, then 32 rows of one
/// column.
template <class Operand>
struct AttentionRows {
  using Parameters = AttentionParameters<Operand>;
  static constexpr int kThreads = 256;
  static constexpr int kRows = 32;
  static constexpr int kColumns = kThreads;
  static constexpr int kKeys = kAttentionKeys;
  static constexpr int kSlice = 32;  ///< columns of the keys that are in shared memory at a time
  // Four elements more than a row has: eight rows of 16 bytes then lie in different banks.
  static constexpr int kKeyRow = kSlice + 4, kRow = kRows + 4;
  static constexpr int kWarpRows = kRows * 32 / kThreads;
  static constexpr int kScores = kRows * kKeys / kThreads;

  static SAMESTATE_HOST_DEVICE int padded_width(const Parameters& p) {
    return (p.width + kSlice - 1) / kSlice * kSlice;
  }
  static std::size_t shared_bytes(const Parameters& p) {
    return sizeof(float) *
           (static_cast<std::size_t>(padded_width(p)) * kRow + kKeys * (kKeyRow + kRow) + 2 * kRows);
  }
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return attention_items(p, kRows, kColumns);
  }
  static void launch(const Parameters& p, cudaStream_t stream) {
    cuda::launch<AttentionRows>(blocks_of(items(p), 1), shared_bytes(p), p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    // No loop over items: what they have in common would be kept in registers.
    AttentionRows block(p, attention_item(p, block_index(), kRows, kColumns), shared);
    block.attend();
    block.write();
  }

 private:
  SAMESTATE_DEVICE AttentionRows(const Parameters& parameters, const AttentionItem& of, unsigned char* shared)
      : p(parameters), item(of) {
    k = reinterpret_cast<float*>(shared);
    scores = k + kKeys * kKeyRow;
    factors = scores + kKeys * kRow;
    q = factors + 2 * kRows;
  }

  SAMESTATE_DEVICE void load_queries() {
    const int width = padded_width(p);
    for (int i = thread_index(); i < kRows * width; i += kThreads) {
      const int row = i / width, column = i % width;
      const bool inside = item.first_row + row < p.rows() && column < p.width;
      q[column * kRow + row] =
          inside ? widen(p.q[p.head_of_row(item.b, item.key_head, item.first_row + row) * p.width + column])
                 : 0.0F;
    }
  }

  /// Scores of the step's keys into `scores`.
  SAMESTATE_DEVICE void multiply_scores(const AttentionSteps& step) {
    const Operand* const keys = item.keys(p) + step.begin * p.key_stride;
    const int key = thread_index() % kKeys, first_row = thread_index() / kKeys * kScores;
    float sum[kScores] = {};
    for (int slice = 0; slice < p.width; slice += kSlice) {
      block_barrier();
      SAMESTATE_UNROLL
      for (int i = 0; i < kKeys * kSlice / kThreads; ++i) {
        const int row = (i * kThreads + thread_index()) / kSlice, column = thread_index() % kSlice;
        const bool inside = row < step.keys() && slice + column < p.width;
        k[row * kKeyRow + column] = inside ? widen(keys[row * p.key_stride + slice + column]) : 0.0F;
      }
      block_barrier();
      SAMESTATE_UNROLL
      for (int c = 0; c < kSlice; c += 4) {
        const Quad one = load_quad(k + key * kKeyRow + c);
        const float of_key[4] = {one.x, one.y, one.z, one.w};
        SAMESTATE_UNROLL
        for (int j = 0; j < 4; ++j) {
          SAMESTATE_UNROLL
          for (int r = 0; r < kScores; r += 4) {
            const Quad of_rows = load_quad(q + (slice + c + j) * kRow + first_row + r);
            sum[r] = fused(of_rows.x, of_key[j], sum[r]);
            sum[r + 1] = fused(of_rows.y, of_key[j], sum[r + 1]);
            sum[r + 2] = fused(of_rows.z, of_key[j], sum[r + 2]);
            sum[r + 3] = fused(of_rows.w, of_key[j], sum[r + 3]);
          }
        }
      }
    }
    SAMESTATE_UNROLL
    for (int r = 0; r < kScores; ++r) scores[key * kRow + first_row + r] = sum[r];
  }

  /// A warp's rows: the largest scores, and where the step has values weights in their place, factors of the sums.
  SAMESTATE_DEVICE void weigh(const AttentionSteps& step) {
    SAMESTATE_UNROLL
    for (int r = 0; r < kWarpRows; ++r) {
      const int row = warp_index() * kWarpRows + r;
      const int seen = item.seen(p, row) - step.begin;
      const int count = seen < step.keys() ? seen : step.keys();
      float score[kKeys / 32], most = kUnseen;
      SAMESTATE_UNROLL
      for (int i = 0; i < kKeys / 32; ++i) {
        const int key = 32 * i + lane_index();
        score[i] = key < count ? scores[key * kRow + row] : kUnseen;
        most = score[i] > most ? score[i] : most;
      }
      SAMESTATE_UNROLL
      for (int mask = 16; mask > 0; mask /= 2) {
        const float other = shuffle_xor(most, mask);
        most = other > most ? other : most;
      }
      softmax[r].meet(most, step.opens());
      if (!step.values) continue;
      const float kept = step.first_values() ? softmax[r].template raise<Operand>(p.running, p.scale) : 1.0F;
      float sum = 0.0F;
      SAMESTATE_UNROLL
      for (int i = 0; i < kKeys / 32; ++i) {
        const float weight =
            score[i] == kUnseen ? 0.0F : weight_of<Operand>(score[i] - softmax[r].base, p.scale);
        sum += weight;
        scores[(32 * i + lane_index()) * kRow + row] = widen(narrow<Operand>(weight));
      }
      weights[r] = fused(softmax[r].of_chunk, warp_sum(sum), weights[r] * kept);
      if (lane_index() == 0) {
        factors[row] = kept;
        factors[kRows + row] = softmax[r].of_chunk;
      }
    }
  }

  /// o <- kept o + of_chunk (weights values) of this thread's column.
  SAMESTATE_DEVICE void multiply_values(const AttentionSteps& step) {
    const int column = item.column + thread_index();
    if (column >= p.value_width) return;
    const Operand* const values = item.values(p) + step.begin * p.value_stride + column;
    float sum[kRows] = {};
    const auto add = [&](int key, float value) {
      SAMESTATE_UNROLL
      for (int r = 0; r < kRows; r += 4) {
        const Quad weight = load_quad(scores + key * kRow + r);
        sum[r] = fused(weight.x, value, sum[r]);
        sum[r + 1] = fused(weight.y, value, sum[r + 1]);
        sum[r + 2] = fused(weight.z, value, sum[r + 2]);
        sum[r + 3] = fused(weight.w, value, sum[r + 3]);
      }
    };
    constexpr int kAtATime = 8;  // loads under way
    int key = 0;
    SAMESTATE_NO_UNROLL
    for (; key + kAtATime <= step.keys(); key += kAtATime) {
      float value[kAtATime];
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtATime; ++i) value[i] = widen(values[(key + i) * p.value_stride]);
      SAMESTATE_UNROLL
      for (int i = 0; i < kAtATime; ++i) add(key + i, value[i]);
    }
    SAMESTATE_NO_UNROLL
    for (; key < step.keys(); ++key) add(key, widen(values[key * p.value_stride]));
    SAMESTATE_UNROLL
    for (int r = 0; r < kRows; ++r) o[r] = fused(factors[kRows + r], sum[r], o[r] * factors[r]);
  }

  SAMESTATE_DEVICE void attend() {
    load_queries();
    SAMESTATE_NO_UNROLL
    for (AttentionSteps step(item, p.chunk); step.left(); step.advance()) {
      multiply_scores(step);
      block_barrier();
      weigh(step);
      block_barrier();
      if (step.values) multiply_values(step);
    }
  }

  /// The quotients, or a part's sums.
  SAMESTATE_DEVICE void write() {
    block_barrier();
    SAMESTATE_UNROLL
    for (int r = 0; r < kWarpRows; ++r) {
      const int row = warp_index() * kWarpRows + r;
      if (lane_index() != 0) continue;
      factors[row] = weights[r];
      if (p.parts > 1 && item.column == 0 && item.first_row + row < p.rows()) {
        const std::int64_t at = p.summed_row(item.part, item.b, item.key_head, item.first_row + row);
        p.largest[at] = softmax[r].largest;
        p.weights[at] = weights[r];
      }
    }
    block_barrier();
    const int column = item.column + thread_index();
    if (column >= p.value_width) return;
    SAMESTATE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = item.first_row + r;
      if (row >= p.rows()) continue;
      if (p.parts > 1) {
        p.sums[p.summed_row(item.part, item.b, item.key_head, row) * p.summed_width() + column] = o[r];
      } else {
        const std::int64_t head = p.head_of_row(item.b, item.key_head, row);
        p.o[head * p.value_width + column] = narrow<Operand>(p.gated(o[r] / factors[r], head, column));
      }
    }
  }

  const Parameters& p;
  const AttentionItem item;
  float* k;        ///< [kKeys, kKeyRow]
  float* scores;   ///< [kKeys, kRow], then weights
  float* factors;  ///< [2, kRows] factors of the earlier sums, and of this chunk
  float* q;        ///< [padded_width, kRow]
  RowSoftmax softmax[kWarpRows];
  float weights[kWarpRows] = {};
  float o[kRows] = {};
};

}  // namespace samestate::cuda
