#pragma once

#include <string>

#include "reference/error.h"

namespace samestate {

/// The equation has no value here in this scalar, as where the elimination of rounded sums meets a pivot that is not positive.
/// Nothing can be said of a kernel then, good or bad: a case that meets it is vacuous.
class NoValue : public Error {
 public:
  using Error::Error;
};

}  // namespace samestate
