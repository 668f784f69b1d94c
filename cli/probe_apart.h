#pragma once

#include <functional>

#include "harness/card/read_card.h"

namespace samestate::cli {

/// Runs a probe in a process of its own. A kernel that crashes or hangs in it counts as refusing it, because the other
/// probes may still tell something.
[[nodiscard]] ProbeRun probe_apart(const std::function<ProbeRun()>& run, double timeout);

}  // namespace samestate::cli
