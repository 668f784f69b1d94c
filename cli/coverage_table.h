#pragma once

#include <string>

#include "fuzz/search/coverage.h"

namespace samestate::cli {

/// What a search reached, a line for each dimension of each system: judged cases, what was refused each time,
/// and what was never judged in capitals.
[[nodiscard]] std::string coverage_table(const Coverage& coverage);

}  // namespace samestate::cli
