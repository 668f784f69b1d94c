#pragma once

#include <string>

#include "harness/cases/resolved.h"

namespace samestate {

/// Whether a case may be about a kernel of that form. Calls with and without chunks follow each other in a decoded case,
/// which may be about either kernel; but the one that is called over the case's ranks has to be one over ranks.
[[nodiscard]] bool makes_calls(const Resolved& r, const std::string& kernel_form);

}  // namespace samestate
