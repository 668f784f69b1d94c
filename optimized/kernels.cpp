#include "optimized/kernel.h"

namespace samestate {

std::span<const Kernel> kernels() { return {}; }

}  // namespace samestate
