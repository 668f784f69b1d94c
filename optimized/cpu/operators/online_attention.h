#pragma once

#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

/// One query head against the keys of its group, causal: query t stands at position k.count - q.count + t.
struct AttentionHead {
  TensorRows<const float> q;  ///< [T, d]
  TensorRows<const float> k;  ///< [S, d]
  TensorRows<const float> v;  ///< [S, dv]
  float scale = 1.0F;
  Format probability = Format::fp32;  ///< of e^{score - maximum} as operand of the values
  MatrixUnit unit = {};
};

/// The running softmax of some queries: of the keys so far their largest score, the sum of e^{score -
/// largest} and the values weighted so.
struct RunningSoftmax {
  std::vector<float> largest, sum;
  Block values;  ///< [queries, dv]

  void clear(std::int64_t queries, std::int64_t value_width);
  /// Divides by the sums; every query has seen a key.
  void finish();
};

/// Softmax attention a tile of keys at a time, the scores of a tile alone in memory.
class OnlineAttention {
 public:
  /// Queries that share a pass over the keys.
  static constexpr std::int64_t kQueries = 24;

  /// o [T, dv], tiles of `tile` keys, one running softmax.
  void run(const AttentionHead& head, std::int64_t tile, Block& o);
  /// The same, a running softmax a tile, merged afterwards under the largest of their maxima.
  void run_merged(const AttentionHead& head, std::int64_t tile, Block& o);

 private:
  /// Queries [first, first + n) and keys [begin, end) into `softmax`.
  void add(const AttentionHead& head, std::int64_t first, std::int64_t n, std::int64_t begin,
           std::int64_t end, RunningSoftmax& softmax);

  Block q_, k_transposed_, v_, scores_, product_;
  RunningSoftmax softmax_;
  std::vector<RunningSoftmax> parts_;
};

}  // namespace samestate::cpu
