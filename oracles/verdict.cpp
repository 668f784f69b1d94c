#include "oracles/verdict.h"

namespace samestate {

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "pass";
    case Verdict::fail:
      return "fail";
    case Verdict::vacuous:
      return "vacuous";
    case Verdict::unsupported:
      return "unsupported";
    case Verdict::skipped:
      return "skipped";
    case Verdict::crash:
      return "crash";
    case Verdict::timeout:
      return "timeout";
    case Verdict::flaky:
      return "flaky";
  }
  return "unknown";
}

}  // namespace samestate
