#pragma once

#include <vector>

#include "reference/layers/dendritic_attention_parameters.h"

/// The dendritic layer once more, for a batch, in plain loops over one flat index per axis (EQUATIONS 7.2):
/// it shares its weights with the reference layer, but no code. Each mistake is one that a document contains
/// or that is easy to make.
namespace samestate {

enum class DendriticMistake {
  none,
  mask_before_convolution,
  l2norm_before_windowing,
  interleaved_values,        // DEND-28 by repeat_interleave
  equal_thirds,              // DEND-42: the mask, normalised
  literal_weights,           // DEND-10 by R2
  no_delta_term,             // DEND-31, first erratum
  decay_as_multiplier,       // DEND-31, second erratum
  scale_of_head_width,
  mean_over_windows,
  routed_index_not_shifted,
};

/// The results of the layer, per batch row.
template <class Scalar>
struct DendriticLoopResult {
  std::vector<Matrix<Scalar>> output;              ///< B of [T, D]
  std::vector<Matrix<Scalar>> a;                   ///< B of [T, H dv]
  std::vector<std::vector<Matrix<Scalar>>> state;  ///< B of N E H of [w, dv]
};

/// Steps 1-18 of 7.3 without pads, from empty caches. batch: B of [T, D]. Scalars: double and Decimal50.
template <class Scalar>
[[nodiscard]] DendriticLoopResult<Scalar> dendritic_loops(const DendriticParameters<Scalar>& parameters,
                                                          const std::vector<Matrix<Scalar>>& batch,
                                                          DendriticMistake mistake = DendriticMistake::none);

}  // namespace samestate
