#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// What the warps of one block of a call waited for (Kernel::trace), as plain data. Reports read it.
namespace samestate {

/// A wait of one warp; between its waits it works.
struct WarpWait {
  int warp = 0;
  std::string what;               ///< it waited for
  double begin = 0.0, end = 0.0;  ///< seconds from the block's beginning
};

struct BlockTrace {
  std::string variant;                                      ///< what ran; empty: the kernel is one function
  std::int64_t block = 0, blocks = 0;                       ///< which, of how many
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< of its multiprocessor, Hz; NaN: not known
  std::vector<std::string> roles;                           ///< a warp each
  std::vector<double> ends;                                 ///< of the warps, seconds
  std::vector<WarpWait> waits;                              ///< of a warp in order, apart from each other
  bool complete = true;                                     ///< no more waits than were kept
};

}  // namespace samestate
