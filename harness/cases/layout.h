#pragma once

#include <string_view>

namespace samestate {

/// How a kernel sees the tensors of a call.
enum class Layout {
  dense,
  padded,  ///< strided views: unused elements between tokens and heads
  far      ///< rows so far apart that their offsets do not fit 32 bits (BUGS M38)
};

/// dense, padded or far. Throws Error for another name.
[[nodiscard]] Layout layout_named(std::string_view name);

}  // namespace samestate
