#pragma once

#include "optimized/cuda/host/operands.h"
#include "optimized/cuda/units/fp16.cuh"

/// The conversions of operands.h to and from fp16.
namespace samestate::cuda {

template <>
[[nodiscard]] inline Fp16 stored<Fp16>(float x) {
  return fp16_of(x);
}
[[nodiscard]] inline float loaded(Fp16 x) { return float_of(x); }

}  // namespace samestate::cuda
