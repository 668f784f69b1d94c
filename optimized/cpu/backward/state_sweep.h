#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace samestate::cpu {

/// Visits the steps of a recurrence from the last to the first with the state before each. States are kept about
/// sqrt(steps) apart and made again in between, by the same steps from the same bits, so that memory grows as sqrt(steps)
/// and every step is evaluated at most twice. A state is never found by dividing the next one by its decay.
class StateSweep {
 public:
  /// Calls reverse(i, before) for i = steps - 1, ..., 0. advance(i, before, after) makes the state after step i. A state is
  /// `size` floats; `first` is the one before step 0, which is copied before any step is evaluated.
  template <class Advance, class Reverse>
  void run(std::int64_t steps, std::int64_t size, const float* first, const Advance& advance,
           const Reverse& reverse) {
    if (steps == 0) return;
    auto stride = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(steps))));
    stride = std::max<std::int64_t>(stride, 1);
    const std::int64_t stretches = (steps + stride - 1) / stride;
    kept_.resize(static_cast<std::size_t>(stretches * size));
    stretch_.resize(static_cast<std::size_t>(stride * size));
    std::copy_n(first, size, kept_.data());
    const auto kept = [&](std::int64_t i) { return kept_.data() + i * size; };
    const auto state = [&](std::int64_t i) { return stretch_.data() + i * size; };
    for (std::int64_t s = 0; s + 1 < stretches; ++s) {
      std::copy_n(kept(s), size, state(0));
      for (std::int64_t i = 0; i < stride; ++i)
        advance(s * stride + i, state(i), i + 1 < stride ? state(i + 1) : kept(s + 1));
    }
    for (std::int64_t s = stretches; s-- > 0;) {
      const std::int64_t begin = s * stride;
      const std::int64_t count = std::min(stride, steps - begin);
      std::copy_n(kept(s), size, state(0));
      for (std::int64_t i = 0; i + 1 < count; ++i) advance(begin + i, state(i), state(i + 1));
      for (std::int64_t i = count; i-- > 0;) reverse(begin + i, state(i));
    }
  }

 private:
  std::vector<float> kept_;     ///< the states before every stretch of steps
  std::vector<float> stretch_;  ///< those of one stretch
};

}  // namespace samestate::cpu
