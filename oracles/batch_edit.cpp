#include "oracles/batch_edit.h"

#include <algorithm>

namespace samestate {
namespace {

/// Applies `change(tensor, heads, width)` to every per-token tensor that is present.
template <class Change>
void each_token_tensor(Batch& batch, Change&& change) {
  const BatchShape& s = batch.shape;
  change(batch.q, s.Hk, s.dk);
  change(batch.k, s.Hk, s.dk);
  change(batch.v, s.Hv, s.dv);
  if (!batch.g.empty()) change(batch.g, s.Hv, std::int64_t{1});
  if (!batch.beta.empty()) change(batch.beta, s.Hv, std::int64_t{1});
}

/// `count` blocks of `width` elements; new block i is old block order[i].
std::vector<float> reordered(const std::vector<float>& data, std::int64_t width,
                             const std::vector<std::int64_t>& order) {
  std::vector<float> out;
  out.reserve(data.size());
  for (std::int64_t from : order)
    out.insert(out.end(), data.begin() + from * width, data.begin() + (from + 1) * width);
  return out;
}

/// The same inside each of `outer` groups of `group` blocks.
std::vector<float> reordered_groups(const std::vector<float>& data, std::int64_t outer, std::int64_t group,
                                    std::int64_t width, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t from : order) all.push_back(i * group + from);
  }
  return reordered(data, width, all);
}

/// A batch whose key heads are old ones `keys` and whose value heads are old ones `values`.
Batch with_heads(const Batch& batch, const std::vector<std::int64_t>& keys,
                 const std::vector<std::int64_t>& values) {
  const BatchShape& s = batch.shape;
  Batch out = batch;
  const std::int64_t tokens = s.B * s.T;
  out.q = reordered_groups(batch.q, tokens, s.Hk, s.dk, keys);
  out.k = reordered_groups(batch.k, tokens, s.Hk, s.dk, keys);
  out.v = reordered_groups(batch.v, tokens, s.Hv, s.dv, values);
  if (!batch.g.empty()) out.g = reordered_groups(batch.g, tokens, s.Hv, 1, values);
  if (!batch.beta.empty()) out.beta = reordered_groups(batch.beta, tokens, s.Hv, 1, values);
  if (!batch.initial_state.empty())
    out.initial_state = reordered_groups(batch.initial_state, s.sequences(), s.Hv, s.dk * s.dv, values);
  out.shape.Hk = std::ssize(keys);
  out.shape.Hv = std::ssize(values);
  return out;
}

}  // namespace

Batch tokens_of(const Batch& batch, std::int64_t begin, std::int64_t end) {
  Batch part = batch;
  const BatchShape& s = batch.shape;
  each_token_tensor(part, [&](std::vector<float>& data, std::int64_t H, std::int64_t D) {
    std::vector<float> kept;
    for (std::int64_t b = 0; b < s.B; ++b) {
      kept.insert(kept.end(), data.begin() + (b * s.T + begin) * H * D,
                  data.begin() + (b * s.T + end) * H * D);
    }
    data = std::move(kept);
  });
  part.shape.T = end - begin;
  return part;
}

Batch sequence_alone(const Batch& batch, std::int64_t n) {
  Batch alone = batch;
  const BatchShape& s = batch.shape;
  const std::int64_t row = s.offsets.empty() ? n : 0;
  const std::int64_t begin = row * s.T + s.begin(n);
  const std::int64_t end = row * s.T + s.end(n);
  each_token_tensor(alone, [&](std::vector<float>& data, std::int64_t H, std::int64_t D) {
    data = std::vector<float>(data.begin() + begin * H * D, data.begin() + end * H * D);
  });
  const std::int64_t state = s.Hv * s.dk * s.dv;
  if (!batch.initial_state.empty()) {
    alone.initial_state.assign(batch.initial_state.begin() + n * state,
                               batch.initial_state.begin() + (n + 1) * state);
  }
  alone.shape.B = 1;
  alone.shape.T = end - begin;
  alone.shape.offsets.clear();
  return alone;
}

Batch permuted_rows(const Batch& batch, const std::vector<std::int64_t>& order) {
  Batch out = batch;
  const BatchShape& s = batch.shape;
  each_token_tensor(out, [&](std::vector<float>& data, std::int64_t H, std::int64_t D) {
    data = reordered(data, s.T * H * D, order);
  });
  if (!out.initial_state.empty()) out.initial_state = reordered(out.initial_state, s.Hv * s.dk * s.dv, order);
  return out;
}

Batch permuted_heads(const Batch& batch, const std::vector<std::int64_t>& order,
                     std::vector<std::int64_t>& value_order) {
  const BatchShape& s = batch.shape;
  const std::int64_t ratio = s.Hv / s.Hk;
  value_order.clear();
  for (std::int64_t h = 0; h < s.Hv; ++h) {
    value_order.push_back(s.head_map == HeadMap::interleaved
                              ? order[static_cast<std::size_t>(h / ratio)] * ratio + h % ratio
                              : h / s.Hk * s.Hk + order[static_cast<std::size_t>(h % s.Hk)]);
  }
  return with_heads(batch, order, value_order);
}

Batch heads_of(const Batch& batch, const std::vector<std::int64_t>& heads) {
  const BatchShape& s = batch.shape;
  std::vector<std::int64_t> keys;
  for (const std::int64_t h : heads) keys.push_back(key_head(h, s.Hk, s.Hv, s.head_map));
  return with_heads(batch, keys, heads);
}

Batch packed_of(const Batch& batch) {
  Batch out = batch;  // row-major rows of a dense batch are already contiguous
  const BatchShape& s = batch.shape;
  out.shape.B = 1;
  out.shape.T = s.B * s.T;
  out.shape.offsets = {0, 0};
  const std::int64_t state = s.Hv * s.dk * s.dv;
  // the state of the empty sequence at the start
  std::vector<float> states(static_cast<std::size_t>(state), 0.0F);
  for (std::int64_t b = 0; b < s.B; ++b) {
    out.shape.offsets.push_back((b + 1) * s.T);
    out.shape.offsets.push_back((b + 1) * s.T);
    if (batch.initial_state.empty()) continue;
    states.insert(states.end(), batch.initial_state.begin() + b * state,
                  batch.initial_state.begin() + (b + 1) * state);
    states.insert(states.end(), static_cast<std::size_t>(state), 0.0F);
  }
  if (!batch.initial_state.empty()) out.initial_state = std::move(states);
  return out;
}

void make_no_op(Batch& batch, std::int64_t b, std::int64_t t) {
  const std::int64_t at = b * batch.shape.T + t;
  each_token_tensor(batch, [&](std::vector<float>& data, std::int64_t H, std::int64_t D) {
    std::fill_n(data.begin() + at * H * D, H * D, 0.0F);
  });
}

}  // namespace samestate
