#include "harness/systems/sampled_sequences.h"

#include <algorithm>

namespace samestate {

SampledSequences::SampledSequences(Index batch, double one, double usual, double most) : batch_(batch) {
  const auto within = [&](double work) {
    return static_cast<Index>(
        std::clamp(work / std::max(one, 1e-12), 0.0, static_cast<double>(std::max<Index>(batch, 0))));
  };
  usual_ = within(usual);
  most_ = within(most);
}

bool SampledSequences::takes(Index b, Verdict worst_case) const {
  const Index count = worst_case == Verdict::vacuous ? most_ : usual_;
  if (count < 2) return count == 1 && b == 0;
  // The i-th of `count` samples is floor(i (batch - 1) / (count - 1)), which runs from 0 to batch - 1.
  const Index i = (b * (count - 1) + batch_ - 2) / (batch_ - 1);
  return i * (batch_ - 1) / (count - 1) == b;
}

}  // namespace samestate
