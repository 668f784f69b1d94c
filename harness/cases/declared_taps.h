#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/cases/declared_limits.h"

namespace samestate {

/// One of OperatorKernel::taps: it is handed out in those cases all of whose calls fulfil the condition after
/// its name, as in `convolved if T != 1`.
struct DeclaredTap {
  std::string name;
  DeclaredLimits when = {};
};

/// The taps of a row. Throws Error, with the kernel's name, for a tap that the system does not have, one that
/// is named twice, and an invalid condition.
[[nodiscard]] std::vector<DeclaredTap> declared_taps(const std::string& kernel,
                                                     std::span<const std::string> declared,
                                                     const System& system);

}  // namespace samestate
