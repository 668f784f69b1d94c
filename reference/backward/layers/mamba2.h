#pragma once

#include <utility>

#include "reference/backward/layers/mamba.h"
#include "reference/backward/norms.h"
#include "reference/backward/state_space_duality.h"
#include "reference/layers/mamba2.h"

/// The backward pass of the Mamba-2 mixer: each step of reference/layers/mamba2.h reversed.
namespace samestate {

/// The cotangents of the layer's outputs; parts of the cache that nothing reads are 0 x 0.
template <class Scalar>
struct Mamba2Cotangents {
  Matrix<Scalar> out;  ///< [T, D]
  Mamba2Cache<Scalar> cache;
};

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct Mamba2Gradients {
  Matrix<Scalar> hidden;          ///< [T, D]
  Mamba2Weights<Scalar> weights;  ///< numbers without a gradient stay as they are
  Mamba2Cache<Scalar> cache;      ///< of the cache that came in
};

/// The reverse of grouped_norm_of_gated. Throws Error if the sizes disagree.
template <class Scalar>
[[nodiscard]] NormGradients<Scalar> grouped_norm_of_gated_backward(const Matrix<Scalar>& y,
                                                                   const Matrix<Scalar>& z,
                                                                   const Vector<Scalar>& weight,
                                                                   const Scalar& epsilon, Index groups,
                                                                   const Matrix<Scalar>& dy) {
  const Index width = y.cols() / groups;
  NormGradients<Scalar> out{y, weight, z};
  for (Index g = 0; g < groups; ++g) {
    const auto part = [&](const Matrix<Scalar>& m) { return Matrix<Scalar>(m.middleCols(g * width, width)); };
    const Vector<Scalar> scale = weight.segment(g * width, width);
    const NormGradients<Scalar> d = rms_norm_of_gated_backward(part(y), part(z), scale, epsilon, part(dy));
    out.x.middleCols(g * width, width) = d.x;
    out.z.middleCols(g * width, width) = d.z;
    out.weight.segment(g * width, width) = d.weight;
  }
  return out;
}

/// The gradients of the layer on the tokens hidden, [T, D], which follow those in `cache`. `run` evaluates
/// the backward pass of Retention in any form: (Sequence, HeadCotangents) -> HeadGradients. Throws Error if
/// sizes disagree.
template <class Scalar, class Run>
[[nodiscard]] Mamba2Gradients<Scalar> mamba2_backward(const Matrix<Scalar>& hidden,
                                                      const Mamba2Weights<Scalar>& w,
                                                      const Mamba2Cache<Scalar>& cache,
                                                      const Mamba2Cotangents<Scalar>& d, const Run& run) {
  const Mamba2Output<Scalar> out = mamba2(hidden, w, cache);
  const Index Di = w.inner();
  const Index GN = w.group_width();
  Mamba2Gradients<Scalar> g{hidden, w, cache};

  const LinearGradients<Scalar> of_output = linear_backward(out.normed, w.out_proj, d.out);
  g.weights.out_proj = of_output.weight;
  const NormGradients<Scalar> norm =
      grouped_norm_of_gated_backward(out.y, out.z, w.norm, w.epsilon, w.norm_groups, of_output.x);
  g.weights.norm = norm.weight;
  const Vector<Scalar> A = decay_rates<Scalar>(w.A_log);
  const StateSpaceHeads<Scalar> heads = state_space_heads_backward<Scalar>(
      {out.convolved.leftCols(Di), out.delta, A, out.convolved.middleCols(Di, GN),
       out.convolved.rightCols(GN), w.skip, cache.state, w.groups},
      {norm.x, d.cache.state}, run);
  g.weights.A_log = heads.A.cwiseProduct(A);
  g.weights.skip = heads.skip;
  g.cache.state = heads.initial_state;

  Matrix<Scalar> d_convolved(hidden.rows(), w.channels());
  d_convolved << heads.x, heads.B, heads.C;
  const ConvolutionGradients<Scalar> convolution = short_convolution_backward(
      out.mixed, w.conv1d, w.conv1d_bias, cache.convolution, d_convolved, d.cache.convolution);
  g.weights.conv1d = convolution.kernel;
  g.weights.conv1d_bias = convolution.bias;
  g.cache.convolution = convolution.state;
  const Matrix<Scalar> projected = linear(hidden, w.in_proj, points::mamba2_mixer["in_proj"]);
  const Matrix<Scalar> d_dt =
      time_steps_backward<Scalar>(projected.rightCols(w.heads()), w.dt_bias, heads.delta);
  g.weights.dt_bias = d_dt.colwise().sum().transpose();
  Matrix<Scalar> d_projected(hidden.rows(), projected.cols());
  d_projected << norm.z, convolution.x, d_dt;
  const LinearGradients<Scalar> of_input = linear_backward(hidden, w.in_proj, d_projected);
  g.weights.in_proj = of_input.weight;
  g.hidden = of_input.x;
  return g;
}

}  // namespace samestate
