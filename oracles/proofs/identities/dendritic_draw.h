#pragma once

#include "oracles/proofs/identities/draw.h"
#include "reference/layers/dendritic_attention.h"

/// Random dendritic layers for the identities and the tests.
namespace samestate {

/// The smallest layer that uses every feature (EQUATIONS 8.4): E=4, Es=1, K=2, N=2, O=2, d=8, so w=5 and s=3.
[[nodiscard]] inline DendriticSizes small_dendritic_sizes() { return {5, 2, 8, 4, {4, 1, 2}, 2, 2, 4}; }

/// Weights of size 1/sqrt(in); gates and norm of typical size: g in about (-3, 0), beta about a half.
template <class Scalar>
[[nodiscard]] DendriticParameters<Scalar> draw_dendritic(IdentityDraw<Scalar>& draw,
                                                         const DendriticSizes& s) {
  DendriticParameters<Scalar> p;
  p.sizes = s;
  const auto heads = static_cast<std::size_t>(s.heads);
  p.q_expansion.resize(heads);
  p.k_expansion.resize(heads);
  const std::vector<DendriticWeightShape> shapes = dendritic_weight_shapes(s);
  DendriticParameters<Scalar>::all(p, [&](std::size_t i, auto& weight) {
    const DendriticWeightShape& shape = shapes[i];
    weight = draw.normal(shape.rows, shape.columns, 1.0 / std::sqrt(static_cast<double>(shape.columns)));
  });
  p.A_log = draw.uniform_vector(s.merged_heads(), -2.0, 0.5);
  p.dt_bias = draw.uniform_vector(s.merged_heads(), -1.0, 1.0);
  p.o_norm = draw.uniform_vector(s.value_width, 0.5, 1.5);
  return p;
}

/// A layer and its input.
template <class Scalar>
struct DendriticCase {
  DendriticParameters<Scalar> p;
  Matrix<Scalar> x;  ///< [T, D]

  explicit DendriticCase(std::uint64_t seed, const DendriticSizes& s = small_dendritic_sizes(), Index T = 9) {
    IdentityDraw<Scalar> draw(seed);
    p = draw_dendritic(draw, s);
    x = draw.normal(T, s.model_width);
  }
};

/// The layer from an empty cache.
template <class Scalar>
[[nodiscard]] DendriticResult<Scalar> run_dendritic(const DendriticParameters<Scalar>& p,
                                                    const Matrix<Scalar>& x,
                                                    const DendriticOptions<Scalar>& options = {}) {
  return dendritic_attention(p, x, empty_dendritic_cache<Scalar>(p.sizes), options);
}

/// The matrices stacked, so that they can be compared as one.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stacked(const std::vector<Matrix<Scalar>>& parts) {
  Index rows = 0;
  for (const Matrix<Scalar>& part : parts) rows += part.rows();
  Matrix<Scalar> all(rows, parts.empty() ? 0 : parts.front().cols());
  rows = 0;
  for (const Matrix<Scalar>& part : parts) {
    all.middleRows(rows, part.rows()) = part;
    rows += part.rows();
  }
  return all;
}

/// The largest relative difference among the output, the mixed branches, the virtual heads and all caches
/// (8.1).
template <class Scalar>
[[nodiscard]] double layer_difference(const DendriticResult<Scalar>& a, const DendriticResult<Scalar>& b) {
  const auto size = [](double x, double y) { return x < y ? y : x; };
  double d = relative_difference(a.output, b.output);
  d = size(d, relative_difference(a.a, b.a));
  d = size(d, relative_difference(stacked(a.o), stacked(b.o)));
  d = size(d, relative_difference(stacked(a.cache.state), stacked(b.cache.state)));
  d = size(d, relative_difference(stacked(a.cache.conv_q), stacked(b.cache.conv_q)));
  d = size(d, relative_difference(stacked(a.cache.conv_k), stacked(b.cache.conv_k)));
  return size(d, relative_difference(a.cache.conv_v, b.cache.conv_v));
}

}  // namespace samestate
