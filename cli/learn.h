#pragma once

#include <string>
#include <vector>

#include "cli/gate_plan.h"
#include "harness/processes/devices.h"

namespace samestate::cli {

/// Calls each kernel of a subject on a device about twenty times in a process of its own, if it does not declare for
/// which sizes it is compiled anew, and puts what the calls show (find_compiled_keys) into the table and into
/// `options.learned`. Returns sentences for the summary: what was learned and how long it took. Limits that a
/// declaration lacks are put into `remarks`, because a run with refused cases is not a pass.
void learn_by_calls(KernelTable& table, GatePlanOptions& options, double timeout, Devices* devices,
                    std::vector<std::string>& notes, std::vector<std::string>& remarks);

}  // namespace samestate::cli
