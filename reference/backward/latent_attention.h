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
  return rms_norm_backward(x, weight, epsilon, dy);
}

/// The reverse of `rotated`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> rotated_backward(const Matrix<Scalar>& dy, RotaryPairs pairs,
                                              const RotaryTables<Scalar>& tables, Index heads) {
  return tables.width() == 0 ? dy : rotate_backward(dy, tables, pairs, heads);
}

}  // namespace detail

/// The gradients of the layer on the tokens x [T, D], which follow those of `past`; `tables` are those of x's
/// positions. dy: [T, D]; d_cache: the cotangents of the cache that is handed on, past and present tokens, or
/// 0 x 0 if nothing reads it. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] LatentAttentionGradients<Scalar> latent_attention_backward(
    const Matrix<Scalar>& x, const LatentAttentionWeights<Scalar>& weights,
    const RotaryTables<Scalar>& tables, const Matrix<Scalar>& dy, const LatentCache<Scalar>& past = {},
    const LatentCache<Scalar>& d_cache = {}) {
  const LatentWidths w = weights.widths();
  const Index H = weights.heads;
  const Index T = x.rows();
  const LatentAttention<Scalar> out = latent_attention(x, weights, tables, LatentForm::naive, past);
  LatentAttentionGradients<Scalar> g{x, weights, {}};

  // The queries, as the forward pass makes them.
  const Matrix<Scalar> q_input = query_input(x, weights);
  const Matrix<Scalar> q = linear(q_input, weights.q_up, points::latent_attention["q_up"]);
  const Matrix<Scalar> q_nope = detail::part_of_heads(q, H, w.key(), 0, w.nope);
  const Matrix<Scalar> q_rope =
      detail::rotated(detail::part_of_heads(q, H, w.key(), w.nope, w.rope), weights, tables, H);
  AttentionInputs<Scalar> inputs = detail::scaled_heads(weights);
  KeyValueCache<Scalar> full = restored_keys_values(out.cache, weights);
  inputs.q = detail::joined_heads(q_nope, q_rope, H);
  inputs.k = std::move(full.k);
  inputs.v = std::move(full.v);
  inputs.key_heads = H;

  const LinearGradients<Scalar> of_output = linear_backward(out.heads, weights.output, dy);
  g.weights.output = of_output.weight;
  const AttentionGradients<Scalar> core =
      softmax_attention_backward(inputs, softmax_attention_with_lse(inputs), of_output.x);

  // Keys and values back to the latent; the rotary key is shared by the heads.
  const Index stride = w.nope + w.value;
  Matrix<Scalar> d_up(core.k.rows(), H * stride);
  detail::put_part_of_heads(detail::part_of_heads(core.k, H, w.key(), 0, w.nope), H, stride, 0, d_up);
  detail::put_part_of_heads(core.v, H, stride, w.nope, d_up);
  const LinearGradients<Scalar> of_up = linear_backward(out.cache.latent, weights.kv_up, d_up);
  g.weights.kv_up = of_up.weight;
  Matrix<Scalar> d_latent = of_up.x;
  Matrix<Scalar> d_rotary = Matrix<Scalar>::Zero(core.k.rows(), w.rope);
  for (Index h = 0; h < H; ++h) d_rotary += core.k.middleCols(h * w.key() + w.nope, w.rope);
  if (d_cache.latent.size() != 0) d_latent += d_cache.latent;
  if (d_cache.rotary_key.size() != 0) d_rotary += d_cache.rotary_key;
  const Index before = past.tokens();
  if (before > 0) g.past = {d_latent.topRows(before), d_rotary.topRows(before)};

  const Matrix<Scalar> down = linear(x, weights.kv_down, points::latent_attention["kv_down"]);
  const NormGradients<Scalar> of_latent = detail::normed_backward<Scalar>(
      down.leftCols(w.latent), weights.kv_norm, weights.epsilon, d_latent.bottomRows(T));
  g.weights.kv_norm = of_latent.weight;
  Matrix<Scalar> d_down(T, down.cols());
  d_down.leftCols(w.latent) = of_latent.x;
  d_down.rightCols(w.rope) =
      detail::rotated_backward<Scalar>(d_rotary.bottomRows(T), weights.pairs, tables, 1);
  const LinearGradients<Scalar> of_down = linear_backward(x, weights.kv_down, d_down);
  g.weights.kv_down = of_down.weight;
  g.x = of_down.x;

  // Queries.
  Matrix<Scalar> d_q(T, q.cols());
  detail::put_part_of_heads(detail::part_of_heads(core.q, H, w.key(), 0, w.nope), H, w.key(), 0, d_q);
  detail::put_part_of_heads(
      detail::rotated_backward(detail::part_of_heads(core.q, H, w.key(), w.nope, w.rope), weights.pairs,
                               tables, H),
      H, w.key(), w.nope, d_q);
  const LinearGradients<Scalar> of_q = linear_backward(q_input, weights.q_up, d_q);
  g.weights.q_up = of_q.weight;
  if (weights.q_down.size() == 0) {
    g.x += of_q.x;
    return g;
  }
  const Matrix<Scalar> compressed = linear(x, weights.q_down, points::latent_attention["q_down"]);
  const NormGradients<Scalar> of_norm =
      detail::normed_backward(compressed, weights.q_norm, weights.epsilon, of_q.x);
  g.weights.q_norm = of_norm.weight;
  const LinearGradients<Scalar> of_compressed = linear_backward(x, weights.q_down, of_norm.x);
  g.weights.q_down = of_compressed.weight;
  g.x += of_compressed.x;
  return g;
}

}  // namespace samestate
