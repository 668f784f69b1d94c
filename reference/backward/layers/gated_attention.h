#pragma once

#include <cmath>
#include <utility>

#include "reference/backward/linear.h"
#include "reference/backward/norms.h"
#include "reference/backward/rotary_embedding.h"
#include "reference/backward/softmax_attention.h"
#include "reference/layers/gated_attention.h"

/// The backward pass of gated softmax attention: output projection, gate, attention, then rotation, norm and
/// projection of q and k.
namespace samestate {

namespace points {
inline constexpr PointRow kGatedAttentionBackwardRows[] = {
    {"d_attended", "The cotangent of the heads before their gate."},
    {"d_gate", "The gradient of the gate before the logistic function."},
    {"d_rotated", "dq or dk of attention, before they are turned back."},
    {"d_values", "dv of attention."},
    {"d_normed", "dq or dk, after they are turned back and before the norm's backward pass."},
    {"d_projected", "dq or dk, after the norm's backward pass."},
    {"d_hidden", "The parts of the gradient that come through k_proj and v_proj, added up."},
};
inline constexpr PointTable gated_attention_backward{"gated_attention_backward", PointTier::layer,
                                                     kGatedAttentionBackwardRows};
}  // namespace points

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct GatedAttentionGradients {
  Matrix<Scalar> hidden;                        ///< [T, D]
  GatedAttentionParameters<Scalar> parameters;  ///< numbers without a gradient stay as they are
  KeyValueCache<Scalar> cache;                  ///< of the past tokens
};

namespace detail {

/// The reverse of norm_and_rotate. x: [T, heads d] before the norm.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> norm_and_rotate_backward(const Matrix<Scalar>& x, Index heads,
                                                             const Vector<Scalar>& weight,
                                                             const Scalar& epsilon,
                                                             const RotaryTables<Scalar>& tables,
                                                             const Matrix<Scalar>& dy) {
  const auto rows = [&](const Matrix<Scalar>& m) {
    return Matrix<Scalar>(m.template reshaped<Eigen::RowMajor>(m.rows() * heads, weight.size()));
  };
  const Matrix<Scalar> turned = stored(rotate_backward(dy, tables, RotaryPairs::halves, heads),
                                       points::gated_attention_backward["d_normed"]);
  NormGradients<Scalar> out = rms_norm_zero_centred_backward(rows(x), weight, epsilon, rows(turned));
  Matrix<Scalar> back = out.x.template reshaped<Eigen::RowMajor>(x.rows(), x.cols());
  out.x = stored(std::move(back), points::gated_attention_backward["d_projected"]);
  return out;
}

}  // namespace detail

/// The gradients of the layer on the tokens `hidden`, [T, D], which follow those of `cache`. d_out: [T, D];
/// d_cache: the cotangents of the cache that is handed on, past and present tokens, or empty if nothing reads
/// it. `attention` is attention itself, as WholeAttention is. Throws Error if sizes disagree.
template <class Scalar, class Attention = WholeAttention>
[[nodiscard]] GatedAttentionGradients<Scalar> gated_attention_backward(
    const Matrix<Scalar>& hidden, const GatedAttentionParameters<Scalar>& p,
    const RotaryTables<Scalar>& tables, const KeyValueCache<Scalar>& cache, const Matrix<Scalar>& d_out,
    const KeyValueCache<Scalar>& d_cache = {}, const Attention& attention = {}) {
  constexpr const PointTable& at = points::gated_attention_backward;
  const Index T = hidden.rows();
  const Index d = p.head_width;
  const Index past = cache.k.rows();
  AttentionOutput<Scalar> attended;
  AttentionInputs<Scalar> inputs;
  const GatedAttentionOutput<Scalar> out =
      gated_attention(hidden, p, tables, cache, [&](const AttentionInputs<Scalar>& x) {
        inputs = x;
        attended = attention.forward(x);
        return attended.o;
      });
  GatedAttentionGradients<Scalar> g{hidden, p, cache};

  LinearGradients<Scalar> of_output = linear_backward(out.gated, p.o_proj, d_out);
  g.parameters.o_proj = std::move(of_output.weight);
  GatedGradients<Scalar> gate = logistic_gate_backward(out.attended, out.gate, of_output.x);
  gate.x = stored(std::move(gate.x), at["d_attended"]);
  gate.z = stored(std::move(gate.z), at["d_gate"]);
  AttentionGradients<Scalar> core = attention.backward(inputs, attended, gate.x);
  core.q = stored(std::move(core.q), at["d_rotated"]);
  core.k = stored(std::move(core.k), at["d_rotated"]);
  core.v = stored(std::move(core.v), at["d_values"]);
  if (d_cache.k.size() != 0) core.k += d_cache.k;
  if (d_cache.v.size() != 0) core.v += d_cache.v;
  g.cache = {core.k.topRows(past), core.v.topRows(past)};

  const Matrix<Scalar> projected = linear(hidden, p.q_proj, points::gated_attention["q_proj"]);
  const Matrix<Scalar> rows = projected.template reshaped<Eigen::RowMajor>(T * p.heads, 2 * d);
  const Matrix<Scalar> query_rows = rows.leftCols(d);
  const Matrix<Scalar> query = query_rows.template reshaped<Eigen::RowMajor>(T, p.heads * d);
  const NormGradients<Scalar> of_query =
      detail::norm_and_rotate_backward(query, p.heads, p.q_norm, p.epsilon, tables, core.q);
  g.parameters.q_norm = of_query.weight;
  Matrix<Scalar> d_rows(T * p.heads, 2 * d);
  d_rows.leftCols(d) = of_query.x.template reshaped<Eigen::RowMajor>(T * p.heads, d);
  d_rows.rightCols(d) = gate.z.template reshaped<Eigen::RowMajor>(T * p.heads, d);
  const Matrix<Scalar> d_projected = d_rows.template reshaped<Eigen::RowMajor>(T, p.heads * 2 * d);
  LinearGradients<Scalar> of_q = linear_backward(hidden, p.q_proj, d_projected);

  const Matrix<Scalar> key = linear(hidden, p.k_proj, points::gated_attention["k_proj"]);
  const NormGradients<Scalar> of_key = detail::norm_and_rotate_backward<Scalar>(
      key, p.key_heads, p.k_norm, p.epsilon, tables, core.k.bottomRows(T));
  g.parameters.k_norm = of_key.weight;
  LinearGradients<Scalar> of_k = linear_backward(hidden, p.k_proj, of_key.x);
  LinearGradients<Scalar> of_v = linear_backward<Scalar>(hidden, p.v_proj, core.v.bottomRows(T));
  g.hidden = of_q.x + stored<Scalar>(of_v.x + of_k.x, at["d_hidden"]);
  g.parameters.q_proj = std::move(of_q.weight);
  g.parameters.k_proj = std::move(of_k.weight);
  g.parameters.v_proj = std::move(of_v.weight);
  return g;
}

}  // namespace samestate
