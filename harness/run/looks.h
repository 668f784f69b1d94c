#pragma once

#include "harness/run/run_case.h"

/// `repro` may look at a line twice. The first look is what every verb says about it; the second shows what
/// more work reveals.
namespace samestate {

/// The line as the gate judges it (kGatePolicy). Filling `trace` does not change the verdict.
[[nodiscard]] Record first_look(const Case& c, const KernelTable& table, Trace* trace);

/// True if a first look leaves something open that more work may show: if it is vacuous, unless the data are
/// the reason; with `passes` also if it passes, since some heads, sequences or tokens may have been compared
/// with float64 only.
[[nodiscard]] bool leaves_open(const Judgement& first, bool passes);

/// The line under kDeepPolicy. It does not replace the verdict of the first look, but a failure here is still
/// a failure: it is in a part that the first look did not compare with its tolerance.
[[nodiscard]] Record deeper_look(const Case& c, const KernelTable& table);

}  // namespace samestate
