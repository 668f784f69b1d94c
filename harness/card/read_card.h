#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/card/probe.h"
#include "harness/records/card_row.h"

namespace samestate {

struct CardOptions {
  std::string contract;             ///< to call the kernel with; empty: the first that its row promises
  std::function<bool()> stop = {};  ///< once true the search ends with what it has
  std::function<void(const std::string& stage)> progress = {};
};

/// What a kernel made of a probe.
struct ProbeRun {
  Outputs outputs;         ///< empty: it did not run
  std::string refused;     ///< why not
  bool no_device = false;  ///< that is why
  bool refusal = false;    ///< it threw before it launched anything, or said that it does not take the call
};

/// The kernel that the probe names, called as its line says. Throws what a kernel throws.
[[nodiscard]] ProbeRun run_probe(const KernelTable& table, const Probe& probe);

/// Searches the contract whose twin is nearest to what the kernel wrote on the probes: formats of output and state as
/// their values show, then the points of each probe in the order in which data reach them, one point at a time and,
/// where none helps, two; at the end every point on all probes, and how far each other value of it is. Throws Error where
/// the kernel ran none of the probes.
[[nodiscard]] CardRow card_of(const KernelRow& kernel, const std::vector<Probe>& probes,
                              const std::vector<ProbeRun>& runs, const CardOptions& options);

/// The contract that a card is read under: that of the options, else the first that the row promises. Throws Error where
/// the kernel is not of the recurrent family or does not promise it.
[[nodiscard]] std::string declared_contract(const KernelRow& kernel, const CardOptions& options);

/// All of it in this process.
[[nodiscard]] CardRow read_card(const KernelTable& table, const KernelRow& kernel,
                                const CardOptions& options);

}  // namespace samestate
