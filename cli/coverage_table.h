#pragma once

#include <string>

#include "fuzz/search/coverage.h"

namespace samestate::cli {

/// Describes what a search reached, with one line for each dimension of each system: judged cases, what was always
/// refused, and in capitals what was never judged.
[[nodiscard]] std::string coverage_table(const Coverage& coverage);

}  // namespace samestate::cli
