#pragma once

#include <string>
#include <vector>

#include "cli/gate_result.h"

namespace samestate::cli {

/// The exit code for the records of a gate. If it is not a pass although no case failed, `remarks` receives
/// the reasons, one sentence each with the remedy.
[[nodiscard]] int gate_verdict(const GateResult& result, std::vector<std::string>& remarks);

}  // namespace samestate::cli
