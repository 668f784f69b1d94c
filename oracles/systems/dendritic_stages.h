#pragma once

#include <utility>
#include <vector>

#include "oracles/systems/explicit_chunk.h"
#include "oracles/systems/stages.h"
#include "reference/layers/dendritic_attention.h"

/// Functions shared by the row of the dendritic layer and its stages.
namespace samestate {

/// Throws Error for invalid sizes.
[[nodiscard]] DendriticSizes dendritic_sizes(const Call& call);

/// The routing that is injected as scores [T, H candidates]: the K largest for each head.
template <class Scalar>
[[nodiscard]] std::vector<DendriticRouting<Scalar>> dendritic_routing(const DendriticSizes& s,
                                                                      const Matrix<Scalar>& all) {
  std::vector<DendriticRouting<Scalar>> out;
  const Index candidates = s.branch.candidates();
  for (Index h = 0; h < s.heads; ++h) {
    const Matrix<Scalar> scores = all.middleCols(h * candidates, candidates);
    const Matrix<Index> selected =
        s.branch.routed > 0 ? top_k(scores, s.branch.routed) : Matrix<Index>(scores.rows(), 0);
    Matrix<Scalar> chosen(scores.rows(), s.branch.routed);
    for (Index t = 0; t < scores.rows(); ++t) {
      for (Index i = 0; i < s.branch.routed; ++i) chosen(t, i) = scores(t, selected(t, i));
    }
    out.push_back(injected_routing(selected, chosen, s.branch));
  }
  return out;
}

/// The rule of one virtual head (step 14): in form=chunked over its list in chunks, otherwise token by token.
/// T, P, the state, V' and its decayed rows are rounded where they are multiplied; beta V, beta K, U and W
/// are all rounded or none is, as in kernels that keep the residual.
template <class Scalar>
[[nodiscard]] auto dendritic_rule(const Call& call) {
  return [chunk = call.form == "chunked" ? call.chunk : Index{0}](const Sequence<Scalar>& head) {
    return chunk > 0 ? explicitly_chunked<GatedDeltaRule>(head, chunk, ChunkPlaces::residual)
                     : recurrent<GatedDeltaRule>(head);
  };
}

/// `parts` matrices on top of one another.
template <class Scalar>
[[nodiscard]] std::vector<Matrix<Scalar>> unstacked(const Matrix<Scalar>& x, Index parts) {
  std::vector<Matrix<Scalar>> out;
  const Index rows = x.rows() / parts;
  for (Index i = 0; i < parts; ++i) out.push_back(x.middleRows(i * rows, rows));
  return out;
}
/// The inverse of unstacked, written into the place of `to`.
template <class Scalar>
[[nodiscard]] Matrix<Scalar> stacked(const std::vector<Matrix<Scalar>>& parts, Matrix<Scalar> to) {
  Index row = 0;
  for (const Matrix<Scalar>& part : parts) {
    to.middleRows(row, part.rows()) = part;
    row += part.rows();
  }
  return to;
}

/// projections -> expansions of q and k -> convolutions, gates -> windows and rule -> mix -> norm -> output
/// (EQUATIONS 7.3). Taps, including the rows of pads: q, k [T, H d], v, z [T, H dv], b, a_gate [T, E H] after
/// projection, v zero on pads; q_expanded, k_expanded [T, E, H d], zero on pads; q_convolved, k_convolved [T,
/// E, H d], v_convolved [T, H dv]; g, beta [T, E H] in fp32, without a mask; o [T, N E H, dv], zero where a
/// branch is not used; gated [T, H dv]. For kernels that convolve only the branches that a token uses, the
/// convolutions of q and k, the gates and the rule are one stage.
[[nodiscard]] LayerStages dendritic_stages(const Call& call);

}  // namespace samestate
