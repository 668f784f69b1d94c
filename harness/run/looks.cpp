#include "harness/run/looks.h"

#include "oracles/reasons.h"

namespace samestate {

Record first_look(const Case& c, const KernelTable& table, Trace* trace) {
  return run_case(c, table, 1, trace, kGatePolicy);
}

bool leaves_open(const Judgement& first, bool passes) {
  if (first.verdict == Verdict::pass) return passes;
  // Zeros, a reference without a value, and numbers outside the format's range are left as they are.
  return first.verdict == Verdict::vacuous && first.gate != kZeroGate && first.gate != "reference" &&
         first.reason != kOverflowsOnTheWay;
}

Record deeper_look(const Case& c, const KernelTable& table) {
  return run_case(c, table, 1, nullptr, kDeepPolicy);
}

}  // namespace samestate
