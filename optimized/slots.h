#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/operator_kernel.h"

/// The slots of a pool of states, whose numbers are passed together with the other tensors of a call.
namespace samestate {

/// The input `slot` [B, 1] of a call whose pool has P slots, one number per request: a row of the pool, or -1
/// for none. Throws Error if one is not a whole number in [-1, P): rounded, it might become a row beyond the
/// pool.
[[nodiscard]] inline std::vector<std::int64_t> slots_of(const OperatorArguments& call) {
  const NamedTensor<const float>& tensor = call.input("slot");
  const std::int64_t P = call.parameter("P");
  const std::int64_t step = tensor.stride.empty() ? 1 : tensor.stride.front();
  std::vector<std::int64_t> slots;
  for (std::int64_t b = 0; b < call.batch; ++b) {
    const float slot = tensor.data[b * step];
    if (!(slot >= -1.0F && slot < static_cast<float>(P) && slot == std::floor(slot))) {
      throw Error("slot=" + std::to_string(slot) + " of request " + std::to_string(b) +
                  ", P=" + std::to_string(P) + ": must be a whole number from 0 to " + std::to_string(P - 1) +
                  ", a row of the pool, or -1 for none");
    }
    slots.push_back(static_cast<std::int64_t>(slot));
  }
  return slots;
}

}  // namespace samestate
