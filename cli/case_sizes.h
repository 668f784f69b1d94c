#pragma once

#include <string>

#include "harness/cases/resolved.h"

namespace samestate::cli {

/// The sizes of a case, including the tokens of its chunks and before its decode if its form has them, as
/// "chunk=64 B=1 T=65 ..": it contains what the line leaves out, for readers who do not know the defaults.
[[nodiscard]] std::string sizes_in_full(const Resolved& r);

}  // namespace samestate::cli
