#pragma once

#include <cstddef>
#include <string>

#include "harness/records/trace.h"

/// The trace of a kernel's block, for people and for other tools.
namespace samestate {

/// One line per role: how long its warps last, the share of that time in which they work, and what they wait
/// for, the longest first; for a terminal of `width` columns (0: of any width).
[[nodiscard]] std::string trace_text(const BlockTrace& trace, std::size_t width = 0);

/// Trace events in the format of Perfetto and chrome://tracing: one thread per warp, with complete events for
/// work and waits, in microseconds.
[[nodiscard]] std::string trace_events(const BlockTrace& trace);

/// A self-contained SVG of [begin, end] seconds of the block: one row per warp, with waits in colour and work
/// in grey.
[[nodiscard]] std::string trace_svg(const BlockTrace& trace, double begin, double end);

}  // namespace samestate
