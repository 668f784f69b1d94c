#pragma once

#include <string>

#include "harness/records/trace.h"

/// A trace of a kernel's block for people and for other tools.
namespace samestate {

/// A line a role: how long its warps last, the share of it that they work, and what they wait for, most first.
[[nodiscard]] std::string trace_text(const BlockTrace& trace);

/// Trace events as Perfetto and chrome://tracing open them: a thread a warp, complete events of work and of waits, in
/// microseconds.
[[nodiscard]] std::string trace_events(const BlockTrace& trace);

/// An SVG of its own of [begin, end] seconds of the block: a row a warp, waits by colour, work grey.
[[nodiscard]] std::string trace_svg(const BlockTrace& trace, double begin, double end);

}  // namespace samestate
