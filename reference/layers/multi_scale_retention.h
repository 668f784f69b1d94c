#pragma once

#include <cmath>
#include <string>

#include "reference/linear.h"
#include "reference/retnet.h"

namespace samestate {

namespace points {
inline constexpr PointRow kMultiScaleRetentionRows[] = {
    {"k_proj", "k, after its projection and before its scale.", PointUse::both},
    {"rotated_q", "q, after its rotation.", PointUse::stored, "query"},
    {"q_proj", "q, after its projection.", PointUse::both, "query"},
    {"rotated_k", "k, after its scale and rotation."},
    {"gated", "The heads, after their norm and gate."},
    {"v_proj", "v, after its projection.", PointUse::both},
    {"core", "The output of a head, after its retention."},
    {"out_proj", "The output, after its projection.", PointUse::both, "output"},
    {"g_proj", "The output gate, after its projection and before silu.", PointUse::both, "output"},
};
inline constexpr PointTable multi_scale_retention{"multi_scale_retention", PointTier::layer,
                                                  kMultiScaleRetentionRows};
}  // namespace points

/// Weights of multi-scale retention, [out, in], without biases. H is the number of heads, D the hidden width,
/// and H dv the value width.
template <class Scalar>
struct MultiScaleRetentionWeights {
  Index heads = 1;
  Matrix<Scalar> q_proj;    ///< [H dk, D]
  Matrix<Scalar> k_proj;    ///< [H dk, D]
  Matrix<Scalar> v_proj;    ///< [H dv, D]
  Matrix<Scalar> g_proj;    ///< [H dv, D] the gate
  Matrix<Scalar> out_proj;  ///< [D, H dv]
  Scalar epsilon{1e-6};     ///< epsilon of the norm; 0 when forms are compared with one another
};

/// The output, and the values before the norm, which hides scales (EQUATIONS 8.1).
template <class Scalar>
struct MultiScaleRetentionOutput {
  Matrix<Scalar> y;       ///< [T, D]
  Matrix<Scalar> core;    ///< [T, H dv] before the norm
  Matrix<Scalar> normed;  ///< [T, H dv] after the norm, before the gate
};

/// q and k after projection and rotation, as the heads read them.
template <class Scalar>
struct RotatedKeys {
  Matrix<Scalar> q;  ///< [T, H dk]
  Matrix<Scalar> k;  ///< [T, H dk], scaled by dk^{-1/2}
};

/// q and k of a layer with H heads; the first token of x has position `first`.
template <class Scalar>
[[nodiscard]] RotatedKeys<Scalar> rotated_keys(const Matrix<Scalar>& x, const Matrix<Scalar>& q_proj,
                                               const Matrix<Scalar>& k_proj, Index H, Index first) {
  using std::sqrt;
  const Index dk = q_proj.rows() / H;
  const RotaryTables<Scalar> tables = retention_rotation<Scalar>(first, x.rows(), dk);
  const Matrix<Scalar> scaled = linear(x, k_proj, points::multi_scale_retention["k_proj"]) /
                                Scalar(sqrt(Scalar(static_cast<double>(dk))));
  return {stored(rotate(linear(x, q_proj, points::multi_scale_retention["q_proj"]), tables,
                        RotaryPairs::interleaved, H),
                 points::multi_scale_retention["rotated_q"]),
          stored(rotate(scaled, tables, RotaryPairs::interleaved, H),
                 points::multi_scale_retention["rotated_k"])};
}

/// norm(core) silu(gate), the input of out_proj; `gate` is before silu, and both are [T, H dv].
template <class Scalar>
[[nodiscard]] Matrix<Scalar> gated_retention(const Matrix<Scalar>& normed, const Matrix<Scalar>& gate) {
  return stored<Scalar>(normed.cwiseProduct(silu(gate)), points::multi_scale_retention["gated"]);
}

/// Multi-scale retention of one sequence: q and k are rotated and k is scaled by dk^{-1/2}; head h has the
/// decay 1 - 2^{-5-h}; each head is normalised, multiplied by silu of the gate, and projected by out_proj. x:
/// [T, D], whose first token has position `first`. `run` evaluates a head in any form, normalised or not, and
/// carries its state if it has one: (q, k, v, gamma, h) -> [T, dv]. Throws Error if the weights disagree.
template <class Scalar, class Run>
[[nodiscard]] MultiScaleRetentionOutput<Scalar> multi_scale_retention(
    const Matrix<Scalar>& x, const MultiScaleRetentionWeights<Scalar>& w, const Run& run, Index first = 0) {
  const Index H = w.heads;
  if (H < 1 || w.q_proj.rows() % H != 0 || w.v_proj.rows() % H != 0 || w.k_proj.rows() != w.q_proj.rows() ||
      w.g_proj.rows() != w.v_proj.rows()) {
    throw Error("multi_scale_retention: " + std::to_string(H) + " heads, q, k, v, g of " +
                std::to_string(w.q_proj.rows()) + ", " + std::to_string(w.k_proj.rows()) + ", " +
                std::to_string(w.v_proj.rows()) + ", " + std::to_string(w.g_proj.rows()) +
                " rows: heads must divide them, q as k, g as v");
  }
  const Index dk = w.q_proj.rows() / H;
  const Index dv = w.v_proj.rows() / H;
  const auto [q, k] = rotated_keys(x, w.q_proj, w.k_proj, H, first);
  const Matrix<Scalar> v = linear(x, w.v_proj, points::multi_scale_retention["v_proj"]);
  MultiScaleRetentionOutput<Scalar> out;
  out.core.resize(x.rows(), H * dv);
  out.normed.resize(x.rows(), H * dv);
  for (Index h = 0; h < H; ++h) {
    const Scalar gamma = Scalar(1) - Scalar(std::ldexp(1.0, static_cast<int>(-5 - h)));
    const Matrix<Scalar> core =
        run(Matrix<Scalar>(q.middleCols(h * dk, dk)), Matrix<Scalar>(k.middleCols(h * dk, dk)),
            Matrix<Scalar>(v.middleCols(h * dv, dv)), gamma, h);
    out.core.middleCols(h * dv, dv) = stored(core, points::multi_scale_retention["core"]);
    out.normed.middleCols(h * dv, dv) = retention_norm<Scalar>(out.core.middleCols(h * dv, dv), w.epsilon);
  }
  out.y = linear(gated_retention(out.normed, linear(x, w.g_proj, points::multi_scale_retention["g_proj"])),
                 w.out_proj, points::multi_scale_retention["out_proj"]);
  return out;
}

}  // namespace samestate
