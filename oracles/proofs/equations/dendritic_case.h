#pragma once

#include <string>
#include <vector>

#include "oracles/proofs/equations/rearrange.h"
#include "oracles/proofs/identities/dendritic_draw.h"
#include "reference/costs.h"
#include "reference/layers/dendritic_attention.h"

/// The data from which the rows of document 003 are computed: its configuration, and a small layer that uses
/// every feature.
namespace samestate {

using Extents = std::vector<std::int64_t>;

inline const costs::DendriticConfig kDendritic;
inline const costs::DendriticShape kDendriticShape = costs::shape(kDendritic);

/// The sizes of the document's layer, in the form that the reference takes.
[[nodiscard]] inline DendriticSizes document_sizes() {
  const costs::DendriticConfig& c = kDendritic;
  return {
      c.hidden,  c.heads,   c.head_width,       kDendriticShape.value_width, {c.branches, c.shared, c.routed},
      c.windows, c.overlap, c.convolution_width};
}

/// A tensor of the document's batch and length.
[[nodiscard]] inline Extents tokens_of(std::vector<std::int64_t> rest) {
  rest.insert(rest.begin(), {kDendritic.batch, kDendritic.length});
  return rest;
}

/// Extents after a rearrangement that the document writes. Heads, branches and windows are identified by
/// name.
[[nodiscard]] inline Extents rearranged(std::string_view pattern, const Extents& shape,
                                        std::map<std::string, std::int64_t> sizes = {}) {
  return Rearrangement(pattern, shape, std::move(sizes)).shape();
}

/// The layer at D = 7, H = 2, d = 8, dv = 6, E = 4, Es = 1, K = 2, N = 2, O = 2 on 11 tokens.
struct SmallDendriticLayer {
  DendriticParameters<double> p;
  Matrix<double> x;
  DendriticResult<double> out;
  DendriticCoreInput<double> core;

  SmallDendriticLayer() {
    IdentityDraw<double> draw(3);
    p = draw_dendritic(draw, DendriticSizes{7, 2, 8, 6, {4, 1, 2}, 2, 2, 4});
    x = draw.normal(11, p.sizes.model_width);
    out = run_dendritic(p, x);
    core = dendritic_core_input(p, x, empty_dendritic_cache<double>(p.sizes));
  }
  [[nodiscard]] const DendriticSizes& sizes() const { return p.sizes; }
  /// Channels of head h of a projection.
  [[nodiscard]] Matrix<double> head(const Matrix<double>& projected, Index h, Index width) const {
    return projected.middleCols(h * width, width);
  }
};

}  // namespace samestate
