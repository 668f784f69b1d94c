#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "optimized/cpu/rounding.h"

/// Top-k routing of one token, shared by the kernels of mixtures of experts.
namespace samestate::cpu {

/// The K experts of a token in order of descending logit (the lower index first among equals), and their
/// renormalised weights.
class TokenRouting {
 public:
  explicit TokenRouting(std::int64_t K)
      : experts_(static_cast<std::size_t>(K)), weights_(static_cast<std::size_t>(K)) {}

  [[nodiscard]] const std::vector<std::int64_t>& experts() const { return experts_; }
  [[nodiscard]] const std::vector<float>& weights() const { return weights_; }

  /// Chooses in one pass over the N >= K logits; the weights are the softmax of the chosen ones, kept in
  /// `format`.
  void choose(const float* logits, std::int64_t N, Format format) {
    std::size_t found = 0;
    for (std::int64_t i = 0; i < N; ++i) {
      std::size_t place = found;
      while (place > 0 && logits[experts_[place - 1]] < logits[i]) --place;
      if (place == experts_.size()) continue;
      if (found < experts_.size()) ++found;
      for (std::size_t r = found - 1; r > place; --r) experts_[r] = experts_[r - 1];
      experts_[place] = i;
    }
    const float largest = logits[experts_.front()];
    float sum = 0.0F;
    for (std::size_t r = 0; r < experts_.size(); ++r) {
      weights_[r] = std::exp(logits[experts_[r]] - largest);
      sum += weights_[r];
    }
    const float inverse = 1.0F / sum;
    for (float& w : weights_) w *= inverse;
    round_values(weights_.data(), weights_.data(), static_cast<std::int64_t>(weights_.size()), format);
  }

 private:
  std::vector<std::int64_t> experts_;
  std::vector<float> weights_;
};

/// p[i] = softmax(logits)_i.
inline void softmax_of(const float* logits, std::int64_t N, float* p) {
  const float largest = *std::max_element(logits, logits + N);
  float sum = 0.0F;
  for (std::int64_t i = 0; i < N; ++i) {
    p[i] = std::exp(logits[i] - largest);
    sum += p[i];
  }
  const float inverse = 1.0F / sum;
  for (std::int64_t i = 0; i < N; ++i) p[i] *= inverse;
}

}  // namespace samestate::cpu
