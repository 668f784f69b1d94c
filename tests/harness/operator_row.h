#pragma once

#include <string>
#include <string_view>

#include "optimized/operator_kernel.h"
#include "reference/error.h"

namespace samestate {

/// Returns a row of this build's table of kernels of named tensors. Throws Error if there is none with that
/// name.
inline const OperatorKernel& operator_row(std::string_view name) {
  for (const OperatorKernel& row : operator_kernels()) {
    if (row.name == name) return row;
  }
  throw Error("no kernel " + std::string(name));
}

}  // namespace samestate
