#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reference/layers/resumed.h"
#include "reference/linear.h"
#include "reference/selective_scan_parallel.h"
#include "reference/short_convolution.h"

/// The Mamba mixer (EQUATIONS 5.10, full block; SSM-5, SSM-6, SSM-11), one sequence a call:
///   in_proj -> x, z;  x <- silu(conv(x) + bias);  x_proj -> dt, B, C;  dt_proj;  scan with skip and gate;
///   out_proj.
namespace samestate {

namespace points {
inline constexpr PointRow kMambaMixerRows[] = {
    {"in_proj", "The input of the convolution and the gate z, after their projection.", PointUse::both},
    {"x_proj", "The low rank of the time step, B and C, after their projection.", PointUse::both},
    {"dt_proj", "The time step, after its projection and before softplus.", PointUse::both},
    {"gated", "The output of the scan, after its gate."},
    {"out_proj", "The output, after its projection.", PointUse::both},
};
inline constexpr PointTable mamba_mixer{"mamba_mixer", PointTier::layer, kMambaMixerRows};
}  // namespace points

/// Weights as in public checkpoints, [out, in]. D is the model width, Di the inner width, N the number of
/// states per channel, R the rank of the time step, and W the width of the convolution.
template <class Scalar>
struct MambaWeights {
  Matrix<Scalar> in_proj;      ///< [2 Di, D]: x, then z
  Matrix<Scalar> conv1d;       ///< [Di, W]
  Vector<Scalar> conv1d_bias;  ///< [Di], or empty
  Matrix<Scalar> x_proj;       ///< [R + 2 N, Di]: dt, B, C
  Matrix<Scalar> dt_proj;      ///< [Di, R]
  Vector<Scalar> dt_bias;      ///< [Di]
  Matrix<Scalar> A_log;        ///< [Di, N]
  Vector<Scalar> skip;         ///< [Di], the checkpoint's D
  Matrix<Scalar> out_proj;     ///< [D, Di]
  Vector<Scalar> in_bias;      ///< [2 Di], or empty; upstream code has none (SSM-5)
  Vector<Scalar> out_bias;     ///< [D], or empty
  Discretisation discretisation = Discretisation::euler;

  [[nodiscard]] Index inner() const { return A_log.rows(); }
  [[nodiscard]] Index states() const { return A_log.cols(); }
};

/// The state that decode carries.
template <class Scalar>
struct MambaCache {
  Matrix<Scalar> convolution;  ///< [W - 1, Di], see short_convolution
  Matrix<Scalar> state;        ///< [Di, N]
};

/// Output, cache and intermediate results.
template <class Scalar>
struct MambaOutput {
  Matrix<Scalar> out;    ///< [T, D]
  Matrix<Scalar> mixed;  ///< [T, Di] x, the input of the convolution
  Matrix<Scalar> z;      ///< [T, Di] the gate before silu
  Matrix<Scalar> u;      ///< [T, Di] after the convolution: the input of the scan
  Matrix<Scalar> delta;  ///< [T, Di] after the softplus
  Matrix<Scalar> B;      ///< [T, N]
  Matrix<Scalar> C;      ///< [T, N]
  Matrix<Scalar> y;      ///< [T, Di] output of the scan, with the skip, before the gate
  Matrix<Scalar> gated;  ///< [T, Di] y silu(z)
  MambaCache<Scalar> cache;
};

/// The cache of a sequence that has not begun: all zeros.
template <class Scalar>
[[nodiscard]] MambaCache<Scalar> empty_mamba_cache(const MambaWeights<Scalar>& w) {
  if (w.conv1d.cols() < 1) throw Error("mamba: conv1d is 0 wide; the kernel needs at least 1 column");
  return {empty_convolution_state<Scalar>(w.conv1d.cols(), w.inner()),
          Matrix<Scalar>::Zero(w.inner(), w.states())};
}

/// The layer on the tokens hidden, [T, D], which follow those in `cache`. `run` evaluates the scan in any
/// form: SelectiveScan<Scalar>, Discretisation -> SelectiveScanOutput<Scalar>. T = 0 returns the cache.
/// Throws Error if weights and cache disagree.
template <class Scalar, class Run>
[[nodiscard]] MambaOutput<Scalar> mamba(const Matrix<Scalar>& hidden, const MambaWeights<Scalar>& w,
                                        const MambaCache<Scalar>& cache, const Run& run) {
  const Index Di = w.inner();
  const Index N = w.states();
  const Index R = w.dt_proj.cols();
  if (w.in_proj.rows() != 2 * Di || w.x_proj.rows() != R + 2 * N || w.dt_proj.rows() != Di) {
    throw Error("mamba: A_log gives Di=" + std::to_string(Di) + ", N=" + std::to_string(N) + ", dt_proj is " +
                std::to_string(w.dt_proj.rows()) + " x " + std::to_string(R) +
                " (must be Di x R), in_proj has " + std::to_string(w.in_proj.rows()) +
                " rows (must be 2 Di), x_proj " + std::to_string(w.x_proj.rows()) + " (must be R + 2 N)");
  }
  MambaOutput<Scalar> out;
  const Matrix<Scalar> projected = linear(hidden, w.in_proj, w.in_bias, points::mamba_mixer["in_proj"]);
  out.mixed = projected.leftCols(Di);
  out.z = projected.rightCols(Di);
  Convolved<Scalar> convolved = short_convolution(out.mixed, w.conv1d, w.conv1d_bias, cache.convolution);
  out.u = std::move(convolved.y);
  const Matrix<Scalar> selected = linear(out.u, w.x_proj, points::mamba_mixer["x_proj"]);  // SSM-4, SSM-6
  const Matrix<Scalar> low_rank = selected.leftCols(R);
  out.B = selected.middleCols(R, N);
  out.C = selected.rightCols(N);
  out.delta = time_steps(linear(low_rank, w.dt_proj, points::mamba_mixer["dt_proj"]), w.dt_bias);
  const SelectiveScanOutput<Scalar> scanned = run(
      SelectiveScan<Scalar>{out.u, out.delta, decay_rates(w.A_log), out.B, out.C, w.skip, out.z, cache.state},
      w.discretisation);
  out.y = scanned.y;
  out.gated = stored(scanned.out, points::mamba_mixer["gated"]);
  out.out = linear(out.gated, w.out_proj, w.out_bias, points::mamba_mixer["out_proj"]);
  out.cache = {std::move(convolved.state), scanned.state};
  return out;
}

/// The layer with the scan evaluated token by token.
template <class Scalar>
[[nodiscard]] MambaOutput<Scalar> mamba(const Matrix<Scalar>& hidden, const MambaWeights<Scalar>& w,
                                        const MambaCache<Scalar>& cache) {
  return mamba(hidden, w, cache, selective_scan_recurrent<Scalar>);
}

/// The layer split at `cuts`, as resumed_layer does it.
template <class Scalar, class Run>
[[nodiscard]] MambaOutput<Scalar> mamba_resumed(const Matrix<Scalar>& hidden, const MambaWeights<Scalar>& w,
                                                MambaCache<Scalar> cache, const std::vector<Index>& cuts,
                                                const Run& run) {
  return resumed_layer<MambaOutput<Scalar>>(
      hidden, w.out_proj.rows(), std::move(cache), cuts,
      [&](const Matrix<Scalar>& part, const MambaCache<Scalar>& before) {
        return mamba(part, w, before, run);
      });
}

}  // namespace samestate
