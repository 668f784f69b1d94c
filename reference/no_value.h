#pragma once

#include <string>

#include "reference/error.h"

namespace samestate {

/// Thrown if the equation has no value in this scalar, for example when the elimination of rounded sums meets
/// a pivot that is not positive. No kernel can then be called right or wrong, so the case is vacuous.
class NoValue : public Error {
 public:
  using Error::Error;
};

}  // namespace samestate
