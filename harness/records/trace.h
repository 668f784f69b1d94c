#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// The waiting times of the warps of one block of a call (Kernel::trace), as plain data for reports.
namespace samestate {

/// One wait of one warp; between its waits it works.
struct WarpWait {
  int warp = 0;
  std::string what;               ///< what it waited for
  double begin = 0.0, end = 0.0;  ///< seconds since the start of the block
};

struct BlockTrace {
  std::string variant;                 ///< the variant that ran; empty if the kernel is one function
  std::int64_t block = 0, blocks = 0;  ///< index of the block, and the number of blocks
  double clock = std::numeric_limits<double>::quiet_NaN();  ///< multiprocessor clock, Hz; NaN if unknown
  std::vector<std::string> roles;                           ///< one for each warp
  std::vector<double> ends;                                 ///< end of each warp, seconds
  std::vector<WarpWait> waits;  ///< the waits of each warp in order, not overlapping
  bool complete = true;         ///< all waits were recorded
};

}  // namespace samestate
