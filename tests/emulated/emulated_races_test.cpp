#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "optimized/cuda/host/emulated_device.h"
#include "optimized/cuda/units/emulated_block.h"

/// Tests what a sanitizer sees of the emulation, in a build of its own with host threads: the tests of
/// kernels that are linked with this file are free of reports, and these two faults, which the default run
/// leaves out, have one.
namespace samestate::cuda {
namespace {

constexpr int kThreads = 128;

TEST(EmulatedRaces, DISABLED_AMissingBarrier) {
  std::array<int, kThreads> words{};
  std::array<int, kThreads> seen{};
  emulation::run_block(kThreads, [&] {
    const auto t = static_cast<std::size_t>(thread_index());
    words[t] = thread_index();
    seen[t] = words[(t + 32) % kThreads];  // of another warp
  });
}

TEST(EmulatedRaces, DISABLED_AWriteBehindSharedMemory) {
  std::vector<int> shared(kThreads);
  emulation::run_block(kThreads, [&] {
    shared.data()[thread_index() + 1] = 1;
    block_barrier();
  });
}

}  // namespace
}  // namespace samestate::cuda
