#pragma once

#include <utility>

#include "reference/backward/linear.h"
#include "reference/backward/norms.h"
#include "reference/backward/rotary_embedding.h"
#include "reference/backward/softmax_attention.h"
#include "reference/latent_attention.h"

/// The backward pass of multi-head latent attention in the naive form, with keys and values restored from the
/// latent. All forms are one function (EQ-16), so its gradients are those of each.
namespace samestate {

namespace points {
inline constexpr PointRow kLatentAttentionBackwardRows[] = {
    {"d_queries", "dq of attention, all columns of a head."},
    {"d_keys", "dk of attention, all columns of a head."},
    {"d_values", "dv of attention."},
    {"d_turned", "The gradient of rotary columns, after it is turned back."},
    {"d_normed", "The gradient behind a norm's backward pass."},
};
inline constexpr PointTable latent_attention_backward{"latent_attention_backward", PointTier::equation,
                                                      kLatentAttentionBackwardRows};
}  // namespace points

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct LatentAttentionGradients {
  Matrix<Scalar> x;                        ///< [T, D]
  LatentAttentionWeights<Scalar> weights;  ///< numbers without a gradient stay as they are
  LatentCache<Scalar> past;                ///< of the cache that came in; 0 x 0 if it is empty
};

namespace detail {

/// The reverse of part_of_heads: the parts go to columns [begin, begin + width) of every head of `stride`
/// columns of `x`.
template <class Scalar>
void put_part_of_heads(const Matrix<Scalar>& part, Index heads, Index stride, Index begin,
                       Matrix<Scalar>& x) {
  const Index width = part.cols() / heads;
  for (Index h = 0; h < heads; ++h)
    x.middleCols(h * stride + begin, width) = part.middleCols(h * width, width);
}

/// The reverse of `normed`: x itself where there is no norm.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> normed_backward(const Matrix<Scalar>& x, const Vector<Scalar>& weight,
                                                    const Scalar& epsilon, const Matrix<Scalar>& dy) {
  if (weight.size() == 0) return {dy, weight};
  NormGradients<Scalar> out = rms_norm_backward(x, weight, epsilon, dy);
  out.x = stored(std::move(out.x), points::latent_attention_backward["d_normed"]);
  return out;
}

/// The reverse of `rotated`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rotated_backward(const Matrix<Scalar>& dy, RotaryPairs pairs,
                                              const RotaryTables<Scalar>& tables, Index heads) {
  return tables.width() == 0 ? dy
                             : stored(rotate_backward(dy, tables, pairs, heads),
                                      points::latent_attention_backward["d_turned"]);
}

}  // namespace detail

/// The gradients of attention of the tokens x [T, D], which are the last T tokens in `cache`; `tables` are those of x's
/// positions. dy: [T, D]. `past` of the result is the gradient of the whole cache, and `x` that through the queries alone;
/// the weights that make the cache keep theirs. `attention` is attention itself, as WholeAttention is. Throws Error if sizes
/// disagree.
template <class Scalar, class Attention = WholeAttention>
[[nodiscard]] LatentAttentionGradients<Scalar> latent_attention_cached_backward(
    const Matrix<Scalar>& x, const LatentAttentionWeights<Scalar>& weights,
    const RotaryTables<Scalar>& tables, const Matrix<Scalar>& dy, const LatentCache<Scalar>& cache,
    const Attention& attention = {}) {
  constexpr const PointTable& at = points::latent_attention_backward;
  const LatentWidths w = weights.widths();
  const Index H = weights.heads;
  LatentAttentionGradients<Scalar> g{x, weights, {}};

  // The forward pass.
  const Matrix<Scalar> q_input = query_input(x, weights);
  const Matrix<Scalar> q = linear(q_input, weights.q_up, points::latent_attention["q_up"]);
  const Matrix<Scalar> q_nope = detail::part_of_heads(q, H, w.key(), 0, w.nope);
  const Matrix<Scalar> q_rope =
      detail::rotated(detail::part_of_heads(q, H, w.key(), w.nope, w.rope), weights, tables, H);
  AttentionInputs<Scalar> inputs = detail::scaled_heads(weights);
  KeyValueCache<Scalar> full = restored_keys_values(cache, weights);
  inputs.q = detail::joined_heads(q_nope, q_rope, H);
  inputs.k = std::move(full.k);
  inputs.v = std::move(full.v);
  inputs.key_heads = H;
  const AttentionOutput<Scalar> out = attention.forward(inputs);
  const Matrix<Scalar> heads = stored(Matrix<Scalar>(out.o), points::latent_attention["attended"]);

  const LinearGradients<Scalar> of_output = linear_backward(heads, weights.output, dy);
  g.weights.output = of_output.weight;
  AttentionGradients<Scalar> core = attention.backward(inputs, out, of_output.x);
  core.q = stored(std::move(core.q), at["d_queries"]);
  core.k = stored(std::move(core.k), at["d_keys"]);
  core.v = stored(std::move(core.v), at["d_values"]);

  // Keys and values back to the latent; the rotary key is shared by the heads.
  const Index stride = w.nope + w.value;
  Matrix<Scalar> d_up(core.k.rows(), H * stride);
  detail::put_part_of_heads(detail::part_of_heads(core.k, H, w.key(), 0, w.nope), H, stride, 0, d_up);
  detail::put_part_of_heads(core.v, H, stride, w.nope, d_up);
  const LinearGradients<Scalar> of_up = linear_backward(cache.latent, weights.kv_up, d_up);
  g.weights.kv_up = of_up.weight;
  g.past = {of_up.x, Matrix<Scalar>::Zero(core.k.rows(), w.rope)};
  for (Index h = 0; h < H; ++h) g.past.rotary_key += core.k.middleCols(h * w.key() + w.nope, w.rope);

  // Queries.
  Matrix<Scalar> d_q(x.rows(), q.cols());
  detail::put_part_of_heads(detail::part_of_heads(core.q, H, w.key(), 0, w.nope), H, w.key(), 0, d_q);
  detail::put_part_of_heads(
      detail::rotated_backward(detail::part_of_heads(core.q, H, w.key(), w.nope, w.rope), weights.pairs,
                               tables, H),
      H, w.key(), w.nope, d_q);
  const LinearGradients<Scalar> of_q = linear_backward(q_input, weights.q_up, d_q);
  g.weights.q_up = of_q.weight;
  g.x = of_q.x;
  if (weights.q_down.size() == 0) return g;
  const Matrix<Scalar> compressed = linear(x, weights.q_down, points::latent_attention["q_down"]);
  const NormGradients<Scalar> of_norm =
      detail::normed_backward(compressed, weights.q_norm, weights.epsilon, of_q.x);
  g.weights.q_norm = of_norm.weight;
  const LinearGradients<Scalar> of_compressed = linear_backward(x, weights.q_down, of_norm.x);
  g.weights.q_down = of_compressed.weight;
  g.x = of_compressed.x;
  return g;
}

/// The gradients of the layer on the tokens x [T, D], which follow those of `past`; `tables` are those of x's
/// positions. dy: [T, D]; d_cache: the cotangents of the cache that is handed on, past and present tokens, or
/// 0 x 0 if nothing reads it. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] LatentAttentionGradients<Scalar> latent_attention_backward(
    const Matrix<Scalar>& x, const LatentAttentionWeights<Scalar>& weights,
    const RotaryTables<Scalar>& tables, const Matrix<Scalar>& dy, const LatentCache<Scalar>& past = {},
    const LatentCache<Scalar>& d_cache = {}) {
  const LatentWidths w = weights.widths();
  const Index T = x.rows();
  const LatentCache<Scalar> fresh = latent_of(x, weights, tables);
  const LatentCache<Scalar> cache{detail::appended(past.latent, past.tokens(), fresh.latent),
                                  detail::appended(past.rotary_key, past.tokens(), fresh.rotary_key)};
  LatentAttentionGradients<Scalar> g = latent_attention_cached_backward(x, weights, tables, dy, cache);
  LatentCache<Scalar> d = std::move(g.past);
  if (d_cache.latent.size() != 0) d.latent += d_cache.latent;
  if (d_cache.rotary_key.size() != 0) d.rotary_key += d_cache.rotary_key;
  const Index before = past.tokens();
  g.past = {};
  if (before > 0) g.past = {d.latent.topRows(before), d.rotary_key.topRows(before)};

  const Matrix<Scalar> down = linear(x, weights.kv_down, points::latent_attention["kv_down"]);
  const NormGradients<Scalar> of_latent = detail::normed_backward<Scalar>(
      down.leftCols(w.latent), weights.kv_norm, weights.epsilon, d.latent.bottomRows(T));
  g.weights.kv_norm = of_latent.weight;
  Matrix<Scalar> d_down(T, down.cols());
  d_down.leftCols(w.latent) = of_latent.x;
  d_down.rightCols(w.rope) =
      detail::rotated_backward<Scalar>(d.rotary_key.bottomRows(T), weights.pairs, tables, 1);
  const LinearGradients<Scalar> of_down = linear_backward(x, weights.kv_down, d_down);
  g.weights.kv_down = of_down.weight;
  g.x += of_down.x;
  return g;
}

}  // namespace samestate
