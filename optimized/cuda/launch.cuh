#pragma once

#include "optimized/cuda/parameters.cuh"

namespace samestate::cuda {

/// Evaluate all items of `parameters` and wait. Instantiated for float and Bf16. Throw Error where the device
/// refuses.
template <class Operand>
void launch_recurrent(Parameters<Operand> parameters, bool delta);
template <class Operand>
void launch_chunked(Parameters<Operand> parameters, bool delta);

extern template void launch_recurrent(Parameters<float>, bool);
extern template void launch_recurrent(Parameters<Bf16>, bool);
extern template void launch_chunked(Parameters<float>, bool);
extern template void launch_chunked(Parameters<Bf16>, bool);

}  // namespace samestate::cuda
