#pragma once

#include <string>
#include <vector>

#include "cli/gate_plan.h"
#include "harness/processes/devices.h"

namespace samestate::cli {

/// Calls each kernel of a subject on a device that does not say what it is compiled anew for, about twenty times in a process of its
/// own, and puts what that shows (find_compiled_keys) into the table and into `options.learned`. Sentences for the summary: what was
/// learned, what it took, and which limits a declaration lacks; the last are `remarks`, since a run with refused cases is no pass.
void learn_by_calls(KernelTable& table, GatePlanOptions& options, double timeout, Devices* devices,
                    std::vector<std::string>& notes, std::vector<std::string>& remarks);

}  // namespace samestate::cli
