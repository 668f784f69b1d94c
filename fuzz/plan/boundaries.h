#pragma once

#include <string>
#include <vector>

#include "oracles/systems/operator.h"

namespace samestate {

/// Sizes at which kernels change their behaviour, in [least, most] and ascending: 0..9, powers of two, the
/// first multiples of 8, 16, 32, 64, 128, 192 and 256, the numbers one below and above each of these, the
/// multiples of 8 up to 256, the numbers 3, 5, 7, 9 and 11 times a power of two from 32 on, and primes in
/// between.
[[nodiscard]] std::vector<Index> boundaries(Index least, Index most);

/// Sizes that a kernel may well treat alike: one or two octaves; where a size fills several tiles, multiples
/// of 8 are separated from the others.
struct Band {
  enum class Members { every, aligned, odd };
  std::string name;  ///< for example 8-31, or 8-31/8 whose members are multiples of 8
  Index least = 0, most = 0;
  Members members = Members::every;
  std::vector<Index> values;  ///< the boundaries in it, ascending

  [[nodiscard]] bool holds(Index value) const {
    return value >= least && value <= most &&
           (members == Members::every || (members == Members::aligned) == (value % 8 == 0));
  }
};

/// Bands of the sizes in [least, most] that together contain each size once; if there are few values, each is
/// a band of its own.
[[nodiscard]] std::vector<Band> bands(Index least, Index most);

}  // namespace samestate
