#pragma once

#include <cstdint>
#include <utility>

#include "optimized/cuda/units/emulated_block.h"
#ifdef SAMESTATE_EMULATED_FIBERS
#include "optimized/cuda/units/emulated_fibers.h"
#endif

namespace samestate::cuda::emulation {

/// Runs a block whose threads wait for each other only at barriers of a block or warp, in the way of this
/// build: as fibers or, if a sanitizer is to see races, as host threads. Parameters and errors are those of
/// run_block.
template <class Body>
void run_meeting_block(int threads, Body&& body, std::int64_t number = 0, std::int64_t blocks = 1) {
#ifdef SAMESTATE_EMULATED_FIBERS
  run_block_in_fibers(threads, std::forward<Body>(body), number, blocks);
#else
  run_block(threads, std::forward<Body>(body), number, blocks);
#endif
}

/// Lets the next blocks of this host thread begin with another warp, where the way of this build allows a choice.
inline void take_next_schedule() {
#ifdef SAMESTATE_EMULATED_FIBERS
  ++first_schedule;
#endif
}

}  // namespace samestate::cuda::emulation
