#pragma once

#include <cstddef>
#include <string>

#include "reports/records/compare.h"

namespace samestate {

/// For a terminal: counts, then up to `most` changes of each kind, each with the command that repeats it.
[[nodiscard]] std::string compare_text(const Comparison& comparison, std::size_t most = 10);
/// {"regressions": n, ..., "changes": [{"kind", "line", "before": {..}, "after": {..}} ..]}
[[nodiscard]] std::string compare_json(const Comparison& comparison);
[[nodiscard]] std::string compare_markdown(const Comparison& comparison, const std::string& before,
                                           const std::string& after);

}  // namespace samestate
