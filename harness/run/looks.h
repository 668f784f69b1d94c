#pragma once

#include "harness/run/run_case.h"

/// The two looks that `repro` takes at a line. The first is what every verb says of it; the second says what more work shows.
namespace samestate {

/// The line as the gate judges it (kGatePolicy), with what it left in `trace`, which changes nothing of the verdict.
[[nodiscard]] Record first_look(const Case& c, const KernelTable& table, Trace* trace);

/// Returns true if a first look leaves open what more work may show: where it says nothing, unless the data are the reason; with
/// `passes` where it passes too, since some heads, sequences or tokens may have been left to float64.
[[nodiscard]] bool leaves_open(const Judgement& first, bool passes);

/// The line under kDeepPolicy. What it says does not change the verdict of the first look, and a failure is one all the same: the
/// first look did not hold what fails here.
[[nodiscard]] Record deeper_look(const Case& c, const KernelTable& table);

}  // namespace samestate
