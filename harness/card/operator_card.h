#pragma once

#include <vector>

#include "harness/card/read_card.h"
#include "harness/systems/tensor_system.h"

/// The card of a kernel of named tensors: which of its system's rounding points it has, read from its outputs.
namespace samestate {

/// Calls of one sequence whose data the kernel is run on: regimes of its system, with and without what a call may have
/// (a norm inside, groups of heads), within the limits that its row declares.
[[nodiscard]] std::vector<Case> operator_probes(const KernelRow& kernel, const std::string& contract);

/// Calls the kernel on a probe. The outputs are all of its tensors, one after another, in Outputs::o. Throws what the
/// kernel throws.
[[nodiscard]] ProbeRun run_operator_probe(const KernelTable& table, const KernelRow& kernel,
                                          const Case& probe);

/// Searches for the points whose twin is nearest to the kernel's outputs on the probes: from those that the
/// contract rounds at, one point at a time, left out or added (PointRow::only_if_named), the one that explains most
/// first. Under a contract that rounds nowhere no point can be told. Throws Error if the kernel ran no probe.
[[nodiscard]] CardRow operator_card(const KernelRow& kernel, const std::vector<Case>& probes,
                                    const std::vector<ProbeRun>& runs, const CardOptions& options);

}  // namespace samestate
