#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/layers/resumed.h"
#include "reference/linear.h"
#include "reference/norms.h"
#include "reference/selective_scan.h"
#include "reference/short_convolution.h"
#include "reference/state_space_duality.h"

/// The Mamba-2 mixer (EQUATIONS 5.10), one sequence per call:
///   in_proj -> z, (x, B, C), dt;  one convolution with bias and silu over (x, B, C);  Delta = softplus(dt +
///   bias);  state space duality with one scalar rate per head;  RMSNorm(y silu(z)), gate first;  out_proj.
namespace samestate {

namespace points {
inline constexpr PointRow kMamba2MixerRows[] = {
    {"in_proj", "z, the input of the convolution and the time step, after their projection.", PointUse::both},
    {"y", "The heads, after the state space duality."},
    {"normed", "The heads, after their gate and norm."},
    {"out_proj", "The output, after its projection.", PointUse::both},
};
inline constexpr PointTable mamba2_mixer{"mamba2_mixer", PointTier::layer, kMamba2MixerRows};
}  // namespace points

/// Weights as in public checkpoints, [out, in]. D is the model width, Di = H P the inner width, N the number
/// of states, G the groups of B and C, and W the width of the convolution.
template <class Scalar>
struct Mamba2Weights {
  Index groups = 1;            ///< G, divides H
  Matrix<Scalar> in_proj;      ///< [2 Di + 2 G N + H, D]: z, x, B, C, dt
  Matrix<Scalar> conv1d;       ///< [Di + 2 G N, W]
  Vector<Scalar> conv1d_bias;  ///< [Di + 2 G N], or empty
  Vector<Scalar> dt_bias;      ///< [H]
  Vector<Scalar> A_log;        ///< [H]
  Vector<Scalar> skip;         ///< [H], the checkpoint's D
  Vector<Scalar> norm;         ///< [Di]
  Matrix<Scalar> out_proj;     ///< [D, Di]
  Scalar epsilon{1e-5};        ///< epsilon of the norm
  Index norm_groups = 1;       ///< parts of Di that are normalised separately; public code uses both 1 and G

  [[nodiscard]] Index heads() const { return A_log.size(); }
  [[nodiscard]] Index inner() const { return norm.size(); }
  [[nodiscard]] Index channels() const { return conv1d.rows(); }  ///< channels of the convolution
  [[nodiscard]] Index group_width() const { return (channels() - inner()) / 2; }  ///< G N
};

/// The state that decode carries.
template <class Scalar>
struct Mamba2Cache {
  Matrix<Scalar> convolution;  ///< [W - 1, Di + 2 G N], see short_convolution
  Matrix<Scalar> state;        ///< [H P, N], heads one below the other
};

/// Output, cache and intermediate results. The norm hides errors of scale, so compare y and the state as well
/// (EQUATIONS 8.1).
template <class Scalar>
struct Mamba2Output {
  Matrix<Scalar> out;        ///< [T, D]
  Matrix<Scalar> z;          ///< [T, Di] the gate before silu
  Matrix<Scalar> mixed;      ///< [T, Di + 2 G N] x, B, C: the input of the convolution
  Matrix<Scalar> convolved;  ///< [T, Di + 2 G N]
  Matrix<Scalar> delta;      ///< [T, H] after the softplus
  Matrix<Scalar> y;          ///< [T, Di] output of the state space, with the skip, before gate and norm
  Matrix<Scalar> normed;     ///< [T, Di] after gate and norm
  Mamba2Cache<Scalar> cache;
};

namespace detail {

template <class Scalar>
void require_mamba2(const Mamba2Weights<Scalar>& w) {
  const Index H = w.heads();
  const Index GN = w.group_width();
  if (H < 1 || w.groups < 1 || w.inner() % H != 0 || H % w.groups != 0 || w.channels() <= w.inner() ||
      (w.channels() - w.inner()) % (2 * w.groups) != 0 || w.in_proj.rows() != 2 * w.inner() + 2 * GN + H ||
      w.conv1d.cols() < 1 || w.norm_groups < 1 || w.inner() % w.norm_groups != 0) {
    throw Error("mamba2: " + std::to_string(H) + " heads, " + std::to_string(w.groups) +
                " groups, inner width " + std::to_string(w.inner()) + " in " + std::to_string(w.norm_groups) +
                " norm groups, conv1d " + std::to_string(w.channels()) + " x " +
                std::to_string(w.conv1d.cols()) + ", in_proj of " + std::to_string(w.in_proj.rows()) +
                " rows; needs G | H | Di, conv1d of Di + 2 G N rows and in_proj of 2 Di + 2 G N + H");
  }
}

}  // namespace detail

/// The cache of a sequence that has not begun: all zeros. Throws Error if the weights disagree.
template <class Scalar>
[[nodiscard]] Mamba2Cache<Scalar> empty_mamba2_cache(const Mamba2Weights<Scalar>& w) {
  detail::require_mamba2(w);
  return {empty_convolution_state<Scalar>(w.conv1d.cols(), w.channels()),
          Matrix<Scalar>::Zero(w.inner(), w.group_width() / w.groups)};
}

/// rms_norm(y silu(z)) weight, over each of `groups` equal parts of the columns. y, z: [T, Di]. Throws Error
/// if the sizes disagree or groups does not divide the columns.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> grouped_norm_of_gated(const Matrix<Scalar>& y, const Matrix<Scalar>& z,
                                                   const Vector<Scalar>& weight, const Scalar& epsilon,
                                                   Index groups) {
  if (groups < 1 || y.cols() % groups != 0 || weight.size() != y.cols() || z.cols() != y.cols()) {
    throw Error("norm: " + std::to_string(groups) + " groups of " + std::to_string(y.cols()) +
                " columns, the gate has " + std::to_string(z.cols()) + ", the weight " +
                std::to_string(weight.size()));
  }
  const Index width = y.cols() / groups;
  Matrix<Scalar> normed(y.rows(), y.cols());
  for (Index g = 0; g < groups; ++g) {
    const Matrix<Scalar> part = y.middleCols(g * width, width);
    const Matrix<Scalar> gate = z.middleCols(g * width, width);
    const Vector<Scalar> scale = weight.segment(g * width, width);
    normed.middleCols(g * width, width) = rms_norm_of_gated(part, gate, scale, epsilon);
  }
  return normed;
}

/// The layer on the tokens hidden, [T, D], which follow those in `cache`. `run` evaluates one head in any
/// form: StateSpaceHead<Scalar> -> StateSpaceOutput<Scalar>. T = 0 returns the cache. Throws Error if weights
/// and cache disagree.
template <class Scalar, class Run>
[[nodiscard]] Mamba2Output<Scalar> mamba2(const Matrix<Scalar>& hidden, const Mamba2Weights<Scalar>& w,
                                          const Mamba2Cache<Scalar>& cache, const Run& run) {
  detail::require_mamba2(w);
  const Index Di = w.inner();
  const Index GN = w.group_width();
  Mamba2Output<Scalar> out;
  const Matrix<Scalar> projected = linear(hidden, w.in_proj, points::mamba2_mixer["in_proj"]);
  out.z = projected.leftCols(Di);
  out.mixed = projected.middleCols(Di, w.channels());
  const Matrix<Scalar> dt = projected.rightCols(w.heads());
  Convolved<Scalar> convolved = short_convolution(out.mixed, w.conv1d, w.conv1d_bias, cache.convolution);
  out.convolved = std::move(convolved.y);
  out.delta = time_steps(dt, w.dt_bias);
  const StateSpaceOutput<Scalar> heads = state_space_heads(
      StateSpaceHeads<Scalar>{out.convolved.leftCols(Di), out.delta, decay_rates<Scalar>(w.A_log),
                              out.convolved.middleCols(Di, GN), out.convolved.rightCols(GN), w.skip,
                              cache.state, w.groups},
      run);
  out.y = stored(heads.y, points::mamba2_mixer["y"]);
  out.normed = stored(grouped_norm_of_gated(out.y, out.z, w.norm, w.epsilon, w.norm_groups),
                      points::mamba2_mixer["normed"]);
  out.out = linear(out.normed, w.out_proj, points::mamba2_mixer["out_proj"]);
  out.cache = {std::move(convolved.state), heads.state};
  return out;
}

/// The layer with every head evaluated token by token.
template <class Scalar>
[[nodiscard]] Mamba2Output<Scalar> mamba2(const Matrix<Scalar>& hidden, const Mamba2Weights<Scalar>& w,
                                          const Mamba2Cache<Scalar>& cache) {
  return mamba2(hidden, w, cache, state_space_recurrent<Scalar>);
}

/// The layer split at `cuts`, as resumed_layer does it.
template <class Scalar, class Run>
[[nodiscard]] Mamba2Output<Scalar> mamba2_resumed(const Matrix<Scalar>& hidden,
                                                  const Mamba2Weights<Scalar>& w, Mamba2Cache<Scalar> cache,
                                                  const std::vector<Index>& cuts, const Run& run) {
  return resumed_layer<Mamba2Output<Scalar>>(
      hidden, w.out_proj.rows(), std::move(cache), cuts,
      [&](const Matrix<Scalar>& part, const Mamba2Cache<Scalar>& before) {
        return mamba2(part, w, before, run);
      });
}

}  // namespace samestate
