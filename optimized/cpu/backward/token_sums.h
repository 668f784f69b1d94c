#pragma once

#include <cstdint>
#include <vector>

#include "optimized/cpu/rounding.h"

/// Sums over all tokens of a call, as the gradients of weights are.
namespace samestate::cpu {

/// The sums of `width` columns over the tokens of a call. Each block of tokens has sums of its own, which are added in the
/// order of the blocks, so that the result does not depend on the number of threads.
class TokenSums {
 public:
  static constexpr std::int64_t kTokens = 64;  ///< of a block

  TokenSums(std::int64_t tokens, std::int64_t width)
      : blocks_((tokens + kTokens - 1) / kTokens),
        width_(width),
        sums_(static_cast<std::size_t>(blocks_ * width), 0.0F) {}

  [[nodiscard]] std::int64_t blocks() const { return blocks_; }
  [[nodiscard]] float* of_block(std::int64_t block) { return sums_.data() + block * width_; }

  /// Writes the sums over all blocks to [width].
  void write(float* to, Format format) const {
    for (std::int64_t j = 0; j < width_; ++j) {
      float sum = 0.0F;
      for (std::int64_t b = 0; b < blocks_; ++b) sum += sums_[static_cast<std::size_t>(b * width_ + j)];
      to[j] = sum;
    }
    round_values(to, to, width_, format);
  }

 private:
  std::int64_t blocks_, width_;
  std::vector<float> sums_;
};

}  // namespace samestate::cpu
