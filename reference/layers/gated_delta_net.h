#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "reference/contract.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/l2norm.h"
#include "reference/linear.h"
#include "reference/norms.h"
#include "reference/short_convolution.h"

/// The Gated DeltaNet layer of Qwen3-Next (EQUATIONS 5.6), one sequence a call:
///   project -> one short convolution over (q, k, v) -> l2norm, gates -> gated delta rule -> norm gated by z
///   -> out.
namespace samestate {

namespace points {
inline constexpr PointRow kGatedDeltaNetRows[] = {
    {"in_proj_qkvz", "q, k, v and the output gate z, after their projection.", PointUse::both, "input"},
    {"in_proj_ba", "The inputs of write strength and decay, after their projection.", PointUse::both,
     "input"},
    {"core", "The output of a value head, after the rule."},
    {"normalised_q", "q of a head, after the convolution and its l2norm."},
    {"normalised_k", "k of a head, after the convolution and its l2norm."},
    {"gated", "The heads, after their norm and gate."},
    {"out_proj", "The output, after its projection.", PointUse::both},
};
inline constexpr PointTable gated_delta_net{"gated_delta_net", PointTier::layer, kGatedDeltaNetRows};
}  // namespace points

/// Order of the rows of the input projections (GDN-2, GDN-23, GDN-24). Checkpoints are grouped by key head:
/// for each key head its q, its k, then v and z of the value heads that it serves; in the other projection b,
/// then a. The flat layout has all of q, k, v and z; all of b, then all of a.
enum class ProjectionLayout { grouped, flat };

/// Sizes: Hk key heads of width dk and Hv value heads (a multiple of Hk) of width dv.
struct GatedDeltaNetShape {
  Index key_heads = 1;
  Index value_heads = 1;
  Index key_width = 1;
  Index value_width = 1;
  ProjectionLayout layout = ProjectionLayout::grouped;
  HeadMap head_map = HeadMap::interleaved;  ///< `tiled` is the document's error (GDN-9): a negative control

  [[nodiscard]] Index keys() const { return key_heads * key_width; }
  [[nodiscard]] Index values() const { return value_heads * value_width; }
  [[nodiscard]] Index channels() const { return 2 * keys() + values(); }  ///< channels of the convolution
  /// The key head that serves value head h (GDN-26).
  [[nodiscard]] Index key_head(Index h) const {
    return head_map == HeadMap::interleaved ? h / (value_heads / key_heads) : h % key_heads;
  }
};

/// Weights as in public checkpoints, [out, in]. D: hidden width, W: kernel width.
template <class Scalar>
struct GatedDeltaNetWeights {
  Matrix<Scalar> in_proj_qkvz;  ///< [2 Hk dk + 2 Hv dv, D]
  Matrix<Scalar> in_proj_ba;    ///< [2 Hv, D]
  Matrix<Scalar> conv1d;        ///< [2 Hk dk + Hv dv, W], channels flat (q, k, v) in both layouts
  Vector<Scalar> A_log;         ///< [Hv]
  Vector<Scalar> dt_bias;       ///< [Hv]
  Vector<Scalar> norm;          ///< [dv], shared by the heads; the weight itself and not 1 + w
  Matrix<Scalar> out_proj;      ///< [D, Hv dv]
  Scalar epsilon{1e-6};         ///< epsilon of the gated norm
};

/// The state that decode carries.
template <class Scalar>
struct GatedDeltaNetCache {
  Matrix<Scalar> convolution;         ///< [W - 1, channels], see short_convolution
  std::vector<Matrix<Scalar>> state;  ///< a [dk, dv] for each value head
};

/// The projections of the hidden states, with heads side by side, before the convolution.
template <class Scalar>
struct GatedDeltaNetProjections {
  Matrix<Scalar> mixed;  ///< [T, channels] q, k, v: what the convolution reads
  Matrix<Scalar> z;      ///< [T, Hv dv]
  Matrix<Scalar> b;      ///< [T, Hv]
  Matrix<Scalar> a;      ///< [T, Hv]
};

/// Output, cache and intermediate results. The norm hides errors of scale, so compare `core` and the states
/// as well (EQUATIONS 8.1).
template <class Scalar>
struct GatedDeltaNetOutput {
  Matrix<Scalar> y;      ///< [T, D]
  Matrix<Scalar> mixed;  ///< [T, channels] the convolution's input
  Matrix<Scalar> z;      ///< [T, Hv dv] the gate before silu
  Matrix<Scalar> g;      ///< [T, Hv] log-decay
  Matrix<Scalar> beta;   ///< [T, Hv]
  Matrix<Scalar> core;   ///< [T, Hv dv] output of the rule, before the norm
  Matrix<Scalar> gated;  ///< [T, Hv dv] after norm and gate
  GatedDeltaNetCache<Scalar> cache;
};

namespace detail {

template <class Scalar>
void require_gated_delta_net(const GatedDeltaNetShape& s, const GatedDeltaNetWeights<Scalar>& w) {
  if (s.key_heads < 1 || s.key_width < 1 || s.value_width < 1 || s.value_heads < 1 ||
      s.value_heads % s.key_heads != 0) {
    throw Error("gated_delta_net: " + std::to_string(s.value_heads) + " value heads on " +
                std::to_string(s.key_heads) + " key heads, widths " + std::to_string(s.key_width) + " and " +
                std::to_string(s.value_width) +
                ": value heads must be a multiple of key heads, all at least 1");
  }
  const auto require = [](const char* name, Index is, Index wanted) {
    if (is != wanted) {
      throw Error("gated_delta_net: " + std::string(name) + " has extent " + std::to_string(is) +
                  ", needed " + std::to_string(wanted));
    }
  };
  require("in_proj_qkvz", w.in_proj_qkvz.rows(), 2 * s.keys() + 2 * s.values());
  require("in_proj_ba", w.in_proj_ba.rows(), 2 * s.value_heads);
  require("in_proj_ba", w.in_proj_ba.cols(), w.in_proj_qkvz.cols());
  require("conv1d", w.conv1d.rows(), s.channels());
  if (w.conv1d.cols() < 1)
    throw Error("gated_delta_net: conv1d is 0 wide; the kernel needs at least 1 column");
  require("A_log", w.A_log.size(), s.value_heads);
  require("dt_bias", w.dt_bias.size(), s.value_heads);
  require("norm", w.norm.size(), s.value_width);
  require("out_proj", w.out_proj.cols(), s.values());
}

}  // namespace detail

/// The cache of a sequence that has not begun: all zeros (GDN-10). Throws Error if weights and shape
/// disagree.
template <class Scalar>
[[nodiscard]] GatedDeltaNetCache<Scalar> empty_gated_delta_net_cache(
    const GatedDeltaNetShape& shape, const GatedDeltaNetWeights<Scalar>& weights) {
  detail::require_gated_delta_net(shape, weights);
  return {empty_convolution_state<Scalar>(weights.conv1d.cols(), shape.channels()),
          std::vector<Matrix<Scalar>>(static_cast<std::size_t>(shape.value_heads),
                                      Matrix<Scalar>::Zero(shape.key_width, shape.value_width))};
}

/// The map from the flat layout to the grouped one (GDN-23, GDN-24): row i of a flat weight is row qkvz[i],
/// or ba[i], of the grouped weight.
struct ProjectionRows {
  std::vector<Index> qkvz;
  std::vector<Index> ba;
};

[[nodiscard]] inline ProjectionRows grouped_rows(const GatedDeltaNetShape& shape) {
  const Index served = shape.value_heads / shape.key_heads;
  const Index values = served * shape.value_width;       // of one key head
  const Index group = 2 * shape.key_width + 2 * values;  // rows of one key head
  ProjectionRows rows;
  const auto block = [&](std::vector<Index>& into, Index stride, Index first, Index count) {
    for (Index head = 0; head < shape.key_heads; ++head) {
      for (Index i = 0; i < count; ++i) into.push_back(head * stride + first + i);
    }
  };
  block(rows.qkvz, group, 0, shape.key_width);                    // q
  block(rows.qkvz, group, shape.key_width, shape.key_width);      // k
  block(rows.qkvz, group, 2 * shape.key_width, values);           // v
  block(rows.qkvz, group, 2 * shape.key_width + values, values);  // z
  block(rows.ba, 2 * served, 0, served);                          // b
  block(rows.ba, 2 * served, served, served);                     // a
  return rows;
}

/// Splits the two projections. qkvz: [T, 2 Hk dk + 2 Hv dv], ba: [T, 2 Hv]. Throws Error for other widths.
template <class Scalar>
[[nodiscard]] GatedDeltaNetProjections<Scalar> split_projections(const Matrix<Scalar>& qkvz,
                                                                 const Matrix<Scalar>& ba,
                                                                 const GatedDeltaNetShape& shape) {
  if (qkvz.cols() != 2 * shape.keys() + 2 * shape.values() || ba.cols() != 2 * shape.value_heads) {
    throw Error("gated_delta_net: projections of " + std::to_string(qkvz.cols()) + " and " +
                std::to_string(ba.cols()) + " columns, needed " +
                std::to_string(2 * shape.keys() + 2 * shape.values()) + " and " +
                std::to_string(2 * shape.value_heads));
  }
  Matrix<Scalar> flat = qkvz;
  Matrix<Scalar> flat_ba = ba;
  if (shape.layout == ProjectionLayout::grouped) {
    const ProjectionRows rows = grouped_rows(shape);
    for (Index i = 0; i < flat.cols(); ++i) flat.col(i) = qkvz.col(rows.qkvz[static_cast<std::size_t>(i)]);
    for (Index i = 0; i < flat_ba.cols(); ++i) flat_ba.col(i) = ba.col(rows.ba[static_cast<std::size_t>(i)]);
  }
  return {flat.leftCols(shape.channels()), flat.rightCols(shape.values()),
          flat_ba.leftCols(shape.value_heads), flat_ba.rightCols(shape.value_heads)};
}

/// The projections of the hidden states x, [T, D]. `real` is empty, or [T] with false for padding, whose
/// hidden states are set to zero first. Throws Error if sizes disagree.
template <class Scalar>
[[nodiscard]] GatedDeltaNetProjections<Scalar> project_hidden(const Matrix<Scalar>& x,
                                                              const Matrix<Scalar>& in_proj_qkvz,
                                                              const Matrix<Scalar>& in_proj_ba,
                                                              const GatedDeltaNetShape& shape,
                                                              const std::vector<bool>& real) {
  if (!real.empty() && static_cast<Index>(real.size()) != x.rows()) {
    throw Error("gated_delta_net: a mask of " + std::to_string(real.size()) + " tokens on " +
                std::to_string(x.rows()));
  }
  Matrix<Scalar> hidden = x;
  for (std::size_t t = 0; t < real.size(); ++t) {
    if (!real[t]) hidden.row(static_cast<Index>(t)).setZero();
  }
  return split_projections(linear(hidden, in_proj_qkvz, points::gated_delta_net["in_proj_qkvz"]),
                           linear(hidden, in_proj_ba, points::gated_delta_net["in_proj_ba"]), shape);
}

/// The rule on value head h, in the form of `run`, with the layer's scale (GDN-33). q, k: [T, dk],
/// normalised, of the key head that serves it. Throws Error if the state has another size.
template <class Scalar, class Run>
[[nodiscard]] Trajectory<Scalar> run_value_head(const GatedDeltaNetShape& shape, Index h,
                                                Sequence<Scalar> head, const Run& run) {
  using std::sqrt;
  const Matrix<Scalar>& state = head.initial_state;
  const Index dk = shape.key_width;
  const Index dv = shape.value_width;
  if (state.rows() != dk || state.cols() != dv) {
    throw Error("gated_delta_net: state " + std::to_string(h) + " is " + std::to_string(state.rows()) +
                " x " + std::to_string(state.cols()) + ", needed " + std::to_string(dk) + " x " +
                std::to_string(dv));
  }
  head.scale = Scalar(1) / sqrt(Scalar(static_cast<double>(dk)));
  Trajectory<Scalar> core = run(head);
  core.o = stored(std::move(core.o), points::gated_delta_net["core"]);
  return core;
}

/// The convolution state as public code stores it: the last W inputs as columns, [channels, W], with zeros
/// before the first input (CONV-5). Its oldest column is never read again, which is why the cache here holds
/// W - 1. previous: [channels, W], mixed: [T, channels]. Throws Error if the channels differ.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stored_convolution_state(const Matrix<Scalar>& previous,
                                                      const Matrix<Scalar>& mixed) {
  if (previous.rows() != mixed.cols())
    throw Error("gated_delta_net: the stored convolution state and its inputs differ in channels");
  Matrix<Scalar> history(previous.rows(), previous.cols() + mixed.rows());
  history << previous, mixed.transpose();
  return history.rightCols(previous.cols());
}

/// The layer on the tokens x, [T, D], which follow those in `cache`. `run` evaluates the rule on one head, in
/// any form: Sequence<Scalar> -> Trajectory<Scalar>. `real` is empty, or [T] with false for padding, whose
/// hidden states are set to zero before the projections. That makes LEFT padding vanish from the real outputs
/// and the caches. After right padding the cache is not that of the last real token: the state has decayed
/// further, and the convolution has stored the padding. T = 0 returns the cache. Throws Error if shape,
/// weights, cache and mask disagree.
template <class Scalar, class Run>
[[nodiscard]] GatedDeltaNetOutput<Scalar> gated_delta_net(
    const Matrix<Scalar>& x, const GatedDeltaNetWeights<Scalar>& weights, const GatedDeltaNetShape& shape,
    const GatedDeltaNetCache<Scalar>& cache, const Run& run, const std::vector<bool>& real = {}) {
  detail::require_gated_delta_net(shape, weights);
  if (static_cast<Index>(cache.state.size()) != shape.value_heads) {
    throw Error("gated_delta_net: the cache holds " + std::to_string(cache.state.size()) +
                " states, needed " + std::to_string(shape.value_heads));
  }
  const GatedDeltaNetProjections<Scalar> p =
      project_hidden(x, weights.in_proj_qkvz, weights.in_proj_ba, shape, real);
  const Convolved<Scalar> qkv =
      short_convolution(p.mixed, weights.conv1d, {}, cache.convolution);  // CONV-2, CONV-3
  GatedDeltaNetOutput<Scalar> out;
  out.mixed = p.mixed;
  out.z = p.z;
  out.g = log_decay(p.a, weights.A_log, weights.dt_bias);  // GDN-29
  out.beta = write_strength(p.b);                          // GDN-30
  out.cache.convolution = qkv.state;

  const Index dk = shape.key_width;
  const Index dv = shape.value_width;
  out.core.resize(x.rows(), shape.values());
  out.gated.resize(x.rows(), shape.values());
  for (Index h = 0; h < shape.value_heads; ++h) {
    const Index from = shape.key_head(h) * dk;
    Sequence<Scalar> head;
    head.q = stored(l2norm<Scalar>(qkv.y.middleCols(from, dk)),
                    points::gated_delta_net["normalised_q"]);  // GDN-32
    head.k = stored(l2norm<Scalar>(qkv.y.middleCols(shape.keys() + from, dk)),
                    points::gated_delta_net["normalised_k"]);  // GDN-32
    head.v = qkv.y.middleCols(2 * shape.keys() + h * dv, dv);
    head.g = out.g.col(h);
    head.beta = out.beta.col(h);
    head.initial_state = cache.state[static_cast<std::size_t>(h)];
    const Trajectory<Scalar> core = run_value_head(shape, h, std::move(head), run);
    out.core.middleCols(h * dv, dv) = core.o;
    out.gated.middleCols(h * dv, dv) =
        stored(rms_norm_gated<Scalar>(out.core.middleCols(h * dv, dv), p.z.middleCols(h * dv, dv),
                                      weights.norm, weights.epsilon),
               points::gated_delta_net["gated"]);  // RMS-1, RMS-8
    out.cache.state.push_back(core.state);
  }
  // GDN-43; GDN-51 corrected: the gated vector is projected.
  out.y = linear(out.gated, weights.out_proj, points::gated_delta_net["out_proj"]);
  return out;
}

}  // namespace samestate
