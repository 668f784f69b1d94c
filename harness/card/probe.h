#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"
#include "harness/run/kernel_table.h"
#include "oracles/batch.h"

namespace samestate {

/// The points that affect a probe's outputs, from the first roundings to the last.
enum class Shows { scores, state, writes, inverse, reads, norm, all };

/// Data that isolate a few rounding points, so that one of them moves the distance to the twin by far more
/// than the order of sums does. Values that do not belong to the point have eight significant bits, so no
/// format rounds them.
struct Probe {
  std::string name;
  Shows shows = Shows::all;
  Case c;  ///< sizes and settings; the data are `batch`
  Batch batch;
};

/// The probes of a kernel of the recurrent family called under `contract`, within the limits that its row
/// declares.
[[nodiscard]] std::vector<Probe> probes_of(const KernelRow& kernel, std::string_view contract);

/// True if the point affects the outputs of such a probe.
[[nodiscard]] bool shown_by(Shows shows, std::string_view point);

}  // namespace samestate
