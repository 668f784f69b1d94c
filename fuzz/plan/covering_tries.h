#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "reference/sequence.h"

namespace samestate {

/// Work of a case of levels that cost more than most cases do, as a multiple of what they cost at the least.
inline constexpr double kAboveLeast = 1.5;

/// Of the work of a case that thinning makes smaller, what the smaller one may have.
inline constexpr double kWorthKeeping = 0.8;

/// Work of a case of no size: a gain is worth what it costs.
inline constexpr double kCaseItself = 0.02;

/// The size that made others possible together.
struct Fix {
  std::size_t factor;
  Index value;
};

/// Why there was no case.
struct Failure {
  double work =
      std::numeric_limits<double>::infinity();  ///< of the least case that there was; infinite: it is none
};

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

/// One round of cases for pairs whose cases were all vacuous.
struct Again {
  Try how;
  Index tokens = -1;  ///< that a case starts from; -1: the start's
  int drawn = 0;  ///< cases a pair, other factors as the start has them or by chance; 0: one, as `how` says
};
/// With as little else as there can be: of the start's sizes, then of few tokens, then with other choices that do not cost.
/// What is left lacks one choice (a scale, a width, data) that makes it show something: by chance.
inline constexpr std::array kAgain{
    Again{{Try::Free::none, true}},         Again{{Try::Free::none, true}, 5},
    Again{{Try::Free::no_size, true}, 9},   Again{{Try::Free::none, false}, 2},
    Again{{Try::Free::none, true}, 1, 12},  Again{{Try::Free::none, true}, 3, 12},
    Again{{Try::Free::none, false}, 2, 24}, Again{{Try::Free::none, true}, 1, 48}};

}  // namespace samestate
