#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reference/backward/heads.h"
#include "reference/backward/linear.h"
#include "reference/backward/norms.h"
#include "reference/backward/short_convolution.h"
#include "reference/layers/gated_delta_net.h"

/// The backward pass of the Gated DeltaNet layer: each step of reference/layers/gated_delta_net.h reversed,
/// from the output projection to the input projections.
namespace samestate {

/// The cotangents of the layer's outputs. What nothing reads is empty: `cache.convolution` 0 x 0, and
/// `cache.state` without elements.
template <class Scalar>
struct GatedDeltaNetCotangents {
  Matrix<Scalar> y;  ///< [T, D]
  GatedDeltaNetCache<Scalar> cache;
};

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct GatedDeltaNetGradients {
  Matrix<Scalar> x;                      ///< [T, D], 0 in the rows of padding
  GatedDeltaNetWeights<Scalar> weights;  ///< `epsilon` has none and stays as it is
  GatedDeltaNetCache<Scalar> cache;      ///< of the cache that came in
};

/// The cotangents of the two projections from those of their parts, the reverse of split_projections. All of
/// `d` as GatedDeltaNetProjections has them -> [T, 2 Hk dk + 2 Hv dv] and [T, 2 Hv].
template <class Scalar>
[[nodiscard]] std::pair<Matrix<Scalar>, Matrix<Scalar>> joined_projections(
    const GatedDeltaNetProjections<Scalar>& d, const GatedDeltaNetShape& shape) {
  Matrix<Scalar> flat(d.mixed.rows(), d.mixed.cols() + d.z.cols());
  flat << d.mixed, d.z;
  Matrix<Scalar> flat_ba(d.b.rows(), 2 * d.b.cols());
  flat_ba << d.b, d.a;
  if (shape.layout == ProjectionLayout::flat) return {std::move(flat), std::move(flat_ba)};
  const ProjectionRows rows = grouped_rows(shape);
  Matrix<Scalar> qkvz(flat.rows(), flat.cols());
  Matrix<Scalar> ba(flat_ba.rows(), flat_ba.cols());
  for (Index i = 0; i < flat.cols(); ++i) qkvz.col(rows.qkvz[static_cast<std::size_t>(i)]) = flat.col(i);
  for (Index i = 0; i < flat_ba.cols(); ++i) ba.col(rows.ba[static_cast<std::size_t>(i)]) = flat_ba.col(i);
  return {std::move(qkvz), std::move(ba)};
}

/// The gradients of the layer. `forward` evaluates the rule on one head as the layer does, and `run` its
/// backward pass: (Sequence, HeadCotangents) -> HeadGradients. The other arguments are those of the layer.
/// Throws Error as the layer does, and if a cotangent has another shape than its output.
template <class Scalar, class Forward, class Run>
[[nodiscard]] GatedDeltaNetGradients<Scalar> gated_delta_net_backward(
    const Matrix<Scalar>& x, const GatedDeltaNetWeights<Scalar>& weights, const GatedDeltaNetShape& shape,
    const GatedDeltaNetCache<Scalar>& cache, const GatedDeltaNetCotangents<Scalar>& d, const Forward& forward,
    const Run& run, const std::vector<bool>& real = {}) {
  using std::sqrt;
  const GatedDeltaNetOutput<Scalar> out = gated_delta_net(x, weights, shape, cache, forward, real);
  const GatedDeltaNetProjections<Scalar> p =
      project_hidden(x, weights.in_proj_qkvz, weights.in_proj_ba, shape, real);
  const Matrix<Scalar> qkv = short_convolution(p.mixed, weights.conv1d, {}, cache.convolution).y;
  const Index dk = shape.key_width;
  const Index dv = shape.value_width;
  GatedDeltaNetGradients<Scalar> g{x, weights, cache};
  GatedDeltaNetProjections<Scalar> dp = p;

  LinearGradients<Scalar> of_output = linear_backward(out.gated, weights.out_proj, d.y);
  g.weights.out_proj = std::move(of_output.weight);
  g.weights.norm.setZero();
  Heads<Scalar> heads;
  std::vector<HeadCotangents<Scalar>> d_core;
  for (Index h = 0; h < shape.value_heads; ++h) {
    const auto at = [&](const Matrix<Scalar>& m) { return Matrix<Scalar>(m.middleCols(h * dv, dv)); };
    NormGradients<Scalar> norm =
        rms_norm_gated_backward(at(out.core), at(out.z), weights.norm, weights.epsilon, at(of_output.x));
    g.weights.norm += norm.weight;
    dp.z.middleCols(h * dv, dv) = norm.z;
    d_core.push_back({std::move(norm.x), {}});
    if (!d.cache.state.empty()) d_core.back().state = d.cache.state.at(static_cast<std::size_t>(h));
    heads.v.push_back(qkv.middleCols(2 * shape.keys() + h * dv, dv));
    heads.g.push_back(out.g.col(h));
    heads.beta.push_back(out.beta.col(h));
    heads.initial_state.push_back(cache.state[static_cast<std::size_t>(h)]);
    heads.key_of.push_back(shape.key_head(h));
  }
  for (Index h = 0; h < shape.key_heads; ++h) {
    heads.q.push_back(qkv.middleCols(h * dk, dk));
    heads.k.push_back(qkv.middleCols(shape.keys() + h * dk, dk));
  }
  heads.scale = Scalar(1) / sqrt(Scalar(static_cast<double>(dk)));
  HeadsGradients<Scalar> rule = heads_backward(heads, d_core, run, true);

  Matrix<Scalar> d_qkv(qkv.rows(), qkv.cols());
  Matrix<Scalar> d_beta(x.rows(), shape.value_heads);
  Matrix<Scalar> d_g(x.rows(), shape.value_heads);
  for (Index h = 0; h < shape.key_heads; ++h) {
    d_qkv.middleCols(h * dk, dk) = rule.q[static_cast<std::size_t>(h)];
    d_qkv.middleCols(shape.keys() + h * dk, dk) = rule.k[static_cast<std::size_t>(h)];
  }
  for (Index h = 0; h < shape.value_heads; ++h) {
    d_qkv.middleCols(2 * shape.keys() + h * dv, dv) = rule.v[static_cast<std::size_t>(h)];
    d_beta.col(h) = rule.beta[static_cast<std::size_t>(h)];
    d_g.col(h) = rule.g[static_cast<std::size_t>(h)];
  }
  g.cache.state = std::move(rule.initial_state);

  ConvolutionGradients<Scalar> convolution =
      short_convolution_backward(p.mixed, weights.conv1d, {}, cache.convolution, d_qkv, d.cache.convolution);
  dp.mixed = std::move(convolution.x);
  g.weights.conv1d = std::move(convolution.kernel);
  g.cache.convolution = std::move(convolution.state);
  dp.b = write_strength_backward(p.b, d_beta);
  LogDecayGradients<Scalar> decay = log_decay_backward(p.a, weights.A_log, weights.dt_bias, d_g);
  dp.a = std::move(decay.a);
  g.weights.A_log = std::move(decay.A_log);
  g.weights.dt_bias = std::move(decay.dt_bias);

  Matrix<Scalar> hidden = x;
  for (std::size_t t = 0; t < real.size(); ++t) {
    if (!real[t]) hidden.row(static_cast<Index>(t)).setZero();
  }
  const auto [d_qkvz, d_ba] = joined_projections(dp, shape);
  LinearGradients<Scalar> of_qkvz = linear_backward(hidden, weights.in_proj_qkvz, d_qkvz);
  LinearGradients<Scalar> of_ba = linear_backward(hidden, weights.in_proj_ba, d_ba);
  g.x = of_qkvz.x + of_ba.x;
  for (std::size_t t = 0; t < real.size(); ++t) {
    if (!real[t]) g.x.row(static_cast<Index>(t)).setZero();
  }
  g.weights.in_proj_qkvz = std::move(of_qkvz.weight);
  g.weights.in_proj_ba = std::move(of_ba.weight);
  return g;
}

}  // namespace samestate
