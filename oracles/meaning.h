#pragma once

#include "oracles/given.h"

/// Interprets the numbers that another program gave to a kernel. Given::read_g and read_beta do the same for
/// numbers that samestate made.
namespace samestate {

/// The natural logarithm of the decay that `number` stands for; a decay of 0 and a logarithm of -infinity are
/// -1e38. NaN for a negative factor.
[[nodiscard]] double meant_by_g(const Given& given, double number);
[[nodiscard]] double meant_by_beta(const Given& given, double number);

}  // namespace samestate
