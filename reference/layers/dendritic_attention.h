#pragma once

#include <cmath>
#include <vector>

#include "reference/dendritic_router.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/l2norm.h"
#include "reference/layers/dendritic_attention_cache.h"
#include "reference/layers/dendritic_attention_parameters.h"
#include "reference/linear.h"
#include "reference/norms.h"

/// The dendritic attention layer (class C-DEND), one sequence per call (EQUATIONS 7.3; the numbers in
/// comments are its steps). Prefill, decode and everything between are the same function with another cache.
namespace samestate {

namespace points {
inline constexpr PointRow kDendriticAttentionRows[] = {
    {"expansion", "q or k of a head, after its projection to all branches.", PointUse::both},
    {"normalised", "q or k of a window, after its l2norm."},
    {"core", "The output of a virtual head, after its recurrence."},
    {"q_proj", "q, after its projection.", PointUse::both},
    {"k_proj", "k, after its projection.", PointUse::both},
    {"v_proj", "v, after its projection.", PointUse::both},
    {"g_proj", "The output gate, after its projection and before silu.", PointUse::both},
    {"b_proj", "The write strength, after its projection and before its logistic function.", PointUse::both},
    {"a_proj", "The input of the decay, after its projection.", PointUse::both},
    {"mixed", "The heads, after the sum over windows and branches."},
    {"o_proj", "The output, after its projection.", PointUse::both, "output"},
    {"gated", "The heads, after their norm and gate.", PointUse::stored, "output"},
};
inline constexpr PointTable dendritic_attention{"dendritic_attention", PointTier::layer,
                                                kDendriticAttentionRows};
}  // namespace points

/// How to evaluate it; every choice gives the same layer.
template <class Scalar>
struct DendriticOptions {
  bool compacted = false;  ///< run each virtual head on its active tokens alone instead of on zeros (EQ-22)
  Index chunk = 0;         ///< tokens per chunk of the recurrence; 0 means token by token
  std::vector<bool> real;  ///< chi [T], false for a pad; empty if there are no pads
  /// H choices to use instead of the router's.
  const std::vector<DendriticRouting<Scalar>>* routing = nullptr;
};

/// The inputs of the recurrence, from steps 1-13.
template <class Scalar>
struct DendriticCoreInput {
  std::vector<DendriticRouting<Scalar>> routing;  ///< H
  std::vector<Sequence<Scalar>> heads;            ///< N E H virtual heads, normalised; unmasked if compacted
  Matrix<Scalar> z;                               ///< [T, H dv], the gate of the output norm
  DendriticCache<Scalar> cache;                   ///< convolutions advanced; recurrent states as at the start
};

/// Output and intermediate results. The norm of step 17 hides scalar errors, so o, a and S are compared too
/// and not only the output (8.1).
template <class Scalar>
struct DendriticResult {
  Matrix<Scalar> output;                          ///< [T, D]
  std::vector<DendriticRouting<Scalar>> routing;  ///< H; logits, omega and mu
  std::vector<Matrix<Scalar>> o;                  ///< N E H virtual heads of [T, dv] (14)
  Matrix<Scalar> a;                               ///< [T, H dv] mixed branches, before the norm (16)
  DendriticCache<Scalar> cache;                   ///< after the last token; cache.state is S
};

namespace detail {

/// Step 5 for all branches: q^e[t, h] = Q_h[e] q[t, h]. q: [T, H d] -> E of [T, H d].
template <class Scalar>
[[nodiscard]] std::vector<Matrix<Scalar>> expand(const Matrix<Scalar>& q,
                                                 const std::vector<Matrix<Scalar>>& expansion,
                                                 const DendriticSizes& s) {
  const Index d = s.head_width;
  std::vector<Matrix<Scalar>> out(static_cast<std::size_t>(s.branches()), Matrix<Scalar>(q.rows(), q.cols()));
  for (Index h = 0; h < s.heads; ++h) {
    const Matrix<Scalar> head = q.middleCols(h * d, d);
    const Matrix<Scalar> all =
        linear(head, expansion[static_cast<std::size_t>(h)], points::dendritic_attention["expansion"]);
    for (Index e = 0; e < s.branches(); ++e) {
      out[static_cast<std::size_t>(e)].middleCols(h * d, d) = all.middleCols(e * d, d);
    }
  }
  return out;
}

/// Sets the rows of pads to zero (6).
template <class Scalar>
void drop_pads(const std::vector<bool>& real, Matrix<Scalar>& x) {
  for (Index t = 0; t < x.rows(); ++t) {
    if (!real[static_cast<std::size_t>(t)]) x.row(t).setZero();
  }
}

/// Steps 8 and 9 for one branch of one head: rows of tokens that do not use it, and the gates of pads, are
/// set to zero.
template <class Scalar>
void mask_branch(const Matrix<bool>& mask, Index e, const std::vector<bool>& real, bool keep_inactive,
                 Sequence<Scalar>& head) {
  for (Index t = 0; t < head.tokens(); ++t) {
    const bool active = keep_inactive || mask(t, e);
    if (!active) {
      head.q.row(t).setZero();
      head.k.row(t).setZero();
      head.v.row(t).setZero();
    }
    if (!active || !real[static_cast<std::size_t>(t)]) head.g(t) = head.beta(t) = Scalar(0);
  }
}

/// Step 14 on one virtual head.
template <class Scalar>
[[nodiscard]] Trajectory<Scalar> run_core(const Sequence<Scalar>& head, Index chunk) {
  return chunk > 0 ? chunked<GatedDeltaRule>(head, chunk) : recurrent<GatedDeltaRule>(head);
}

/// Step 14 on the tokens that use the branch, by `run(sequence)`; the other tokens read zero and leave the
/// state unchanged. Tokens are gathered after the convolution, which sees all of them.
template <class Scalar, class Run>
[[nodiscard]] Trajectory<Scalar> run_compacted(const Sequence<Scalar>& head, const Matrix<bool>& mask,
                                               Index e, const Run& run) {
  std::vector<Index> active;
  for (Index t = 0; t < head.tokens(); ++t) {
    if (mask(t, e)) active.push_back(t);
  }
  const auto rows = [&](const auto& x) { return x(active, Eigen::all).eval(); };
  const Sequence<Scalar> gathered{rows(head.q),      rows(head.k), rows(head.v),      head.g(active),
                                  head.beta(active), head.scale,   head.initial_state};
  Trajectory<Scalar> part = run(gathered);
  Trajectory<Scalar> out;
  out.o = Matrix<Scalar>::Zero(head.tokens(), head.value_width());
  out.delta = out.o;
  for (std::size_t i = 0; i < active.size(); ++i) {
    out.o.row(active[i]) = part.o.row(static_cast<Index>(i));
    out.delta.row(active[i]) = part.delta.row(static_cast<Index>(i));
  }
  out.state = std::move(part.state);
  return out;
}

/// The choices to use, one for each head (2-4).
template <class Scalar>
[[nodiscard]] std::vector<DendriticRouting<Scalar>> route_heads(
    const DendriticParameters<Scalar>& p, const Matrix<Scalar>& q,
    const std::vector<DendriticRouting<Scalar>>* injected) {
  const DendriticSizes& s = p.sizes;
  if (injected && injected->size() != static_cast<std::size_t>(s.heads)) {
    throw Error("dendritic_attention: routing for " + std::to_string(injected->size()) + " heads, must be " +
                std::to_string(s.heads));
  }
  std::vector<DendriticRouting<Scalar>> out;
  for (Index h = 0; h < s.heads; ++h) {
    const Matrix<Scalar> head = q.middleCols(h * s.head_width, s.head_width);
    out.push_back(route_branches(head, p.router, s.branch));
    if (!injected) continue;
    const DendriticRouting<Scalar>& given = (*injected)[static_cast<std::size_t>(h)];
    if (given.weights.rows() != q.rows() || given.weights.cols() != s.branches() ||
        given.mask.rows() != q.rows() || given.mask.cols() != s.branches()) {
      throw Error("dendritic_attention: injected weights of head " + std::to_string(h) + " are " +
                  std::to_string(given.weights.rows()) + " x " + std::to_string(given.weights.cols()) +
                  ", must like the mask be " + std::to_string(q.rows()) + " x " +
                  std::to_string(s.branches()));
    }
    out.back().selected = given.selected;
    out.back().weights = given.weights;
    out.back().mask = given.mask;
  }
  return out;
}

}  // namespace detail

/// The convolved inputs from which the windows of one branch are cut: q and k [T, H d] of that branch, v [T,
/// H dv], g and beta [T, E H].
template <class Scalar>
struct DendriticBranch {
  const Matrix<Scalar>&q, &k, &v, &g, &beta;
};

/// Steps 8-13 of branch e: its virtual heads, masked unless `compacted`, with q and k normalised inside their
/// windows. states, heads: N E H elements, of which those of the branch are read and written.
template <class Scalar>
void dendritic_windows(const DendriticSizes& s, Index e, const DendriticBranch<Scalar>& x,
                       const std::vector<DendriticRouting<Scalar>>& routing, const std::vector<bool>& real,
                       bool compacted, const std::vector<Matrix<Scalar>>& states,
                       std::vector<Sequence<Scalar>>& heads) {
  using std::sqrt;
  const OverlapWindows windows = s.split();
  // the scale is of w, not of d
  const Scalar scale = Scalar(1) / sqrt(Scalar(static_cast<double>(windows.width)));
  // 11, 13: normalised inside the window. It is one rounding point: kernels store both or neither.
  const auto normalised = [&](const Matrix<Scalar>& head, Index n) {
    return stored<Scalar>(l2norm(windows.slice(head, n)), points::dendritic_attention["normalised"]);
  };
  for (Index h = 0; h < s.heads; ++h) {
    const Index m = s.merged_head(e, h);  // 10
    Sequence<Scalar> head{x.q.middleCols(h * s.head_width, s.head_width),
                          x.k.middleCols(h * s.head_width, s.head_width),
                          x.v.middleCols(h * s.value_width, s.value_width),
                          x.g.col(m),
                          x.beta.col(m),
                          scale,
                          Matrix<Scalar>()};
    detail::mask_branch(routing[static_cast<std::size_t>(h)].mask, e, real, compacted, head);  // 8, 9
    for (Index n = 0; n < s.windows; ++n) {
      const auto at = static_cast<std::size_t>(s.virtual_head(n, e, h));
      Sequence<Scalar>& window = heads[at];
      window = head;  // 12: all windows share v, g and beta
      window.q = normalised(head.q, n);
      window.k = normalised(head.k, n);
      window.initial_state = states[at];
    }
  }
}

/// Step 14: the recurrence of every virtual head by `run(sequence)`, over its list of tokens alone if
/// `compacted`. Returns N E H outputs [T, dv]; `states` become those after the last token.
template <class Scalar, class Run>
[[nodiscard]] std::vector<Matrix<Scalar>> dendritic_cores(
    const DendriticSizes& s, const std::vector<Sequence<Scalar>>& heads,
    const std::vector<DendriticRouting<Scalar>>& routing, bool compacted, const Run& run,
    std::vector<Matrix<Scalar>>& states) {
  std::vector<Matrix<Scalar>> o;
  for (Index i = 0; i < s.virtual_heads(); ++i) {
    const Index e = i % s.merged_heads() / s.heads;
    const auto at = static_cast<std::size_t>(i);
    const Matrix<bool>& mask = routing[static_cast<std::size_t>(i % s.heads)].mask;
    Trajectory<Scalar> core = compacted ? detail::run_compacted(heads[at], mask, e, run) : run(heads[at]);
    o.push_back(stored(std::move(core.o), points::dendritic_attention["core"]));
    states[at] = std::move(core.state);
  }
  return o;
}

/// Steps 1-13. x: [T, D], any T. Throws Error if parameters, cache, mask or routing have other sizes.
template <class Scalar>
[[nodiscard]] DendriticCoreInput<Scalar> dendritic_core_input(const DendriticParameters<Scalar>& p,
                                                              const Matrix<Scalar>& x,
                                                              DendriticCache<Scalar> cache,
                                                              const DendriticOptions<Scalar>& options = {}) {
  require_dendritic_parameters(p);
  const DendriticSizes& s = p.sizes;
  require_dendritic_cache(cache, s);
  const Index T = x.rows();
  std::vector<bool> real = options.real;
  if (real.empty()) real.assign(static_cast<std::size_t>(T), true);
  if (x.cols() != s.model_width || static_cast<Index>(real.size()) != T) {
    throw Error("dendritic_attention: x is " + std::to_string(T) + " x " + std::to_string(x.cols()) +
                " with a mask of " + std::to_string(real.size()) + " tokens, must be T x " +
                std::to_string(s.model_width) + " and T tokens");
  }

  DendriticCoreInput<Scalar> in;
  const Matrix<Scalar> q = linear(x, p.q_proj, points::dendritic_attention["q_proj"]);  // 1
  const Matrix<Scalar> k = linear(x, p.k_proj, points::dendritic_attention["k_proj"]);
  Matrix<Scalar> v = linear(x, p.v_proj, points::dendritic_attention["v_proj"]);
  in.z = linear(x, p.g_proj, points::dendritic_attention["g_proj"]);
  in.routing = detail::route_heads(p, q, options.routing);                     // 2-4
  std::vector<Matrix<Scalar>> q_branch = detail::expand(q, p.q_expansion, s);  // 5
  std::vector<Matrix<Scalar>> k_branch = detail::expand(k, p.k_expansion, s);
  const Matrix<Scalar> beta =
      write_strength(linear(x, p.b_proj, points::dendritic_attention["b_proj"]));  // 9
  const Matrix<Scalar> g =
      log_decay(linear(x, p.a_proj, points::dendritic_attention["a_proj"]), p.A_log, p.dt_bias);

  const Vector<Scalar> no_bias;
  detail::drop_pads(real, v);                                                        // 6
  Convolved<Scalar> v_conv = short_convolution(v, p.v_conv, no_bias, cache.conv_v);  // 7
  cache.conv_v = std::move(v_conv.state);

  in.heads.resize(static_cast<std::size_t>(s.virtual_heads()));
  for (Index e = 0; e < s.branches(); ++e) {
    const auto branch = static_cast<std::size_t>(e);
    detail::drop_pads(real, q_branch[branch]);  // 6
    detail::drop_pads(real, k_branch[branch]);
    Convolved<Scalar> q_conv = short_convolution(q_branch[branch], p.q_conv, no_bias, cache.conv_q[branch]);
    Convolved<Scalar> k_conv = short_convolution(k_branch[branch], p.k_conv, no_bias, cache.conv_k[branch]);
    cache.conv_q[branch] = std::move(q_conv.state);
    cache.conv_k[branch] = std::move(k_conv.state);
    const DendriticBranch<Scalar> convolved{q_conv.y, k_conv.y, v_conv.y, g, beta};
    dendritic_windows(s, e, convolved, in.routing, real, options.compacted, cache.state, in.heads);
  }
  note_tokens(cache, real);
  in.cache = std::move(cache);
  return in;
}

/// Steps 15 and 16: windows are summed, branches mixed by omega. o: N E H of [T, dv] -> [T, H dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> mix_branches(const std::vector<Matrix<Scalar>>& o,
                                          const std::vector<DendriticRouting<Scalar>>& routing,
                                          const DendriticSizes& s) {
  const Index T = o.front().rows();
  Matrix<Scalar> a = Matrix<Scalar>::Zero(T, s.heads * s.value_width);
  for (Index h = 0; h < s.heads; ++h) {
    const Matrix<Scalar>& omega = routing[static_cast<std::size_t>(h)].weights;
    for (Index e = 0; e < s.branches(); ++e) {
      Matrix<Scalar> sum = Matrix<Scalar>::Zero(T, s.value_width);
      for (Index n = 0; n < s.windows; ++n) sum += o[static_cast<std::size_t>(s.virtual_head(n, e, h))];
      for (Index t = 0; t < T; ++t) {
        a.row(t).segment(h * s.value_width, s.value_width) += omega(t, e) * sum.row(t);
      }
    }
  }
  return stored(std::move(a), points::dendritic_attention["mixed"]);
}

/// Steps 17 and 18: the norm of each head, the gate and the projection. a, z: [T, H dv] -> [T, D].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> dendritic_output(const DendriticParameters<Scalar>& p, const Matrix<Scalar>& a,
                                              const Matrix<Scalar>& z) {
  const Index dv = p.sizes.value_width;
  Matrix<Scalar> y(a.rows(), a.cols());
  for (Index h = 0; h < p.sizes.heads; ++h) {
    const Matrix<Scalar> head = a.middleCols(h * dv, dv);
    const Matrix<Scalar> gate = z.middleCols(h * dv, dv);
    y.middleCols(h * dv, dv) = rms_norm_gated(head, gate, p.o_norm, p.norm_epsilon);
  }
  return linear(stored(std::move(y), points::dendritic_attention["gated"]), p.o_proj,
                points::dendritic_attention["o_proj"]);
}

/// The layer, with its recurrence evaluated by `run(sequence)` instead of by options.chunk. x: [T, D] -> the
/// output [T, D], the intermediate results, and the cache from which the next tokens continue. T = 0 leaves
/// the cache unchanged. Throws Error as dendritic_core_input does.
template <class Scalar, class Run>
[[nodiscard]] DendriticResult<Scalar> dendritic_attention_by(const Run& run,
                                                             const DendriticParameters<Scalar>& p,
                                                             const Matrix<Scalar>& x,
                                                             DendriticCache<Scalar> cache,
                                                             const DendriticOptions<Scalar>& options) {
  DendriticCoreInput<Scalar> in = dendritic_core_input(p, x, std::move(cache), options);
  const DendriticSizes& s = p.sizes;
  DendriticResult<Scalar> out;
  out.o = dendritic_cores(s, in.heads, in.routing, options.compacted, run, in.cache.state);  // 14
  out.a = mix_branches(out.o, in.routing, s);                                                // 15, 16
  out.output = dendritic_output(p, out.a, in.z);
  out.routing = std::move(in.routing);
  out.cache = std::move(in.cache);
  return out;
}

/// The layer as its options say. Throws Error as dendritic_core_input does, and for a negative chunk.
template <class Scalar>
[[nodiscard]] DendriticResult<Scalar> dendritic_attention(const DendriticParameters<Scalar>& p,
                                                          const Matrix<Scalar>& x,
                                                          DendriticCache<Scalar> cache,
                                                          const DendriticOptions<Scalar>& options = {}) {
  if (options.chunk < 0) {
    throw Error("chunk=" + std::to_string(options.chunk) + ": must be 0 (token by token) or positive");
  }
  const auto run = [&](const Sequence<Scalar>& head) { return detail::run_core(head, options.chunk); };
  return dendritic_attention_by(run, p, x, std::move(cache), options);
}

}  // namespace samestate
