#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/plots/plots.h"
#include "reports/records/evidence.h"

/// Selects the plots for a set of timings. It computes nothing: every number drawn is in a record.
namespace samestate {

/// For each device, system and width: the time against the length of the sequences if lengths differ, and for
/// one decoded token against their number; our kernels, their lower bound and the peer. `first` is the index
/// that the marks use for the first timing.
[[nodiscard]] std::vector<Figure> timing_figures(std::span<const TimedEvidence> timings, std::int64_t first);

}  // namespace samestate
