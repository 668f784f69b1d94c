#pragma once

#include <string>
#include <vector>

#include "oracles/systems/operator.h"

namespace samestate {

/// Where kernels change what they do with a size: 0..9, powers of two, the first multiples of 8, 16, 32, 64, 128, 192
/// and 256, a number below and above each, the multiples of 8 up to 256, the numbers of 3, 5, 7, 9 and 11 times a power
/// of two from 32 on, and primes between, in [least, most]; ascending.
[[nodiscard]] std::vector<Index> boundaries(Index least, Index most);

/// Sizes that a kernel may well treat alike: an octave or two; where a size fills some tiles, multiples of 8 apart from
/// the others.
struct Band {
  enum class Members { every, aligned, odd };
  std::string name;  ///< as in 8-31 or 8-31/8, whose members are multiples of 8
  Index least = 0, most = 0;
  Members members = Members::every;
  std::vector<Index> values;  ///< the boundaries in it, ascending

  [[nodiscard]] bool holds(Index value) const {
    return value >= least && value <= most &&
           (members == Members::every || (members == Members::aligned) == (value % 8 == 0));
  }
};

/// The bands of the sizes in [least, most], which together hold each of them once; every value is a band of its own
/// where there are few.
[[nodiscard]] std::vector<Band> bands(Index least, Index most);

}  // namespace samestate
