#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reference/error.h"
#include "reference/rounding_point.h"

/// Softmax attention (class C-ATT; DEND-55, EQUATIONS 5.7), per query head:
///   o_t = sum_s p_ts v_s,  p_t = softmax over the keys that t sees of scale q_t . k_s.
/// No form evaluates a masked score: where public code adds -inf, the key is left out.
namespace samestate {

/// What every form reads. Heads stand side by side in a row. Several query heads may share a key head
/// (grouped queries, CFG-9): the heads h with the same h / (heads / key_heads).
template <class Scalar>
struct AttentionInputs {
  Matrix<Scalar> q;  ///< [T, heads * d], the LAST T of the S positions
  Matrix<Scalar> k;  ///< [S, key_heads * d]
  Matrix<Scalar> v;  ///< [S, key_heads * dv]
  Index heads = 1;
  Index key_heads = 1;
  Scalar scale{1};             ///< multiplies the scores: d^-1/2 in every layer here
  bool causal = true;          ///< token t, at position S - T + t, sees no later position
  std::vector<bool> key_mask;  ///< [S], false: nobody sees this key (padding); empty: all are seen

  [[nodiscard]] Index tokens() const { return q.rows(); }
  [[nodiscard]] Index keys() const { return k.rows(); }
  [[nodiscard]] Index width() const { return q.cols() / heads; }
  [[nodiscard]] Index value_width() const { return v.cols() / key_heads; }
  /// Query heads that share a key head.
  [[nodiscard]] Index group() const { return heads / key_heads; }
  [[nodiscard]] bool sees(Index t, Index s) const {
    return (!causal || s <= keys() - tokens() + t) &&
           (key_mask.empty() || key_mask[static_cast<std::size_t>(s)]);
  }
};

/// Throws Error, with the sizes, unless the inputs fit together.
template <class Scalar>
void require_consistent(const AttentionInputs<Scalar>& x) {
  if (x.heads < 1 || x.key_heads < 1 || x.heads % x.key_heads != 0) {
    throw Error("attention: " + std::to_string(x.heads) + " query heads must be a multiple of " +
                std::to_string(x.key_heads) + " key heads");
  }
  if (x.q.cols() % x.heads != 0 || x.k.cols() != x.key_heads * x.width() || x.v.cols() % x.key_heads != 0 ||
      x.v.rows() != x.keys()) {
    throw Error("attention: q has " + std::to_string(x.q.cols()) + " columns in " + std::to_string(x.heads) +
                " heads, k is " + std::to_string(x.k.rows()) + " x " + std::to_string(x.k.cols()) + ", v " +
                std::to_string(x.v.rows()) + " x " + std::to_string(x.v.cols()) + " in " +
                std::to_string(x.key_heads) + " heads: they disagree");
  }
  if (x.causal && x.tokens() > x.keys()) {
    throw Error("attention: " + std::to_string(x.tokens()) + " causal queries and only " +
                std::to_string(x.keys()) + " keys; pass the keys of every query");
  }
  if (!x.key_mask.empty() && static_cast<Index>(x.key_mask.size()) != x.keys()) {
    throw Error("attention: a mask of " + std::to_string(x.key_mask.size()) + " for " +
                std::to_string(x.keys()) + " keys");
  }
}

namespace detail {

/// The columns of head `index`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> head_columns(const Matrix<Scalar>& x, Index index, Index width) {
  return x.middleCols(index * width, width);
}

[[noreturn]] inline void throw_fully_masked(Index token) {
  throw Error("attention: token " + std::to_string(token) +
              " sees no key, its softmax is undefined; leave padding tokens out of the queries");
}

/// Softmax over the keys seen; row i of `scores` belongs to token i mod T. scores: [n T, S].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> visible_softmax(const AttentionInputs<Scalar>& x, Matrix<Scalar> scores) {
  using std::exp;
  for (Index i = 0; i < scores.rows(); ++i) {
    const Index t = i % x.tokens();
    Index largest = -1;
    for (Index s = 0; s < x.keys(); ++s) {
      if (x.sees(t, s) && (largest < 0 || scores(i, largest) < scores(i, s))) largest = s;
    }
    if (largest < 0) throw_fully_masked(t);
    const Scalar maximum = scores(i, largest);
    Scalar sum(0);
    for (Index s = 0; s < x.keys(); ++s) {
      scores(i, s) = x.sees(t, s) ? Scalar(exp(Scalar(scores(i, s) - maximum))) : Scalar(0);
      sum += scores(i, s);
    }
    for (Index s = 0; s < x.keys(); ++s) scores(i, s) /= sum;
  }
  return stored(std::move(scores));
}

}  // namespace detail

/// p of one query head, [T, S]. Throws Error for a token that sees no key, sizes that disagree, or no such
/// head.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> attention_probabilities(const AttentionInputs<Scalar>& x, Index head) {
  require_consistent(x);
  if (head < 0 || head >= x.heads) {
    throw Error("attention: no head " + std::to_string(head) + " among " + std::to_string(x.heads));
  }
  const Matrix<Scalar> Q = detail::head_columns(x.q, head, x.width());
  const Matrix<Scalar> K = detail::head_columns(x.k, head / x.group(), x.width());
  const Matrix<Scalar> scores = x.scale * (Q * K.transpose());
  return detail::visible_softmax(x, scores);
}

/// The equation, head by head; key heads are shared by index, none is copied (EQ-15). -> [T, heads * dv].
/// Throws as attention_probabilities.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  const Index dv = x.value_width();
  Matrix<Scalar> o(x.tokens(), x.heads * dv);
  for (Index h = 0; h < x.heads; ++h) {
    const Matrix<Scalar> V = detail::head_columns(x.v, h / x.group(), dv);
    o.middleCols(h * dv, dv) = attention_probabilities(x, h) * V;
  }
  return o;
}

/// The same with the queries of a group under one another, one product a key head: what a kernel for
/// grouped queries does (EQ-15). Throws as attention_probabilities.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_grouped(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  const Index T = x.tokens();
  const Index d = x.width();
  const Index dv = x.value_width();
  Matrix<Scalar> o(T, x.heads * dv);
  for (Index kh = 0; kh < x.key_heads; ++kh) {
    Matrix<Scalar> Q(x.group() * T, d);
    for (Index i = 0; i < x.group(); ++i) {
      Q.middleRows(i * T, T) = detail::head_columns(x.q, kh * x.group() + i, d);
    }
    const Matrix<Scalar> scores = x.scale * (Q * detail::head_columns(x.k, kh, d).transpose());
    const Matrix<Scalar> O = detail::visible_softmax(x, scores) * detail::head_columns(x.v, kh, dv);
    for (Index i = 0; i < x.group(); ++i) {
      o.middleCols((kh * x.group() + i) * dv, dv) = O.middleRows(i * T, T);
    }
  }
  return o;
}

/// Key and value heads copied to one a query head: head h gets h / group (repeat_interleave).
template <class Scalar>
[[nodiscard]] AttentionInputs<Scalar> with_repeated_heads(const AttentionInputs<Scalar>& x) {
  require_consistent(x);
  AttentionInputs<Scalar> out = x;
  out.key_heads = x.heads;
  out.k.resize(x.keys(), x.heads * x.width());
  out.v.resize(x.keys(), x.heads * x.value_width());
  for (Index h = 0; h < x.heads; ++h) {
    out.k.middleCols(h * x.width(), x.width()) = detail::head_columns(x.k, h / x.group(), x.width());
    out.v.middleCols(h * x.value_width(), x.value_width()) =
        detail::head_columns(x.v, h / x.group(), x.value_width());
  }
  return out;
}

/// The softmax-weighted mean of values that come a few at a time. It begins with no maximum at all: m = -inf
/// would make the first rescaling exp(-inf - -inf), a NaN (EQUATIONS 8.3).
template <class Scalar>
struct OnlineSoftmax {
  bool empty = true;      ///< no key so far
  Scalar maximum{0};      ///< m, the largest score so far
  Scalar sum{0};          ///< l = sum e^{score - m}
  Vector<Scalar> values;  ///< [dv] sum e^{score - m} v

  explicit OnlineSoftmax(Index value_width) : values(Vector<Scalar>::Zero(value_width)) {}

  /// m <- max(m, score), and what was summed under the old m rescaled.
  void raise(const Scalar& score) {
    using std::exp;
    if (empty) {
      empty = false;
      maximum = score;
    } else if (maximum < score) {
      const Scalar factor = exp(Scalar(maximum - score));
      sum *= factor;
      values *= factor;
      maximum = score;
    }
  }
  /// One key; m must have been raised to its score. value: [1, dv].
  template <class Row>
  void add(const Scalar& score, const Row& value) {
    using std::exp;
    const Scalar weight = RoundingPoint<Scalar>::stored(exp(Scalar(score - maximum)));
    sum += weight;
    values += weight * value.transpose();
  }
  /// The keys of both.
  void merge(const OnlineSoftmax& other) {
    using std::exp;
    if (other.empty) return;
    raise(other.maximum);
    const Scalar factor = exp(Scalar(other.maximum - maximum));
    sum += factor * other.sum;
    values += factor * other.values;
  }
};

namespace detail {

/// Adds the keys [begin, end) of query head h to the rows' running softmax.
template <class Scalar>
void add_tile(const AttentionInputs<Scalar>& x, Index h, Index begin, Index end,
              std::vector<OnlineSoftmax<Scalar>>& rows) {
  const Matrix<Scalar> K = head_columns(x.k, h / x.group(), x.width()).middleRows(begin, end - begin);
  const Matrix<Scalar> V = head_columns(x.v, h / x.group(), x.value_width()).middleRows(begin, end - begin);
  const Matrix<Scalar> scores = x.scale * (head_columns(x.q, h, x.width()) * K.transpose());
  for (Index t = 0; t < x.tokens(); ++t) {
    OnlineSoftmax<Scalar>& row = rows[static_cast<std::size_t>(t)];
    Index largest = -1;
    for (Index s = begin; s < end; ++s) {
      if (x.sees(t, s) && (largest < 0 || scores(t, largest - begin) < scores(t, s - begin))) largest = s;
    }
    if (largest < 0) continue;
    row.raise(scores(t, largest - begin));
    for (Index s = begin; s < end; ++s) {
      if (x.sees(t, s)) row.add(scores(t, s - begin), V.row(s - begin));
    }
  }
}

/// Tiles of `tile` keys, into one running softmax a row, or into one a tile that are merged afterwards.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> tiled_attention(const AttentionInputs<Scalar>& x, Index tile, bool merged) {
  require_consistent(x);
  if (tile < 1) throw Error("attention: tile=" + std::to_string(tile) + ": a tile holds at least 1 key");
  const Index dv = x.value_width();
  const std::vector<OnlineSoftmax<Scalar>> none(static_cast<std::size_t>(x.tokens()),
                                                OnlineSoftmax<Scalar>(dv));
  Matrix<Scalar> o(x.tokens(), x.heads * dv);
  for (Index h = 0; h < x.heads; ++h) {
    std::vector<OnlineSoftmax<Scalar>> rows = none;
    for (Index begin = 0; begin < x.keys(); begin += tile) {
      const Index end = tile < x.keys() - begin ? begin + tile : x.keys();
      if (!merged) {
        add_tile(x, h, begin, end, rows);
        continue;
      }
      std::vector<OnlineSoftmax<Scalar>> part = none;
      add_tile(x, h, begin, end, part);
      for (std::size_t t = 0; t < rows.size(); ++t) rows[t].merge(part[t]);
    }
    for (Index t = 0; t < x.tokens(); ++t) {
      const OnlineSoftmax<Scalar>& row = rows[static_cast<std::size_t>(t)];
      if (row.empty) throw_fully_masked(t);
      o.row(t).segment(h * dv, dv) = row.values.transpose() / row.sum;
    }
  }
  return o;
}

}  // namespace detail

/// Online softmax, `tile` keys at a time, the last tile ragged (EQ-14). Throws Error for tile < 1, and as
/// attention_probabilities.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_online(const AttentionInputs<Scalar>& x, Index tile) {
  return detail::tiled_attention(x, tile, false);
}

/// Every tile of keys by itself, then merged: the split over keys that decode kernels use (EQ-14). Throws as
/// softmax_attention_online.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> softmax_attention_merged(const AttentionInputs<Scalar>& x, Index tile) {
  return detail::tiled_attention(x, tile, true);
}

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
