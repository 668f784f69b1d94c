#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "reference/sequence.h"

namespace samestate {

/// The number of steps between two states that a reverse sweep keeps: ceil(sqrt(steps)), at least 1.
[[nodiscard]] inline Index checkpoint_stride(Index steps) {
  Index stride = static_cast<Index>(std::sqrt(static_cast<double>(steps)));
  while (stride * stride < steps) ++stride;
  return std::max<Index>(stride, 1);
}

/// Calls reverse(i, S_i) for i = steps - 1 .. 0, where S_0 = `first` and S_{i+1} = advance(i, S_i). States
/// are kept about sqrt(steps) apart and made again in between, so at most 2 checkpoint_stride(steps) states
/// exist at a time and advance is called fewer than 2 steps times. Both callables take (Index, const State&);
/// advance returns a State.
template <class State, class Advance, class Reverse>
void reverse_sweep(Index steps, State first, Advance&& advance, Reverse&& reverse) {
  if (steps == 0) return;
  const Index stride = checkpoint_stride(steps);
  std::vector<State> checkpoints;
  checkpoints.push_back(std::move(first));
  for (Index begin = 0; begin + stride < steps; begin += stride) {
    State state = advance(begin, checkpoints.back());
    for (Index i = begin + 1; i < begin + stride; ++i) state = advance(i, state);
    checkpoints.push_back(std::move(state));
  }
  while (!checkpoints.empty()) {
    const Index begin = (std::ssize(checkpoints) - 1) * stride;
    const Index end = std::min(begin + stride, steps);
    std::vector<State> states;
    states.push_back(std::move(checkpoints.back()));
    checkpoints.pop_back();
    for (Index i = begin; i + 1 < end; ++i) states.push_back(advance(i, states.back()));
    for (Index i = end - 1; i >= begin; --i) {
      reverse(i, states.back());
      states.pop_back();
    }
  }
}

}  // namespace samestate
