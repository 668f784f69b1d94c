#pragma once

#include <array>

namespace samestate {

/// One try for a combination: which of the other factors take the level that gains most.
struct Try {
  enum class Free { all, half_of_sizes, no_size, none } free;
  bool least;          ///< sizes that are wanted at the least of their band
  double times = 1.0;  ///< the usual work
};
inline constexpr std::array kTries{
    Try{Try::Free::all, false},           Try{Try::Free::all, false},
    Try{Try::Free::half_of_sizes, false}, Try{Try::Free::half_of_sizes, true},
    Try{Try::Free::no_size, true},        Try{Try::Free::half_of_sizes, true, 6},
    Try{Try::Free::no_size, true, 6},     Try{Try::Free::none, true, 36},
    Try{Try::Free::none, false, 1e9}};
/// Of triples, which are a hundred times as many.
inline constexpr std::array kTriesOfTriples{kTries[0], kTries[3], kTries[6], kTries[7]};
inline constexpr Try kAlone{Try::Free::none, true};

}  // namespace samestate
