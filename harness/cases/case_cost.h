#pragma once

#include <cstdint>
#include <limits>

#include "reference/contract.h"

namespace samestate {

/// The cost of a case that is one call (System::cost).
struct CaseCost {
  std::int64_t bytes = 0;       ///< every input that must be read once, and every output written once
  std::int64_t operations = 0;  ///< operations of the form; 0 if its system does not provide them
  /// The format of multiplied operands, whose rate of matrix products bounds the operations; none if no rate
  /// is measured for it.
  Format operands = Format::none;
  /// For the recurrence in chunks, per token and head (for a scan, per channel), with operands of two bytes;
  /// for a layer only the recurrence inside it, since its projections do not depend on the chunk. NaN if
  /// there is none or the form has no chunk.
  double token_operations = std::numeric_limits<double>::quiet_NaN();
  double token_bytes = std::numeric_limits<double>::quiet_NaN();
};

/// Bytes of an element of that format.
[[nodiscard]] inline std::int64_t bytes_of(Format format) {
  return format == Format::bf16 || format == Format::fp16 ? 2 : format == Format::fp64 ? 8 : 4;
}

}  // namespace samestate
