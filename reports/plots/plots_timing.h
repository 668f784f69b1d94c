#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reports/plots/plots.h"
#include "reports/records/evidence.h"

/// Which plots a set of timings gives. Selection only: every drawn number is one of a record.
namespace samestate {

/// For each device, system and width: time against the length of the sequences where lengths differ, and of
/// one decoded token against their number; our kernels, their floor and the peer. `first` is the index that
/// the marks name for the first timing.
[[nodiscard]] std::vector<Figure> timing_figures(std::span<const TimedEvidence> timings, std::int64_t first);

}  // namespace samestate
