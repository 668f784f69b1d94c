#pragma once

#include <utility>

#include "reference/backward/linear.h"
#include "reference/backward/selective_scan.h"
#include "reference/backward/short_convolution.h"
#include "reference/layers/mamba.h"

/// The backward pass of the Mamba mixer: each step of reference/layers/mamba.h reversed.
namespace samestate {

/// The cotangents of the layer's outputs; parts of the cache that nothing reads are 0 x 0.
template <class Scalar>
struct MambaCotangents {
  Matrix<Scalar> out;  ///< [T, D]
  MambaCache<Scalar> cache;
};

/// The gradients, in the shapes of the inputs.
template <class Scalar>
struct MambaGradients {
  Matrix<Scalar> hidden;         ///< [T, D]
  MambaWeights<Scalar> weights;  ///< a bias that is absent stays empty
  MambaCache<Scalar> cache;      ///< of the cache that came in
};

/// The gradients of the layer on the tokens hidden, [T, D], which follow those in `cache`. Throws Error if
/// sizes disagree.
template <class Scalar>
[[nodiscard]] MambaGradients<Scalar> mamba_backward(const Matrix<Scalar>& hidden,
                                                    const MambaWeights<Scalar>& w,
                                                    const MambaCache<Scalar>& cache,
                                                    const MambaCotangents<Scalar>& d) {
  const MambaOutput<Scalar> out = mamba(hidden, w, cache);
  const Index R = w.dt_proj.cols();
  MambaGradients<Scalar> g{hidden, w, cache};
  const auto bias = [](Vector<Scalar>& into, const Vector<Scalar>& from) {
    if (into.size() != 0) into = from;
  };

  const LinearGradients<Scalar> of_output = linear_backward(out.gated, w.out_proj, d.out);
  g.weights.out_proj = of_output.weight;
  bias(g.weights.out_bias, of_output.bias);
  const Matrix<Scalar> A = decay_rates(w.A_log);
  const SelectiveScanGradients<Scalar> scan =
      selective_scan_backward<Scalar>({out.u, out.delta, A, out.B, out.C, w.skip, out.z, cache.state},
                                      w.discretisation, {of_output.x, d.cache.state});
  g.weights.A_log = scan.A.cwiseProduct(A);
  g.weights.skip = scan.skip;
  g.cache.state = scan.initial_state;

  const Matrix<Scalar> selected = linear(out.u, w.x_proj, points::mamba_mixer["x_proj"]);
  const Matrix<Scalar> low_rank = selected.leftCols(R);
  const Matrix<Scalar> dt = linear(low_rank, w.dt_proj, points::mamba_mixer["dt_proj"]);
  const LinearGradients<Scalar> of_dt =
      linear_backward(low_rank, w.dt_proj, time_steps_backward(dt, w.dt_bias, scan.delta));
  g.weights.dt_proj = of_dt.weight;
  g.weights.dt_bias = of_dt.bias;
  Matrix<Scalar> d_selected(hidden.rows(), selected.cols());
  d_selected << of_dt.x, scan.B, scan.C;
  const LinearGradients<Scalar> of_x = linear_backward(out.u, w.x_proj, d_selected);
  g.weights.x_proj = of_x.weight;

  const ConvolutionGradients<Scalar> convolution = short_convolution_backward<Scalar>(
      out.mixed, w.conv1d, w.conv1d_bias, cache.convolution, scan.u + of_x.x, d.cache.convolution);
  g.weights.conv1d = convolution.kernel;
  g.weights.conv1d_bias = convolution.bias;
  g.cache.convolution = convolution.state;
  Matrix<Scalar> d_projected(hidden.rows(), 2 * w.inner());
  d_projected << convolution.x, scan.z;
  const LinearGradients<Scalar> of_input = linear_backward(hidden, w.in_proj, d_projected);
  g.weights.in_proj = of_input.weight;
  bias(g.weights.in_bias, of_input.bias);
  g.hidden = of_input.x;
  return g;
}

}  // namespace samestate
