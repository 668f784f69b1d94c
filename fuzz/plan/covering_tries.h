#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "reference/sequence.h"

namespace samestate {

/// The work allowed for a case whose levels cost more than those of most cases, as a multiple of their
/// minimum cost.
inline constexpr double kAboveLeast = 1.5;

/// The largest share of its work that a smaller version of a case may have to replace it when thinning.
inline constexpr double kWorthKeeping = 0.8;

/// The work of a case without any size, so that a gain is weighed against a cost.
inline constexpr double kCaseItself = 0.02;

/// The size that made others possible together.
struct Fix {
  std::size_t factor;
  Index value;
};

/// Why no case was found.
struct Failure {
  double work =
      std::numeric_limits<double>::infinity();  ///< work of the cheapest possible case, else infinite
};

/// One try for a combination: which of the other factors take the level that adds the most.
struct Try {
  enum class Free { all, half_of_sizes, no_size, none } free;
  bool least;          ///< the wanted sizes are set to the least value of their band
  double times = 1.0;  ///< multiple of the usual work
};
inline constexpr std::array kTries{
    Try{Try::Free::all, false},           Try{Try::Free::all, false},
    Try{Try::Free::half_of_sizes, false}, Try{Try::Free::half_of_sizes, true},
    Try{Try::Free::no_size, true},        Try{Try::Free::half_of_sizes, true, 6},
    Try{Try::Free::no_size, true, 6},     Try{Try::Free::none, true, 36},
    Try{Try::Free::none, false, 1e9}};
/// For triples, of which there are a hundred times as many.
inline constexpr std::array kTriesOfTriples{kTries[0], kTries[3], kTries[6], kTries[7]};
inline constexpr Try kAlone{Try::Free::none, true};

/// One round of cases for pairs whose cases were all vacuous.
struct Again {
  Try how;
  Index tokens = -1;  ///< tokens that a case starts from; -1 means those of the start
  int drawn = 0;      ///< number of cases per pair, with other factors as at the start or random; 0 means one
                      ///< case, according to `how`
};
/// With everything else as simple as possible: first with the start's sizes, then with few tokens, then with
/// other cheap choices. Pairs that remain need one particular choice (a scale, a width, data) to show
/// something, which random draws find.
inline constexpr std::array kAgain{
    Again{{Try::Free::none, true}},         Again{{Try::Free::none, true}, 5},
    Again{{Try::Free::no_size, true}, 9},   Again{{Try::Free::none, false}, 2},
    Again{{Try::Free::none, true}, 1, 12},  Again{{Try::Free::none, true}, 3, 12},
    Again{{Try::Free::none, false}, 2, 24}, Again{{Try::Free::none, true}, 1, 48}};

}  // namespace samestate
