#pragma once

#include <algorithm>

#include "oracles/bounds/running_error.h"
#include "oracles/bounds/stochastic.h"

/// delta of reference/backward/softmax_attention.h in the scalars that carry an error. Whatever evaluates the gradients of
/// attention in them includes this header first, since an overload is found where a template is instantiated.
namespace samestate {

/// In whatever way a kernel computes it: as do . o, or as the sum of p_s dP_s, whose terms may be far larger than the
/// sum. The twin's kernels read the o that their forward pass stored.
template <class OfWeights>
[[nodiscard]] Running row_delta(const Running& of_outputs, OfWeights&& of_weights) {
  if (detail::running_model().of_twin) return of_outputs;
  const Running other = of_weights();
  return Running::within(of_outputs.value(), std::max(of_outputs.error(), other.error()))
      .made_of(of_outputs)
      .made_of(other);
}

/// Half of the samples of a contract without 16 bits take the second sum. In 16 bits a kernel stores P or o, and what it
/// stores is named.
template <class OfWeights>
[[nodiscard]] Stochastic row_delta(const Stochastic& of_outputs, OfWeights&& of_weights) {
  const SampledModel& model = detail::sampling().model;
  return model.associates_otherwise && model.kept == Format::none ? Stochastic(of_weights()) : of_outputs;
}

}  // namespace samestate
