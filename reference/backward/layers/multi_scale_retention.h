#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "reference/backward/head_gradients.h"
#include "reference/backward/linear.h"
#include "reference/backward/norms.h"
#include "reference/backward/rotary_embedding.h"
#include "reference/layers/multi_scale_retention.h"
#include "reference/retention.h"

namespace samestate {

/// The gradients of multi-scale retention, in the shapes of its inputs.
template <class Scalar>
struct MultiScaleRetentionGradients {
  Matrix<Scalar> x;  ///< [T, D]
  MultiScaleRetentionWeights<Scalar> weights;
  std::vector<Matrix<Scalar>> initial_states;  ///< H of [dk, dv]
};

/// The head's retention as a Sequence, whose decay is the constant of head h.
template <class Scalar>
[[nodiscard]] Sequence<Scalar> retention_head(Matrix<Scalar> q, Matrix<Scalar> k, Matrix<Scalar> v, Index h,
                                              Matrix<Scalar> state) {
  const Index T = q.rows();
  return {std::move(q),
          std::move(k),
          std::move(v),
          Vector<Scalar>::Constant(T, retention_log_decay<Scalar>(h)),
          Vector<Scalar>::Ones(T),
          Scalar(1),
          std::move(state)};
}

/// The gradients of the layer whose heads are plain retention (EQUATIONS 5.11, without the scales that cancel
/// in the norm), from the states `states`, H of [dk, dv]. dy: [T, D]; d_states: H cotangents of the final
/// states, or empty. `run` evaluates the backward pass of Retention in any form: (Sequence, HeadCotangents) ->
/// HeadGradients. The decays are constants. Throws Error if sizes disagree.
template <class Scalar, class Run>
[[nodiscard]] MultiScaleRetentionGradients<Scalar> multi_scale_retention_backward(
    const Matrix<Scalar>& x, const MultiScaleRetentionWeights<Scalar>& w,
    const std::vector<Matrix<Scalar>>& states, const Matrix<Scalar>& dy,
    const std::vector<Matrix<Scalar>>& d_states, const Run& run, Index first = 0) {
  using std::sqrt;
  const auto forward = [&](const Matrix<Scalar>& q, const Matrix<Scalar>& k, const Matrix<Scalar>& v,
                           const Scalar&, Index h) {
    return recurrent<Retention>(retention_head(q, k, v, h, states.at(static_cast<std::size_t>(h)))).o;
  };
  const MultiScaleRetentionOutput<Scalar> out = multi_scale_retention(x, w, forward, first);
  const Index dk = w.q_proj.rows() / w.heads;
  const Index dv = w.v_proj.rows() / w.heads;
  const auto [q, k] = rotated_keys(x, w.q_proj, w.k_proj, w.heads, first);
  const Matrix<Scalar> v = linear(x, w.v_proj, points::multi_scale_retention["v_proj"]);
  const Matrix<Scalar> gate = linear(x, w.g_proj, points::multi_scale_retention["g_proj"]);
  MultiScaleRetentionGradients<Scalar> g{x, w, {}};

  const LinearGradients<Scalar> of_output =
      linear_backward(gated_retention(out.normed, gate), w.out_proj, dy);
  g.weights.out_proj = of_output.weight;
  const Matrix<Scalar> d_normed = of_output.x.cwiseProduct(silu(gate));
  const LinearGradients<Scalar> of_gate = linear_backward<Scalar>(
      x, w.g_proj, of_output.x.cwiseProduct(out.normed).cwiseProduct(silu_slope(gate)));
  g.weights.g_proj = of_gate.weight;
  Matrix<Scalar> dq(q.rows(), q.cols()), d_k(k.rows(), k.cols()), d_v(v.rows(), v.cols());
  for (Index h = 0; h < w.heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    const Matrix<Scalar> core = out.core.middleCols(h * dv, dv);
    const Matrix<Scalar> d_core =
        rms_norm_backward<Scalar>(core, Vector<Scalar>::Ones(dv), w.epsilon, d_normed.middleCols(h * dv, dv))
            .x;
    const HeadGradients<Scalar> head =
        run(retention_head<Scalar>(q.middleCols(h * dk, dk), k.middleCols(h * dk, dk),
                                   v.middleCols(h * dv, dv), h, states.at(at)),
            HeadCotangents<Scalar>{d_core, d_states.empty() ? Matrix<Scalar>() : d_states.at(at)});
    dq.middleCols(h * dk, dk) = head.q;
    d_k.middleCols(h * dk, dk) = head.k;
    d_v.middleCols(h * dv, dv) = head.v;
    g.initial_states.push_back(head.initial_state);
  }
  const RotaryTables<Scalar> tables = retention_rotation<Scalar>(first, x.rows(), dk);
  const Scalar root = sqrt(Scalar(static_cast<double>(dk)));
  const LinearGradients<Scalar> of_q =
      linear_backward(x, w.q_proj, rotate_backward(dq, tables, RotaryPairs::interleaved, w.heads));
  const LinearGradients<Scalar> of_k = linear_backward<Scalar>(
      x, w.k_proj, rotate_backward(d_k, tables, RotaryPairs::interleaved, w.heads) / root);
  const LinearGradients<Scalar> of_v = linear_backward(x, w.v_proj, d_v);
  g.weights.q_proj = of_q.weight;
  g.weights.k_proj = of_k.weight;
  g.weights.v_proj = of_v.weight;
  g.x = of_q.x + of_k.x + of_v.x + of_gate.x;
  return g;
}

}  // namespace samestate
