#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/card/probe.h"
#include "harness/records/card_row.h"

namespace samestate {

struct CardOptions {
  std::string contract;  ///< the contract to call the kernel with; empty means the first that its row
                         ///< promises
  std::function<bool()> stop = {};  ///< once it returns true, the search ends with what it has
  std::function<void(const std::string& stage)> progress = {};
};

/// A kernel's outputs on a probe.
struct ProbeRun {
  Outputs outputs;         ///< empty if it did not run
  std::string refused;     ///< why it did not run
  bool no_device = false;  ///< the reason is a missing device
  bool refusal = false;  ///< it threw before it launched anything, or said that it does not support the call
};

/// Calls the kernel that the probe names, as its line says. Throws what the kernel throws.
[[nodiscard]] ProbeRun run_probe(const KernelTable& table, const Probe& probe);

/// Searches for the contract whose twin is nearest to the kernel's outputs on the probes: first the formats
/// of output and state, as their values show; then the points of each probe in the order in which data reach
/// them, one point at a time and, if none helps, two; at the end every point on all probes, and how far each
/// of its other values is. Throws Error if the kernel ran none of the probes.
[[nodiscard]] CardRow card_of(const KernelRow& kernel, const std::vector<Probe>& probes,
                              const std::vector<ProbeRun>& runs, const CardOptions& options);

/// Throws Error, with what the kernel said, if no probe has outputs.
void require_outputs(const KernelRow& kernel, const std::vector<ProbeRun>& runs);

/// The contract under which a card is read: that of the options, or else the first that the row promises.
/// Throws Error if the kernel does not promise it.
[[nodiscard]] std::string declared_contract(const KernelRow& kernel, const CardOptions& options);

/// The whole procedure in this process.
[[nodiscard]] CardRow read_card(const KernelTable& table, const KernelRow& kernel,
                                const CardOptions& options);

}  // namespace samestate
