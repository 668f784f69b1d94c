#pragma once

#include <string>

#include "harness/cases/resolved.h"

namespace samestate {

/// True if a kernel of that form makes one of the case's calls, so that the case may be about it. A decoded
/// case calls with and without chunks, and may be about either kernel; over ranks it has to be the one that
/// is called over them.
[[nodiscard]] bool makes_calls(const Resolved& r, const std::string& kernel_form);

}  // namespace samestate
