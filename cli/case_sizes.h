#pragma once

#include <string>

#include "harness/cases/resolved.h"

namespace samestate::cli {

/// The sizes of a case, and the tokens of its chunks and before its decode where its form has them, as "chunk=64 B=1 T=65 ..":
/// what its line leaves out is in it, for a reader who does not know the defaults by heart.
[[nodiscard]] std::string sizes_in_full(const Resolved& r);

}  // namespace samestate::cli
