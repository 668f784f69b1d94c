#pragma once

#include <cstdint>

/// In which order a kernel takes a softmax, which moves where its weights are stored but not their number.
namespace samestate {

struct SoftmaxOrder {
  bool divides_last = false;     ///< weights are stored before they are divided by their sum,
  std::int64_t key_tile = 0;     ///< and under the largest score of so many keys and those before; 0: of all
  double lazy_by = 0.0;          ///< a score raises the running maximum where it exceeds it by more than this
  bool last_keys_first = false;  ///< tiles of keys are taken from the last to the first

  friend bool operator==(const SoftmaxOrder&, const SoftmaxOrder&) = default;
};

}  // namespace samestate
