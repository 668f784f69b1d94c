#pragma once

#include <string>
#include <vector>

#include "harness/card/read_card.h"

namespace samestate {

/// Writes each probe as a run file into `folder`, which is made: inputs as they are, o and final_state of zeros to be
/// replaced. Returns the names.
std::vector<std::string> write_probes(const std::string& folder, const KernelRow& kernel,
                                      const std::vector<Probe>& probes);

/// The first of these files of `folder` that has outputs; empty: none has.
[[nodiscard]] std::string first_filled(const std::string& folder, const std::vector<Probe>& probes);

/// The outputs of such files; a probe without a file, or whose o is all zero, was not run. Throws Error where a file is
/// not the probe's: its inputs or its case line are others.
[[nodiscard]] std::vector<ProbeRun> read_probes(const std::string& folder, const std::vector<Probe>& probes);

}  // namespace samestate
