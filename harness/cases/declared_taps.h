#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/cases/declared_limits.h"

namespace samestate {

/// One of OperatorKernel::taps: handed out in the cases all of whose calls hold what stands behind its name, as in
/// `convolved if T != 1`.
struct DeclaredTap {
  std::string name;
  DeclaredLimits when = {};
};

/// Those of a row. Throws Error, with the kernel's name, for a tap that the system has not, one that is named twice, and a
/// condition that is none.
[[nodiscard]] std::vector<DeclaredTap> declared_taps(const std::string& kernel,
                                                     std::span<const std::string> declared,
                                                     const System& system);

}  // namespace samestate
