#pragma once

#include <string>
#include <utility>

#include "reference/linear.h"
#include "reference/norms.h"
#include "reference/rotary_embedding.h"
#include "reference/softmax_attention.h"

/// Multi-head latent attention (class C-MLA, EQUATIONS 5.9): keys and values of all heads are linear
/// functions of one latent vector per token; only that vector and one rotary key are cached. D is the model
/// width, H the number of heads, n and r the non-rotary and rotary columns of a key head, dv those of a value
/// head, and c those of the latent (DeepSeek-V3: 128 heads, n = 128, r = 64, dv = 128, c = 512).
namespace samestate {

namespace points {
inline constexpr PointRow kLatentAttentionRows[] = {
    {"normed", "The latent or the compressed queries, after their norm."},
    {"rotated", "The rotary columns of q or k, after their rotation."},
    {"kv_down", "The latent and the rotary key, after their projection.", PointUse::both},
    {"kv_up", "Keys and values of all heads, after they are restored from the latent.", PointUse::both},
    {"q_down", "The compressed queries, after their projection and before their norm.", PointUse::both},
    {"attended", "The heads, after p V of restored keys and values."},
    {"q_absorbed", "The queries of the latent, after their product with W_UK.", PointUse::both},
    {"q_merged_weight", "The weight W_UK^T W_UQ of a head, after the product of both.", PointUse::both},
    {"q_merged", "The queries of the latent, after their product with that weight.", PointUse::both},
    {"mixed", "The latents weighed for a head, after p c."},
    {"values", "The heads, after the product of their latents with W_UV.", PointUse::both},
    {"o_merged_product", "The weight W_O W_UV of a head as a product.", PointUse::product},
    {"o_merged", "The output, after its product with the weight W_O W_UV.", PointUse::both, "output"},
    {"o_merged_weight", "The weight W_O W_UV of all heads, after the product of both.", PointUse::stored,
     "output"},
    {"q_up", "The queries, after their projection.", PointUse::both},
    {"o_proj", "The output, after its projection.", PointUse::both},
};
inline constexpr PointTable latent_attention{"latent_attention", PointTier::equation, kLatentAttentionRows};
}  // namespace points

/// Widths that follow from the weights.
struct LatentWidths {
  Index nope = 0;    ///< n
  Index rope = 0;    ///< r
  Index value = 0;   ///< dv
  Index latent = 0;  ///< c

  [[nodiscard]] Index key() const { return nope + rope; }
};

/// Weights as in public checkpoints. With an empty `kv_norm` and r = 0 it is the document's literal form
/// (MLA-3..6; E-14 lists what that form lacks).
template <class Scalar>
struct LatentAttentionWeights {
  Index heads = 1;
  Matrix<Scalar> q_down;   ///< [q, D], or empty: queries are projected directly from x
  Vector<Scalar> q_norm;   ///< [q], or empty: no norm
  Matrix<Scalar> q_up;     ///< [H (n + r), q or D], for each head its n rows, then its r rows
  Matrix<Scalar> kv_down;  ///< [c + r, D], the latent's rows, then the rotary key's
  Vector<Scalar> kv_norm;  ///< [c], or empty: no norm
  Matrix<Scalar> kv_up;    ///< [H (n + dv), c], for each head W_UK, then W_UV
  Matrix<Scalar> output;   ///< [D, H dv]
  Scalar epsilon{1e-6};    ///< for both norms
  Scalar score_factor{1};  ///< multiplies the scale (n + r)^-1/2; YaRN uses (0.1 ln 40 + 1)^2
  RotaryPairs pairs = RotaryPairs::interleaved;

  /// Throws Error unless the weights fit together.
  [[nodiscard]] LatentWidths widths() const {
    const Index c = kv_up.cols();
    const bool whole = heads >= 1 && output.cols() % heads == 0 && kv_up.rows() % heads == 0;
    const LatentWidths w = whole ? LatentWidths{kv_up.rows() / heads - output.cols() / heads,
                                                kv_down.rows() - c, output.cols() / heads, c}
                                 : LatentWidths{};
    if (!whole || w.nope < 0 || w.rope < 0 || w.key() < 1 || q_up.rows() != heads * w.key() ||
        (kv_norm.size() != 0 && kv_norm.size() != c)) {
      throw Error("latent attention: " + std::to_string(heads) + " heads, q_up of " +
                  std::to_string(q_up.rows()) + " rows, kv_down of " + std::to_string(kv_down.rows()) +
                  " rows, kv_norm of " + std::to_string(kv_norm.size()) + ", kv_up " +
                  std::to_string(kv_up.rows()) + " x " + std::to_string(c) + ", output of " +
                  std::to_string(output.cols()) +
                  " columns disagree; needed are H (n + r), c + r, c, H (n + dv) x c and H dv");
    }
    return w;
  }

  /// W_UK [n, c], W_UV [dv, c] and W_O [D, dv] of head h.
  [[nodiscard]] Matrix<Scalar> key_up(Index h) const {
    const LatentWidths w = widths();
    return kv_up.middleRows(h * (w.nope + w.value), w.nope);
  }
  [[nodiscard]] Matrix<Scalar> value_up(Index h) const {
    const LatentWidths w = widths();
    return kv_up.middleRows(h * (w.nope + w.value) + w.nope, w.value);
  }
  [[nodiscard]] Matrix<Scalar> head_output(Index h) const {
    const LatentWidths w = widths();
    return output.middleCols(h * w.value, w.value);
  }
};

/// All that later tokens need from earlier ones: c + r numbers per token, 576 in DeepSeek-V3 (MLA-4 has only
/// the latent).
template <class Scalar>
struct LatentCache {
  Matrix<Scalar> latent;      ///< [S, c] AFTER its norm; 0 x 0 before the first token
  Matrix<Scalar> rotary_key;  ///< [S, r] AFTER its rotation, one for all heads

  [[nodiscard]] Index tokens() const { return latent.rows(); }
  [[nodiscard]] Index numbers_per_token() const { return latent.cols() + rotary_key.cols(); }
};

/// How the same attention is evaluated (EQ-16).
enum class LatentForm {
  naive,     ///< K and V of all heads are restored from the latent (MLA-5..7)
  absorbed,  ///< W_UK moved to the query, W_UV applied after the sum: one key head [c + r] whose values are
             ///< the latent
  fully_absorbed  ///< W_UK merged into the query projection, W_UV into the output projection
};

template <class Scalar>
struct LatentAttention {
  Matrix<Scalar> y;           ///< [T, D]
  Matrix<Scalar> heads;       ///< [T, H dv] before the output projection; 0 x 0 if the form never computes it
  LatentCache<Scalar> cache;  ///< for all tokens so far, including x
};

namespace detail {

template <class Scalar>
[[nodiscard]] Matrix<Scalar> normed(Matrix<Scalar> x, const Vector<Scalar>& weight, const Scalar& epsilon) {
  return weight.size() == 0 ? x : stored(rms_norm(x, weight, epsilon), points::latent_attention["normed"]);
}

/// [past; x]. Throws Error if the widths disagree.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> appended(const Matrix<Scalar>& past, Index tokens, const Matrix<Scalar>& x) {
  if (tokens == 0) return x;
  if (past.rows() != tokens || past.cols() != x.cols()) {
    throw Error("latent cache: " + std::to_string(past.rows()) + " x " + std::to_string(past.cols()) +
                " where " + std::to_string(tokens) + " x " + std::to_string(x.cols()) + " is needed");
  }
  Matrix<Scalar> all(tokens + x.rows(), x.cols());
  all << past, x;
  return all;
}

/// Columns [begin, begin + width) of every head of `stride` columns, side by side.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> part_of_heads(const Matrix<Scalar>& x, Index heads, Index stride, Index begin,
                                           Index width) {
  Matrix<Scalar> part(x.rows(), heads * width);
  for (Index h = 0; h < heads; ++h) {
    part.middleCols(h * width, width) = x.middleCols(h * stride + begin, width);
  }
  return part;
}

/// Heads [a_h | b_h] from a: [T, H wa] and b: [T, H wb].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> joined_heads(const Matrix<Scalar>& a, const Matrix<Scalar>& b, Index heads) {
  const Index wa = a.cols() / heads;
  const Index wb = b.cols() / heads;
  Matrix<Scalar> both(a.rows(), a.cols() + b.cols());
  for (Index h = 0; h < heads; ++h) {
    both.middleCols(h * (wa + wb), wa) = a.middleCols(h * wa, wa);
    both.middleCols(h * (wa + wb) + wa, wb) = b.middleCols(h * wb, wb);
  }
  return both;
}

/// The rotation, or x itself if there are no rotary columns (the tables may then be empty).
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rotated(const Matrix<Scalar>& x, const LatentAttentionWeights<Scalar>& weights,
                                     const RotaryTables<Scalar>& tables, Index heads) {
  const Index r = weights.widths().rope;
  if (tables.width() != r) {
    throw Error("latent attention: rotary tables of width " + std::to_string(tables.width()) +
                ", the rotary key has " + std::to_string(r));
  }
  return r == 0 ? x : stored(rotate(x, tables, weights.pairs, heads), points::latent_attention["rotated"]);
}

}  // namespace detail

/// The entries that the tokens add to the cache: c = RMSNorm(x W_dkv), k^R = RoPE(x W_kr). x: [T, D]; the
/// tables are those of its positions. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] LatentCache<Scalar> latent_of(const Matrix<Scalar>& x,
                                            const LatentAttentionWeights<Scalar>& weights,
                                            const RotaryTables<Scalar>& tables) {
  const LatentWidths w = weights.widths();
  const Matrix<Scalar> down = linear(x, weights.kv_down, points::latent_attention["kv_down"]);
  const Matrix<Scalar> latent = down.leftCols(w.latent);
  const Matrix<Scalar> rotary = down.rightCols(w.rope);
  return {detail::normed(latent, weights.kv_norm, weights.epsilon),
          detail::rotated(rotary, weights, tables, 1)};
}

/// The keys and values, restored from the cache: heads [k^N | k^R] with k^N = W_UK c, and v = W_UV c, of
/// shapes [S, H (n + r)] and [S, H dv]. A cache of full keys and values would hold them.
template <class Scalar>
[[nodiscard]] KeyValueCache<Scalar> restored_keys_values(const LatentCache<Scalar>& cache,
                                                         const LatentAttentionWeights<Scalar>& weights) {
  const LatentWidths w = weights.widths();
  const Matrix<Scalar> up = linear(cache.latent, weights.kv_up, points::latent_attention["kv_up"]);
  const Index stride = w.nope + w.value;
  const Matrix<Scalar> k_nope = detail::part_of_heads(up, weights.heads, stride, 0, w.nope);
  const Matrix<Scalar> k_rope = cache.rotary_key.replicate(1, weights.heads);
  return {detail::joined_heads(k_nope, k_rope, weights.heads),
          detail::part_of_heads(up, weights.heads, stride, w.nope, w.value)};
}

/// The input of the query projection: x itself, or x compressed and normalised. [T, q or D]
template <class Scalar>
[[nodiscard]] Matrix<Scalar> query_input(const Matrix<Scalar>& x,
                                         const LatentAttentionWeights<Scalar>& weights) {
  if (weights.q_down.size() == 0) return x;
  return detail::normed(linear(x, weights.q_down, points::latent_attention["q_down"]), weights.q_norm,
                        weights.epsilon);
}

namespace detail {

/// The number of heads and their scale (n + r)^-1/2; the caller fills in q, k and v.
template <class Scalar>
[[nodiscard]] AttentionInputs<Scalar> scaled_heads(const LatentAttentionWeights<Scalar>& weights) {
  using std::sqrt;
  AttentionInputs<Scalar> x;
  x.heads = weights.heads;
  x.scale = weights.score_factor / sqrt(Scalar(static_cast<double>(weights.widths().key())));
  return x;
}

}  // namespace detail

/// sum_s p_ts v_s of all heads, with keys and values restored: q_nope [T, H n], q_rope [T, H r] after
/// rotation -> [T, H dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> attend_restored(const Matrix<Scalar>& q_nope, const Matrix<Scalar>& q_rope,
                                             const LatentAttentionWeights<Scalar>& weights,
                                             const LatentCache<Scalar>& cache) {
  AttentionInputs<Scalar> x = detail::scaled_heads(weights);
  KeyValueCache<Scalar> full = restored_keys_values(cache, weights);
  x.q = detail::joined_heads(q_nope, q_rope, weights.heads);
  x.k = std::move(full.k);
  x.v = std::move(full.v);
  x.key_heads = weights.heads;
  return stored(softmax_attention(x), points::latent_attention["attended"]);
}

/// W_UK^T q^N of all heads, which is multiplied with the latent itself: q^N . W_UK c = (W_UK^T q^N) . c. [T,
/// H n] -> [T, H c]
template <class Scalar>
[[nodiscard]] Matrix<Scalar> absorbed_queries(const Matrix<Scalar>& q_nope,
                                              const LatentAttentionWeights<Scalar>& weights) {
  const LatentWidths w = weights.widths();
  Matrix<Scalar> q(q_nope.rows(), weights.heads * w.latent);
  for (Index h = 0; h < weights.heads; ++h) {
    q.middleCols(h * w.latent, w.latent) =
        linear<Scalar>(q_nope.middleCols(h * w.nope, w.nope), weights.key_up(h).transpose(),
                       points::latent_attention["q_absorbed"]);
  }
  return q;
}

/// The same from the input of the query projection, by W_UK^T W_UQ. [T, q or D] -> [T, H c]
template <class Scalar>
[[nodiscard]] Matrix<Scalar> merged_queries(const Matrix<Scalar>& q_input,
                                            const LatentAttentionWeights<Scalar>& weights) {
  const LatentWidths w = weights.widths();
  Matrix<Scalar> q(q_input.rows(), weights.heads * w.latent);
  for (Index h = 0; h < weights.heads; ++h) {
    const Matrix<Scalar> up = weights.key_up(h).transpose();
    const Matrix<Scalar> merged =
        stored<Scalar>(matrix_product(up, weights.q_up.middleRows(h * w.key(), w.nope),
                                      points::latent_attention["q_merged_weight"]),
                       points::latent_attention["q_merged_weight"]);
    q.middleCols(h * w.latent, w.latent) = linear(q_input, merged, points::latent_attention["q_merged"]);
  }
  return q;
}

/// sum_s p_ts c_s of all heads, which share the key [c | k^R] and the value c: q_latent [T, H c], q_rope [T,
/// H r] after rotation -> [T, H c].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> attend_latent(const Matrix<Scalar>& q_latent, const Matrix<Scalar>& q_rope,
                                           const LatentAttentionWeights<Scalar>& weights,
                                           const LatentCache<Scalar>& cache) {
  AttentionInputs<Scalar> x = detail::scaled_heads(weights);
  x.q = detail::joined_heads(q_latent, q_rope, weights.heads);
  x.k = detail::joined_heads(cache.latent, cache.rotary_key, 1);
  x.v = cache.latent;
  x.key_heads = 1;
  return stored(softmax_attention(x), points::latent_attention["mixed"]);
}

/// W_UV applied after the sum. mixed: [T, H c] -> [T, H dv]
template <class Scalar>
[[nodiscard]] Matrix<Scalar> mixed_values(const Matrix<Scalar>& mixed,
                                          const LatentAttentionWeights<Scalar>& weights) {
  const LatentWidths w = weights.widths();
  Matrix<Scalar> heads(mixed.rows(), weights.heads * w.value);
  for (Index h = 0; h < weights.heads; ++h) {
    heads.middleCols(h * w.value, w.value) = linear<Scalar>(
        mixed.middleCols(h * w.latent, w.latent), weights.value_up(h), points::latent_attention["values"]);
  }
  return heads;
}

/// The output by W_O W_UV. mixed: [T, H c] -> [T, D]
template <class Scalar>
[[nodiscard]] Matrix<Scalar> merged_output(const Matrix<Scalar>& mixed,
                                           const LatentAttentionWeights<Scalar>& weights) {
  const LatentWidths w = weights.widths();
  Matrix<Scalar> merged(weights.output.rows(), weights.heads * w.latent);  // W_O,h W_UV,h
  for (Index h = 0; h < weights.heads; ++h) {
    merged.middleCols(h * w.latent, w.latent) = matrix_product(weights.head_output(h), weights.value_up(h),
                                                               points::latent_attention["o_merged_product"]);
  }
  return linear(mixed, stored(std::move(merged), points::latent_attention["o_merged_weight"]),
                points::latent_attention["o_merged"]);
}

/// Attention of the tokens x [T, D], which are the last T tokens in `cache`; `tables` are those of x's
/// positions. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] LatentAttention<Scalar> latent_attention_cached(const Matrix<Scalar>& x,
                                                              const LatentAttentionWeights<Scalar>& weights,
                                                              const RotaryTables<Scalar>& tables,
                                                              LatentForm form, LatentCache<Scalar> cache) {
  const LatentWidths w = weights.widths();
  const Index H = weights.heads;
  LatentAttention<Scalar> out;
  out.cache = std::move(cache);

  const Matrix<Scalar> q_input = query_input(x, weights);
  const Matrix<Scalar> q = linear(q_input, weights.q_up, points::latent_attention["q_up"]);
  const Matrix<Scalar> q_nope = detail::part_of_heads(q, H, w.key(), 0, w.nope);
  const Matrix<Scalar> q_rope =
      detail::rotated(detail::part_of_heads(q, H, w.key(), w.nope, w.rope), weights, tables, H);

  if (form == LatentForm::fully_absorbed) {
    out.y =
        merged_output(attend_latent(merged_queries(q_input, weights), q_rope, weights, out.cache), weights);
    return out;
  }
  out.heads = form == LatentForm::naive
                  ? attend_restored(q_nope, q_rope, weights, out.cache)
                  : mixed_values(attend_latent(absorbed_queries(q_nope, weights), q_rope, weights, out.cache),
                                 weights);
  out.y = linear(out.heads, weights.output, points::latent_attention["o_proj"]);
  return out;
}

/// The layer on the tokens x [T, D], which follow those of `past`; `tables` are those of x's positions. With
/// an empty past this is a prefill, with T = 1 a decode step. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] LatentAttention<Scalar> latent_attention(const Matrix<Scalar>& x,
                                                       const LatentAttentionWeights<Scalar>& weights,
                                                       const RotaryTables<Scalar>& tables,
                                                       LatentForm form = LatentForm::naive,
                                                       const LatentCache<Scalar>& past = {}) {
  const LatentCache<Scalar> fresh = latent_of(x, weights, tables);
  return latent_attention_cached(x, weights, tables, form,
                                 {detail::appended(past.latent, past.tokens(), fresh.latent),
                                  detail::appended(past.rotary_key, past.tokens(), fresh.rotary_key)});
}

}  // namespace samestate
