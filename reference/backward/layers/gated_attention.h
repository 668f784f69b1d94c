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
  const Matrix<Scalar> turned = rotate_backward(dy, tables, RotaryPairs::halves, heads);
  NormGradients<Scalar> out = rms_norm_zero_centred_backward(rows(x), weight, epsilon, rows(turned));
  const Matrix<Scalar> back = out.x.template reshaped<Eigen::RowMajor>(x.rows(), x.cols());
  out.x = back;
  return out;
}

}  // namespace detail

/// The gradients of the layer on the tokens `hidden`, [T, D], which follow those of `cache`. d_out: [T, D];
/// d_cache: the cotangents of the cache that is handed on, past and present tokens, or empty if nothing reads
/// it. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] GatedAttentionGradients<Scalar> gated_attention_backward(
    const Matrix<Scalar>& hidden, const GatedAttentionParameters<Scalar>& p,
    const RotaryTables<Scalar>& tables, const KeyValueCache<Scalar>& cache, const Matrix<Scalar>& d_out,
    const KeyValueCache<Scalar>& d_cache = {}) {
  using std::sqrt;
  const Index T = hidden.rows();
  const Index d = p.head_width;
  const Index past = cache.k.rows();
  AttentionOutput<Scalar> attended;
  AttentionInputs<Scalar> inputs;
  const GatedAttentionOutput<Scalar> out =
      gated_attention(hidden, p, tables, cache, [&](const AttentionInputs<Scalar>& x) {
        inputs = x;
        attended = softmax_attention_with_lse(x);
        return attended.o;
      });
  GatedAttentionGradients<Scalar> g{hidden, p, cache};

  LinearGradients<Scalar> of_output = linear_backward(out.gated, p.o_proj, d_out);
  g.parameters.o_proj = std::move(of_output.weight);
  const GatedGradients<Scalar> gate = logistic_gate_backward(out.attended, out.gate, of_output.x);
  AttentionGradients<Scalar> core = softmax_attention_backward(inputs, attended, gate.x);
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
  g.hidden = of_q.x + of_k.x + of_v.x;
  g.parameters.q_proj = std::move(of_q.weight);
  g.parameters.k_proj = std::move(of_k.weight);
  g.parameters.v_proj = std::move(of_v.weight);
  return g;
}

}  // namespace samestate
