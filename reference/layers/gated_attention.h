#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reference/activations.h"
#include "reference/linear.h"
#include "reference/norms.h"
#include "reference/rotary_embedding.h"
#include "reference/softmax_attention.h"

/// Gated softmax attention, every fourth layer of Qwen3-Next (GATT-1, GATT-2, CFG-9, CFG-10; EQUATIONS 5.7).
namespace samestate {

namespace points {
inline constexpr PointRow kGatedAttentionRows[] = {
    {"rotated", "q or k, after norm and rotation."},
    {"attended", "The heads, after p V and before their gate."},
    {"gated", "The heads, after their gate."},
    {"q_proj", "q and the output gate, after their projection.", PointUse::both},
    {"k_proj", "k, after its projection and before its norm.", PointUse::both},
    {"v_proj", "v, after its projection.", PointUse::both},
    {"o_proj", "The output, after its projection.", PointUse::both},
};
inline constexpr PointTable gated_attention{"gated_attention", PointTier::layer, kGatedAttentionRows};
}  // namespace points

/// Weights and sizes of one layer. D: model width, d: head width.
template <class Scalar>
struct GatedAttentionParameters {
  Index heads = 1;         ///< H
  Index key_heads = 1;     ///< Hk, divides H
  Index head_width = 1;    ///< d; H d need not equal D (4096 and 2048 in Qwen3-Next)
  Index rotary_width = 0;  ///< columns of a head that are rotated: d / 4 in Qwen3-Next
  Scalar theta{1e7};
  Scalar epsilon{1e-6};
  Matrix<Scalar> q_proj;  ///< [H 2d, D]: for each head its query, then its gate
  Matrix<Scalar> k_proj;  ///< [Hk d, D]
  Matrix<Scalar> v_proj;  ///< [Hk d, D]
  Matrix<Scalar> o_proj;  ///< [D, H d]
  Vector<Scalar> q_norm;  ///< [d] zero-centred, one for all heads
  Vector<Scalar> k_norm;  ///< [d]
};

/// The layer's output and the intermediate results. A gate near 0 hides errors before it, so the intermediate
/// results can be compared too.
template <class Scalar>
struct GatedAttentionOutput {
  Matrix<Scalar> out;           ///< [T, D]
  Matrix<Scalar> q;             ///< [T, H d] normalised and rotated
  Matrix<Scalar> gate;          ///< [T, H d] before the logistic function
  Matrix<Scalar> attended;      ///< [T, H d] before the gate
  Matrix<Scalar> gated;         ///< [T, H d] after the gate, before o_proj
  KeyValueCache<Scalar> cache;  ///< keys AFTER norm and rotation, and values: past and present tokens
};

/// Throws Error, with the sizes, unless the weights have the sizes that the parameters state.
template <class Scalar>
void require_consistent(const GatedAttentionParameters<Scalar>& p) {
  const auto require = [](const char* name, const Matrix<Scalar>& w, Index rows, Index cols) {
    if (w.rows() == rows && w.cols() == cols) return;
    throw Error("gated attention: " + std::string(name) + " is " + std::to_string(w.rows()) + " x " +
                std::to_string(w.cols()) + ", the sizes need " + std::to_string(rows) + " x " +
                std::to_string(cols));
  };
  if (p.heads < 1 || p.key_heads < 1 || p.head_width < 1 || p.heads % p.key_heads != 0) {
    throw Error("gated attention: " + std::to_string(p.heads) + " heads of width " +
                std::to_string(p.head_width) + " must be a multiple of " + std::to_string(p.key_heads) +
                " key heads, none of them 0");
  }
  const Index D = p.q_proj.cols();
  require("q_proj", p.q_proj, p.heads * 2 * p.head_width, D);
  require("k_proj", p.k_proj, p.key_heads * p.head_width, D);
  require("v_proj", p.v_proj, p.key_heads * p.head_width, D);
  require("o_proj", p.o_proj, D, p.heads * p.head_width);
  require("q_norm", p.q_norm, p.head_width, 1);
  require("k_norm", p.k_norm, p.head_width, 1);
}

namespace detail {

/// Zero-centred norm of every head, then rotation. x: [T, heads d] -> the same.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> norm_and_rotate(const Matrix<Scalar>& x, Index heads,
                                             const Vector<Scalar>& weight, const Scalar& epsilon,
                                             const RotaryTables<Scalar>& tables) {
  Matrix<Scalar> rows = x.template reshaped<Eigen::RowMajor>(x.rows() * heads, weight.size());
  rows = rms_norm_zero_centred(rows, weight, epsilon);
  const Matrix<Scalar> normed = rows.template reshaped<Eigen::RowMajor>(x.rows(), x.cols());
  return stored(rotate(normed, tables, RotaryPairs::halves, heads), points::gated_attention["rotated"]);
}

/// Attention with heads of d columns: the heads' outputs, stored where a kernel may store them, before the
/// gate and after it.
template <class Scalar, class Attend>
[[nodiscard]] Matrix<Scalar> attended_heads(AttentionInputs<Scalar> x, Attend&& attend) {
  using std::sqrt;
  x.scale = Scalar(1) / Scalar(sqrt(Scalar(static_cast<double>(x.width()))));
  return stored<Scalar>(attend(x), points::gated_attention["attended"]);
}
template <class Scalar>
[[nodiscard]] Matrix<Scalar> gated_heads(const Matrix<Scalar>& attended, const Matrix<Scalar>& gate) {
  return stored<Scalar>(attended.cwiseProduct(logistic(gate)), points::gated_attention["gated"]);
}

}  // namespace detail

/// The layer on the tokens `hidden`, which follow those of `cache`: one call is a prefill, calls of one token
/// are decode, and any split gives the same result (EQ-14). `tables` rotate the positions of these tokens;
/// their width overrides `rotary_width`. `attend` is the form of softmax attention, a function of
/// AttentionInputs. hidden: [T, D]. The caller leaves out padding tokens. Throws Error if the sizes disagree.
template <class Scalar, class Attend>
[[nodiscard]] GatedAttentionOutput<Scalar> gated_attention(const Matrix<Scalar>& hidden,
                                                           const GatedAttentionParameters<Scalar>& p,
                                                           const RotaryTables<Scalar>& tables,
                                                           const KeyValueCache<Scalar>& cache,
                                                           Attend&& attend) {
  require_consistent(p);
  const Index T = hidden.rows();
  const Index d = p.head_width;

  // [T, H 2d] -> one row per head: d columns of the query, then d of its gate.
  const Matrix<Scalar> projected = linear(hidden, p.q_proj, points::gated_attention["q_proj"]);
  const Matrix<Scalar> q_and_gate = projected.template reshaped<Eigen::RowMajor>(T * p.heads, 2 * d);
  const Matrix<Scalar> query_rows = q_and_gate.leftCols(d);
  const Matrix<Scalar> gate_rows = q_and_gate.rightCols(d);
  const Matrix<Scalar> query = query_rows.template reshaped<Eigen::RowMajor>(T, p.heads * d);

  GatedAttentionOutput<Scalar> out;
  out.gate = gate_rows.template reshaped<Eigen::RowMajor>(T, p.heads * d);
  out.q = detail::norm_and_rotate(query, p.heads, p.q_norm, p.epsilon, tables);
  const Matrix<Scalar> key = detail::norm_and_rotate(
      linear(hidden, p.k_proj, points::gated_attention["k_proj"]), p.key_heads, p.k_norm, p.epsilon, tables);
  out.cache = cache.appended(key, linear(hidden, p.v_proj, points::gated_attention["v_proj"]));

  AttentionInputs<Scalar> inputs;
  inputs.q = out.q;
  inputs.k = out.cache.k;
  inputs.v = out.cache.v;
  inputs.heads = p.heads;
  inputs.key_heads = p.key_heads;
  out.attended = detail::attended_heads(std::move(inputs), attend);
  out.gated = detail::gated_heads(out.attended, out.gate);
  out.out = linear(out.gated, p.o_proj, points::gated_attention["o_proj"]);
  return out;
}

/// The same with tables made from theta and `rotary_width`, at the positions that follow those of `cache`.
template <class Scalar, class Attend>
[[nodiscard]] GatedAttentionOutput<Scalar> gated_attention(const Matrix<Scalar>& hidden,
                                                           const GatedAttentionParameters<Scalar>& p,
                                                           const KeyValueCache<Scalar>& cache,
                                                           Attend&& attend) {
  return gated_attention(hidden, p, rotary_tables(cache.tokens(), hidden.rows(), p.rotary_width, p.theta),
                         cache, attend);
}

/// The same with the plain form of attention, from an empty cache unless one is given.
template <class Scalar>
[[nodiscard]] GatedAttentionOutput<Scalar> gated_attention(const Matrix<Scalar>& hidden,
                                                           const GatedAttentionParameters<Scalar>& p,
                                                           const KeyValueCache<Scalar>& cache = {}) {
  return gated_attention(hidden, p, cache,
                         [](const AttentionInputs<Scalar>& x) { return softmax_attention(x); });
}

/// Splits the tokens at `cuts` (not decreasing, in [0, T]) and carries the cache; `out` and `cache` are those
/// of one call. Throws Error for cuts out of order, and as gated_attention does.
template <class Scalar, class Attend>
[[nodiscard]] GatedAttentionOutput<Scalar> gated_attention_resumed(const Matrix<Scalar>& hidden,
                                                                   const GatedAttentionParameters<Scalar>& p,
                                                                   const std::vector<Index>& cuts,
                                                                   Attend&& attend) {
  require_consistent(p);
  const Index T = hidden.rows();
  const Index n = p.heads * p.head_width;
  GatedAttentionOutput<Scalar> whole;
  whole.out.resize(T, hidden.cols());
  for (Matrix<Scalar>* m : {&whole.q, &whole.gate, &whole.attended, &whole.gated}) m->resize(T, n);
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : T;
    if (end < begin || end > T) {
      throw Error("cut " + std::to_string(end) + ": cuts must not decrease and lie in 0.." +
                  std::to_string(T));
    }
    const Matrix<Scalar> segment = hidden.middleRows(begin, end - begin);
    GatedAttentionOutput<Scalar> part = gated_attention(segment, p, whole.cache, attend);
    whole.out.middleRows(begin, end - begin) = part.out;
    whole.q.middleRows(begin, end - begin) = part.q;
    whole.gate.middleRows(begin, end - begin) = part.gate;
    whole.attended.middleRows(begin, end - begin) = part.attended;
    whole.gated.middleRows(begin, end - begin) = part.gated;
    whole.cache = std::move(part.cache);
    begin = end;
  }
  return whole;
}

}  // namespace samestate
