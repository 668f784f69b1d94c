#pragma once

#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

/// One query head and the keys of its group, causal: query t is at position k.count - q.count + t.
struct AttentionHead {
  TensorRows<const float> q;  ///< [T, d]
  TensorRows<const float> k;  ///< [S, d]
  TensorRows<const float> v;  ///< [S, dv]
  float scale = 1.0F;
  Format probability = Format::fp32;  ///< for e^{score - maximum} as operand of the product with the values
  MatrixUnit unit = {};
};

/// The running softmax of some queries: for the keys so far, the largest score, the sum of e^{score -
/// largest}, and the sum of the values with these weights.
struct RunningSoftmax {
  std::vector<float> largest, sum;
  Block values;  ///< [queries, dv]

  void clear(std::int64_t queries, std::int64_t value_width);
  /// Divides by the sums; every query has seen a key.
  void finish();
};

/// Softmax attention over one tile of keys at a time, with only the scores of one tile in memory.
class OnlineAttention {
 public:
  /// Queries that share one pass over the keys.
  static constexpr std::int64_t kQueries = 24;

  /// o [T, dv], with tiles of `tile` keys and one running softmax.
  void run(const AttentionHead& head, std::int64_t tile, Block& o);
  /// The same, and the log of the sum of each query's exponentials: lse [T].
  void run_with_lse(const AttentionHead& head, std::int64_t tile, Block& o, std::vector<float>& lse);
  /// The same with one running softmax per tile, merged afterwards under the largest of their maxima.
  void run_merged(const AttentionHead& head, std::int64_t tile, Block& o);

 private:
  /// Adds the keys [begin, end) to `softmax` for the queries [first, first + n).
  void add(const AttentionHead& head, std::int64_t first, std::int64_t n, std::int64_t begin,
           std::int64_t end, RunningSoftmax& softmax);
  /// `run`, and the LSE unless that is null.
  void run_all(const AttentionHead& head, std::int64_t tile, Block& o, float* lse);

  Block q_, k_transposed_, v_, scores_, product_;
  RunningSoftmax softmax_;
  std::vector<RunningSoftmax> parts_;
};

}  // namespace samestate::cpu
