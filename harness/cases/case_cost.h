#pragma once

#include <cstdint>
#include <limits>

#include "reference/contract.h"

namespace samestate {

/// What a case costs that is one call (System::cost).
struct CaseCost {
  std::int64_t bytes = 0;       ///< every input that must be read once, every output written once
  std::int64_t operations = 0;  ///< of the form; 0: its system does not say
  /// What is multiplied, whose rate of matrix products bounds the operations; none: nobody measures one.
  Format operands = Format::none;
  /// Of the recurrence in chunks, of one token of one head (of a scan, of one channel), with operands of two
  /// bytes; of a layer the recurrence inside it, for its projections do not depend on the chunk. NaN where
  /// there is none or the form has no chunk.
  double token_operations = std::numeric_limits<double>::quiet_NaN();
  double token_bytes = std::numeric_limits<double>::quiet_NaN();
};

/// Bytes of an element of that format.
[[nodiscard]] inline std::int64_t bytes_of(Format format) {
  return format == Format::bf16 || format == Format::fp16 ? 2 : format == Format::fp64 ? 8 : 4;
}

}  // namespace samestate
