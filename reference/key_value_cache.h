#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/softmax_attention.h"

/// Softmax attention with the queries a segment at a time, against a cache of keys and values (EQ-14).
namespace samestate {

/// Keys and values of all tokens so far.
template <class Scalar>
struct KeyValueCache {
  Matrix<Scalar> k;  ///< [S, key_heads * d]; 0 x 0 before the first token
  Matrix<Scalar> v;  ///< [S, key_heads * dv]

  [[nodiscard]] Index tokens() const { return k.rows(); }

  /// With the rows of later tokens appended. Throws Error where the widths or the numbers of rows disagree.
  [[nodiscard]] KeyValueCache appended(const Matrix<Scalar>& keys, const Matrix<Scalar>& values) const {
    const bool first = tokens() == 0;
    if (keys.rows() != values.rows() || k.rows() != v.rows() ||
        (!first && (keys.cols() != k.cols() || values.cols() != v.cols()))) {
      throw Error("key-value cache of " + std::to_string(k.rows()) + " x " + std::to_string(k.cols()) +
                  " keys and " + std::to_string(v.rows()) + " x " + std::to_string(v.cols()) +
                  " values: cannot append " + std::to_string(keys.rows()) + " x " +
                  std::to_string(keys.cols()) + " and " + std::to_string(values.rows()) + " x " +
                  std::to_string(values.cols()));
    }
    if (first) return {keys, values};
    KeyValueCache out{Matrix<Scalar>(k.rows() + keys.rows(), k.cols()),
                      Matrix<Scalar>(v.rows() + values.rows(), v.cols())};
    out.k << k, keys;
    out.v << v, values;
    return out;
  }
};

/// Chunked prefill, and decode where every token is a segment (EQ-14): the queries in segments between
/// `cuts`, each against the cache of all keys so far. Cuts are query indices in [0, T], not decreasing.
/// `run` evaluates one segment in any form. Throws Error for non-causal inputs and cuts out of order.
template <class Scalar, class Run>
[[nodiscard]] Matrix<Scalar> softmax_attention_resumed(const AttentionInputs<Scalar>& x,
                                                       const std::vector<Index>& cuts, Run&& run) {
  require_consistent(x);
  if (!x.causal) throw Error("attention: without a causal mask the first tokens see the last; no split");
  const Index past = x.keys() - x.tokens();
  KeyValueCache<Scalar> cache{x.k.topRows(past), x.v.topRows(past)};
  Matrix<Scalar> o(x.tokens(), x.heads * x.value_width());
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : x.tokens();
    if (end < begin || end > x.tokens()) {
      throw Error("cut " + std::to_string(end) + ": cuts must not decrease and lie in 0.." +
                  std::to_string(x.tokens()));
    }
    const Index n = end - begin;
    cache = cache.appended(x.k.middleRows(past + begin, n), x.v.middleRows(past + begin, n));
    AttentionInputs<Scalar> part = x;
    part.q = x.q.middleRows(begin, n);
    part.k = cache.k;
    part.v = cache.v;
    if (!x.key_mask.empty()) part.key_mask.resize(static_cast<std::size_t>(past + end));
    o.middleRows(begin, n) = run(part);
    begin = end;
  }
  return o;
}

/// One token a call, in any form (EQ-14).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_decode(const AttentionInputs<Scalar>& x) {
  std::vector<Index> cuts;
  for (Index t = 1; t < x.tokens(); ++t) cuts.push_back(t);
  return softmax_attention_resumed(
      x, cuts, [](const AttentionInputs<Scalar>& part) { return softmax_attention(part); });
}

}  // namespace samestate
