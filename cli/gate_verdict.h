#pragma once

#include <string>
#include <vector>

#include "cli/gate_result.h"

namespace samestate::cli {

/// The exit code that the records of a gate come to. Where it is no pass though no case failed, `remarks` gets why, a sentence
/// each with the remedy.
[[nodiscard]] int gate_verdict(const GateResult& result, std::vector<std::string>& remarks);

}  // namespace samestate::cli
