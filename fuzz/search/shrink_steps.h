#pragma once

#include <vector>

#include "harness/cases/case_line.h"

namespace samestate {

/// Returns the cases that are one step simpler than this one, the boldest first: one call instead of many,
/// fewer sequences and tokens, smaller sizes and chunks, plain settings and data. Each is easier to
/// understand than `from`, so the descent ends.
[[nodiscard]] std::vector<Case> smaller_cases(const Case& from);

}  // namespace samestate
