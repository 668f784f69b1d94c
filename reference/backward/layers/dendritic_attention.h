#pragma once

#include <utility>
#include <vector>

#include "reference/backward/head_gradients.h"
#include "reference/backward/l2norm.h"
#include "reference/backward/mixture_of_experts.h"
#include "reference/backward/norms.h"
#include "reference/backward/short_convolution.h"
#include "reference/layers/dendritic_attention.h"

/// The backward pass of the dendritic attention layer, for the choice of branches that the forward pass made,
/// which is a constant. The numbers in comments are the steps of EQUATIONS 7.3 that are reversed.
namespace samestate {

/// The cotangents of the layer's outputs. Parts of the cache that nothing reads are empty.
template <class Scalar>
struct DendriticCotangents {
  Matrix<Scalar> output;  ///< [T, D]
  DendriticCache<Scalar> cache;
};

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct DendriticGradients {
  Matrix<Scalar> x;                        ///< [T, D]
  DendriticParameters<Scalar> parameters;  ///< `norm_epsilon` has none and stays as it is
  DendriticCache<Scalar> cache;            ///< of the cache that came in
};

namespace detail {

/// Element i of a list of cotangents, 0 x 0 if the list is empty.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> cotangent_at(const std::vector<Matrix<Scalar>>& list, std::size_t i) {
  return list.empty() ? Matrix<Scalar>() : list.at(i);
}

/// The gradients of what the windows of one branch are cut from, as DendriticBranch has them.
template <class Scalar>
struct DendriticBranchGradients {
  Matrix<Scalar> q, k;  ///< [T, H d]
  Matrix<Scalar> v;     ///< [T, H dv]
};

/// Steps 8-14 of branch e reversed. d_o: N E H cotangents of the virtual heads' outputs; dg and dbeta, [T, E
/// H], and the states' gradients are written for the branch.
template <class Scalar, class Run>
[[nodiscard]] DendriticBranchGradients<Scalar> dendritic_windows_backward(
    const DendriticSizes& s, Index e, const Matrix<Scalar>& q, const Matrix<Scalar>& k,
    const DendriticCoreInput<Scalar>& in, const std::vector<bool>& real,
    const std::vector<Matrix<Scalar>>& d_o, const std::vector<Matrix<Scalar>>& d_states, const Run& run,
    Matrix<Scalar>& dg, Matrix<Scalar>& dbeta, std::vector<Matrix<Scalar>>& initial_states) {
  const OverlapWindows windows = s.split();
  const Index T = q.rows();
  const Index d = s.head_width;
  const Index dv = s.value_width;
  DendriticBranchGradients<Scalar> out{Matrix<Scalar>::Zero(T, s.heads * d),
                                       Matrix<Scalar>::Zero(T, s.heads * d),
                                       Matrix<Scalar>::Zero(T, s.heads * dv)};
  for (Index h = 0; h < s.heads; ++h) {
    const Matrix<bool>& mask = in.routing[static_cast<std::size_t>(h)].mask;
    const Index m = s.merged_head(e, h);
    Matrix<Scalar> head_q = q.middleCols(h * d, d), head_k = k.middleCols(h * d, d);
    for (Index t = 0; t < T; ++t) {
      if (!mask(t, e)) head_q.row(t).setZero();
      if (!mask(t, e)) head_k.row(t).setZero();
    }
    for (Index n = 0; n < s.windows; ++n) {
      const auto at = static_cast<std::size_t>(s.virtual_head(n, e, h));
      const HeadGradients<Scalar> core =
          run(in.heads[at], HeadCotangents<Scalar>{d_o[at], cotangent_at(d_states, at)});  // 14
      const Index begin = h * d + windows.begin(n);
      out.q.middleCols(begin, windows.width) += l2norm_backward(windows.slice(head_q, n), core.q);  // 11, 13
      out.k.middleCols(begin, windows.width) += l2norm_backward(windows.slice(head_k, n), core.k);
      out.v.middleCols(h * dv, dv) += core.v;
      dg.col(m) += core.g;
      dbeta.col(m) += core.beta;
      initial_states[at] = core.initial_state;
    }
    for (Index t = 0; t < T; ++t) {  // 8, 9
      const bool active = mask(t, e);
      if (!active) {
        out.q.row(t).segment(h * d, d).setZero();
        out.k.row(t).segment(h * d, d).setZero();
        out.v.row(t).segment(h * dv, dv).setZero();
      }
      if (!active || !real[static_cast<std::size_t>(t)]) dg(t, m) = dbeta(t, m) = Scalar(0);
    }
  }
  return out;
}

/// Steps 2-4 reversed for one head, under R1: the weights of the K chosen branches are a softmax of their
/// logits over the number of kinds of branches, shared and routed. domega: [T, E] -> the logits' gradient
/// [T, E - Es].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> route_branches_backward(const DendriticRouting<Scalar>& routing,
                                                     const BranchCounts& n, const Matrix<Scalar>& domega) {
  const Scalar kinds(n.shared > 0 ? 2.0 : 1.0);
  Routing<Scalar> chosen{routing.logits, routing.probabilities, routing.selected,
                         Matrix<Scalar>(domega.rows(), n.routed)};
  Matrix<Scalar> d(domega.rows(), n.routed);
  for (Index t = 0; t < domega.rows(); ++t) {
    for (Index i = 0; i < n.routed; ++i) {
      const Index e = n.shared + routing.selected(t, i);
      chosen.weights(t, i) = kinds * routing.weights(t, e);
      d(t, i) = domega(t, e) / kinds;
    }
  }
  return route_backward(chosen, TopKWeights::renormalised, d);
}

/// Steps 15-18 reversed: what the virtual heads, the gate, omega, the norm and the output projection receive.
template <class Scalar>
struct DendriticMixGradients {
  std::vector<Matrix<Scalar>> o;      ///< N E H of [T, dv]
  std::vector<Matrix<Scalar>> omega;  ///< H of [T, E]
  Matrix<Scalar> z;                   ///< [T, H dv]
  Vector<Scalar> o_norm;              ///< [dv]
  Matrix<Scalar> o_proj;              ///< [D, H dv]

  DendriticMixGradients(const DendriticParameters<Scalar>& p, const DendriticCoreInput<Scalar>& in,
                        const std::vector<Matrix<Scalar>>& forward, const Matrix<Scalar>& d_output) {
    const DendriticSizes& s = p.sizes;
    const Index T = in.z.rows();
    const Index dv = s.value_width;
    const Matrix<Scalar> a = mix_branches(forward, in.routing, s);
    Matrix<Scalar> y(T, a.cols());
    const auto at = [&](const Matrix<Scalar>& m, Index h) {
      return Matrix<Scalar>(m.middleCols(h * dv, dv));
    };
    for (Index h = 0; h < s.heads; ++h)
      y.middleCols(h * dv, dv) = rms_norm_gated(at(a, h), at(in.z, h), p.o_norm, p.norm_epsilon);
    LinearGradients<Scalar> of_output = linear_backward(
        stored(std::move(y), points::dendritic_attention["gated"]), p.o_proj, d_output);  // 18
    o_proj = std::move(of_output.weight);
    z.resize(T, a.cols());
    o_norm = Vector<Scalar>::Zero(dv);
    o.resize(static_cast<std::size_t>(s.virtual_heads()));
    for (Index h = 0; h < s.heads; ++h) {
      const NormGradients<Scalar> norm =
          rms_norm_gated_backward(at(a, h), at(in.z, h), p.o_norm, p.norm_epsilon, at(of_output.x, h));  // 17
      z.middleCols(h * dv, dv) = norm.z;
      o_norm += norm.weight;
      const Matrix<Scalar>& weights = in.routing[static_cast<std::size_t>(h)].weights;
      omega.push_back(Matrix<Scalar>::Zero(T, s.branches()));
      for (Index e = 0; e < s.branches(); ++e) {
        for (Index n = 0; n < s.windows; ++n) {  // 15, 16
          const auto i = static_cast<std::size_t>(s.virtual_head(n, e, h));
          o[i] = weights.col(e).asDiagonal() * norm.x;
          omega.back().col(e) += norm.x.cwiseProduct(forward[i]).rowwise().sum();
        }
      }
    }
  }
};

}  // namespace detail

/// The gradients of the layer on the tokens x, [T, D], which follow those of `cache`. `run` evaluates the
/// backward pass of the rule on one virtual head: (Sequence, HeadCotangents) -> HeadGradients. real: [T],
/// false for a pad, or empty. Throws Error as the layer does.
template <class Scalar, class Run>
[[nodiscard]] DendriticGradients<Scalar> dendritic_attention_backward(
    const DendriticParameters<Scalar>& p, const Matrix<Scalar>& x, const DendriticCache<Scalar>& cache,
    const DendriticCotangents<Scalar>& d, const Run& run, std::vector<bool> real = {}) {
  constexpr const PointTable& at_point = points::dendritic_attention;
  const DendriticSizes& s = p.sizes;
  const Index T = x.rows();
  DendriticOptions<Scalar> options;
  options.real = real;
  if (real.empty()) real.assign(static_cast<std::size_t>(T), true);
  const DendriticCoreInput<Scalar> in = dendritic_core_input(p, x, cache, options);
  std::vector<Matrix<Scalar>> states = cache.state;
  const std::vector<Matrix<Scalar>> o = dendritic_cores(
      s, in.heads, in.routing, false,
      [](const Sequence<Scalar>& head) { return recurrent<GatedDeltaRule>(head); }, states);
  detail::DendriticMixGradients<Scalar> mix(p, in, o, d.output);
  DendriticGradients<Scalar> g{x, p, cache};
  DendriticParameters<Scalar>& dp = g.parameters;
  DendriticParameters<Scalar>::all(dp, [](std::size_t, auto& weight) { weight.setZero(); });
  dp.o_proj = std::move(mix.o_proj);
  dp.o_norm = std::move(mix.o_norm);

  const Matrix<Scalar> q = linear(x, p.q_proj, at_point["q_proj"]);
  const Matrix<Scalar> k = linear(x, p.k_proj, at_point["k_proj"]);
  Matrix<Scalar> v = linear(x, p.v_proj, at_point["v_proj"]);
  detail::drop_pads(real, v);
  std::vector<Matrix<Scalar>> q_branch = detail::expand(q, p.q_expansion, s);
  std::vector<Matrix<Scalar>> k_branch = detail::expand(k, p.k_expansion, s);
  Matrix<Scalar> dg = Matrix<Scalar>::Zero(T, s.merged_heads()), dbeta = dg;
  Matrix<Scalar> dv_conv = Matrix<Scalar>::Zero(T, v.cols());
  std::vector<Matrix<Scalar>> dq_heads, dk_heads;  // H of [T, E d], what the expansion receives
  dq_heads.assign(static_cast<std::size_t>(s.heads), Matrix<Scalar>(T, s.branches() * s.head_width));
  dk_heads = dq_heads;
  const Vector<Scalar> no_bias;
  for (Index e = 0; e < s.branches(); ++e) {
    const auto branch = static_cast<std::size_t>(e);
    detail::drop_pads(real, q_branch[branch]);
    detail::drop_pads(real, k_branch[branch]);
    const Matrix<Scalar> q_conv =
        short_convolution(q_branch[branch], p.q_conv, no_bias, cache.conv_q[branch]).y;
    const Matrix<Scalar> k_conv =
        short_convolution(k_branch[branch], p.k_conv, no_bias, cache.conv_k[branch]).y;
    const detail::DendriticBranchGradients<Scalar> cut = detail::dendritic_windows_backward(
        s, e, q_conv, k_conv, in, real, mix.o, d.cache.state, run, dg, dbeta, g.cache.state);
    dv_conv += cut.v;
    const auto reverse = [&](const Matrix<Scalar>& inputs, const Matrix<Scalar>& kernel,
                             const Matrix<Scalar>& state, const Matrix<Scalar>& dy,
                             const Matrix<Scalar>& d_state, Matrix<Scalar>& d_kernel, Matrix<Scalar>& before,
                             std::vector<Matrix<Scalar>>& heads) {  // 6, 7
      ConvolutionGradients<Scalar> c =
          short_convolution_backward(inputs, kernel, no_bias, state, dy, d_state);
      d_kernel += c.kernel;
      before = c.state;
      detail::drop_pads(real, c.x);
      for (Index h = 0; h < s.heads; ++h) {
        heads[static_cast<std::size_t>(h)].middleCols(e * s.head_width, s.head_width) =
            c.x.middleCols(h * s.head_width, s.head_width);
      }
    };
    reverse(q_branch[branch], p.q_conv, cache.conv_q[branch], cut.q,
            detail::cotangent_at(d.cache.conv_q, branch), dp.q_conv, g.cache.conv_q[branch], dq_heads);
    reverse(k_branch[branch], p.k_conv, cache.conv_k[branch], cut.k,
            detail::cotangent_at(d.cache.conv_k, branch), dp.k_conv, g.cache.conv_k[branch], dk_heads);
  }
  ConvolutionGradients<Scalar> v_conv =
      short_convolution_backward(v, p.v_conv, no_bias, cache.conv_v, dv_conv, d.cache.conv_v);
  detail::drop_pads(real, v_conv.x);
  dp.v_conv = std::move(v_conv.kernel);
  g.cache.conv_v = std::move(v_conv.state);

  Matrix<Scalar> dq(T, q.cols()), dk(T, k.cols());
  for (Index h = 0; h < s.heads; ++h) {
    const auto at = static_cast<std::size_t>(h);
    const Index begin = h * s.head_width;
    const Matrix<Scalar> head_q = q.middleCols(begin, s.head_width);
    const LinearGradients<Scalar> of_q = linear_backward(head_q, p.q_expansion[at], dq_heads[at]);  // 5
    const LinearGradients<Scalar> of_k =
        linear_backward<Scalar>(k.middleCols(begin, s.head_width), p.k_expansion[at], dk_heads[at]);
    dp.q_expansion[at] = of_q.weight;
    dp.k_expansion[at] = of_k.weight;
    dq.middleCols(begin, s.head_width) = of_q.x;
    dk.middleCols(begin, s.head_width) = of_k.x;
    if (s.branch.routed == 0) continue;
    const LinearGradients<Scalar> of_router = linear_backward(
        head_q, p.router, detail::route_branches_backward(in.routing[at], s.branch, mix.omega[at]));  // 2-4
    dp.router += of_router.weight;
    dq.middleCols(begin, s.head_width) += of_router.x;
  }
  const Matrix<Scalar> db = write_strength_backward(linear(x, p.b_proj, at_point["b_proj"]), dbeta);  // 9
  const LogDecayGradients<Scalar> decay =
      log_decay_backward(linear(x, p.a_proj, at_point["a_proj"]), p.A_log, p.dt_bias, dg);
  dp.A_log = decay.A_log;
  dp.dt_bias = decay.dt_bias;
  g.x.setZero();
  const auto project = [&](const Matrix<Scalar>& weight, const Matrix<Scalar>& dy, Matrix<Scalar>& d_weight) {
    const LinearGradients<Scalar> of = linear_backward(x, weight, dy);  // 1
    d_weight = of.weight;
    g.x += of.x;
  };
  project(p.q_proj, dq, dp.q_proj);
  project(p.k_proj, dk, dp.k_proj);
  project(p.v_proj, v_conv.x, dp.v_proj);
  project(p.g_proj, mix.z, dp.g_proj);
  project(p.b_proj, db, dp.b_proj);
  project(p.a_proj, decay.a, dp.a_proj);
  return g;
}

}  // namespace samestate
