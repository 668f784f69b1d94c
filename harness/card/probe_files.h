#pragma once

#include <string>
#include <vector>

#include "harness/card/read_card.h"

namespace samestate {

/// Writes each probe as a run file into `folder`, which is created: inputs as they are, and zeros for o and
/// final_state, to be replaced. Returns the file names.
std::vector<std::string> write_probes(const std::string& folder, const KernelRow& kernel,
                                      const std::vector<Probe>& probes);

/// The first of these files in `folder` that has outputs; empty if none has.
[[nodiscard]] std::string first_filled(const std::string& folder, const std::vector<Probe>& probes);

/// Reads the outputs of such files; a probe without a file, or whose o is all zero, was not run. Throws Error
/// if a file does not belong to the probe: its inputs or its case line differ.
[[nodiscard]] std::vector<ProbeRun> read_probes(const std::string& folder, const std::vector<Probe>& probes);

}  // namespace samestate
