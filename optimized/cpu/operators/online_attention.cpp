#include "optimized/cpu/operators/online_attention.h"

#include <cmath>

namespace samestate::cpu {

void RunningSoftmax::clear(std::int64_t queries, std::int64_t value_width) {
  largest.assign(static_cast<std::size_t>(queries), -HUGE_VALF);
  sum.assign(static_cast<std::size_t>(queries), 0.0F);
  values.resize(queries, value_width);
  std::fill(values.values.begin(), values.values.end(), 0.0F);
}

void RunningSoftmax::finish() {
  for (std::int64_t i = 0; i < values.rows; ++i) {
    const float inverse = 1.0F / sum[static_cast<std::size_t>(i)];
    for (std::int64_t c = 0; c < values.stride; ++c) values.row(i)[c] *= inverse;
  }
}

void OnlineAttention::add(const AttentionHead& head, std::int64_t first, std::int64_t n, std::int64_t begin,
                          std::int64_t end, RunningSoftmax& softmax) {
  copy(head.q.rows(first, n), q_);
  copy_transposed(head.k.rows(begin, end - begin), k_transposed_);
  copy(head.v.rows(begin, end - begin), v_);
  product(head.unit, q_, k_transposed_, scores_);
  const std::int64_t position = head.k.count - head.q.count + first;  // position of the first query
  for (std::int64_t i = 0; i < n; ++i) {
    float* score = scores_.row(i);
    const std::int64_t seen = std::clamp<std::int64_t>(position + i + 1 - begin, 0, end - begin);
    std::fill(score + seen, score + scores_.stride, 0.0F);
    if (seen == 0) continue;
    float& largest = softmax.largest[static_cast<std::size_t>(i)];
    float& sum = softmax.sum[static_cast<std::size_t>(i)];
    const float before = largest;
    for (std::int64_t s = 0; s < seen; ++s) {
      score[s] *= head.scale;
      largest = std::max(largest, score[s]);
    }
    const float factor = std::isinf(before) ? 0.0F : std::exp(before - largest);
    float added = 0.0F;
    for (std::int64_t s = 0; s < seen; ++s) {
      score[s] = std::exp(score[s] - largest);
      added += score[s];
    }
    sum = sum * factor + added;
    round_values(score, score, seen, head.probability);
    for (std::int64_t c = 0; c < softmax.values.stride; ++c) softmax.values.row(i)[c] *= factor;
  }
  product(head.unit, scores_, v_, product_);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < product_.stride; ++c) softmax.values.row(i)[c] += product_.row(i)[c];
  }
}

void OnlineAttention::run(const AttentionHead& head, std::int64_t tile, Block& o) {
  run_all(head, tile, o, nullptr);
}

void OnlineAttention::run_with_lse(const AttentionHead& head, std::int64_t tile, Block& o,
                                   std::vector<float>& lse) {
  lse.resize(static_cast<std::size_t>(head.q.count));
  run_all(head, tile, o, lse.data());
}

void OnlineAttention::run_all(const AttentionHead& head, std::int64_t tile, Block& o, float* lse) {
  o.resize(head.q.count, head.v.width);
  for (std::int64_t first = 0; first < head.q.count; first += kQueries) {
    const std::int64_t n = std::min(kQueries, head.q.count - first);
    const std::int64_t keys = head.k.count - head.q.count + first + n;  // keys that these queries see
    softmax_.clear(n, head.v.width);
    for (std::int64_t begin = 0; begin < keys; begin += tile)
      add(head, first, n, begin, std::min(keys, begin + tile), softmax_);
    for (std::int64_t i = 0; i < n && lse != nullptr; ++i) {
      const auto row = static_cast<std::size_t>(i);
      lse[first + i] = softmax_.largest[row] + std::log(softmax_.sum[row]);
    }
    softmax_.finish();
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(softmax_.values.row(i), o.columns, o.row(first + i));
  }
}

void OnlineAttention::run_merged(const AttentionHead& head, std::int64_t tile, Block& o) {
  o.resize(head.q.count, head.v.width);
  for (std::int64_t first = 0; first < head.q.count; first += kQueries) {
    const std::int64_t n = std::min(kQueries, head.q.count - first);
    const std::int64_t keys = head.k.count - head.q.count + first + n;
    parts_.resize(static_cast<std::size_t>((keys + tile - 1) / tile));
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const std::int64_t begin = static_cast<std::int64_t>(p) * tile;
      parts_[p].clear(n, head.v.width);
      add(head, first, n, begin, std::min(keys, begin + tile), parts_[p]);
    }
    softmax_.clear(n, head.v.width);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto row = static_cast<std::size_t>(i);
      for (const RunningSoftmax& part : parts_)
        softmax_.largest[row] = std::max(softmax_.largest[row], part.largest[row]);
      for (const RunningSoftmax& part : parts_) {
        // For a tile that this query does not see, the largest score is -infinity and the factor 0.
        const float factor = std::exp(part.largest[row] - softmax_.largest[row]);
        softmax_.sum[row] += factor * part.sum[row];
        for (std::int64_t c = 0; c < softmax_.values.stride; ++c)
          softmax_.values.row(i)[c] += factor * part.values.row(i)[c];
      }
    }
    softmax_.finish();
    for (std::int64_t i = 0; i < n; ++i) std::copy_n(softmax_.values.row(i), o.columns, o.row(first + i));
  }
}

}  // namespace samestate::cpu
