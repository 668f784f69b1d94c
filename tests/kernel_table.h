#pragma once

#include "harness/run/kernel_table.h"
#include "optimized/kernel.h"
#include "optimized/operator_kernel.h"

namespace samestate {

/// Every kernel of this build, made once per test program.
[[nodiscard]] inline const KernelTable& table() {
  static const KernelTable all(kernels(), operator_kernels());
  return all;
}

}  // namespace samestate
