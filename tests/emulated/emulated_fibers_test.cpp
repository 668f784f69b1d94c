#include "optimized/cuda/units/emulated_fibers.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "optimized/cuda/host/emulated_device.h"

/// Tests what the emulated gate finds in a kernel, on planted faults.
namespace samestate::cuda {
namespace {

constexpr int kThreads = 128;

template <class Body>
std::string failure(Body&& body, std::int64_t schedule, bool late = false) {
  emulation::first_schedule = schedule;
  emulation::copies_land_late_here = late;
  try {
    emulation::run_block_in_fibers(kThreads, body);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Warps that hand words to the warp `ahead` of them: the number of wrong ones, by `with_barrier`.
int wrong_words(std::int64_t schedule, int ahead, bool with_barrier) {
  std::array<int, kThreads> words{};
  std::array<int, kThreads> seen{};
  const auto body = [&] {
    const int t = thread_index();
    warp_barrier();
    words[static_cast<std::size_t>(t)] = t + 1;
    if (with_barrier) block_barrier();
    warp_barrier();
    seen[static_cast<std::size_t>(t)] = words[static_cast<std::size_t>((t + 32 * ahead) % kThreads)];
  };
  EXPECT_EQ(failure(body, schedule), "");
  int wrong = 0;
  for (int t = 0; t < kThreads; ++t)
    wrong += seen[static_cast<std::size_t>(t)] == (t + 32 * ahead) % kThreads + 1 ? 0 : 1;
  return wrong;
}

TEST(EmulatedFibers, AMissingBlockBarrierIsMetInOneOfTheSchedules) {
  for (std::int64_t schedule = 0; schedule < emulation::kSchedules; ++schedule) {
    EXPECT_EQ(wrong_words(schedule, 1, true), 0);
    EXPECT_EQ(wrong_words(schedule, 3, true), 0);
  }
  // Three of four warps read what a later one has yet to write, or the other way round.
  EXPECT_EQ(wrong_words(1, 1, false), 96);
  EXPECT_EQ(wrong_words(2, 3, false), 96);
}

TEST(EmulatedFibers, ThreadsThatWaitForOneAnotherFail) {
  for (std::int64_t schedule = 0; schedule < emulation::kSchedules; ++schedule) {
    const std::string text =
        failure([] { thread_index() < 32 ? block_barrier() : warp_barrier(); }, schedule);
    EXPECT_NE(text.find("waits for another"), text.npos) << text;
  }
}

TEST(EmulatedFibers, CopiesLandEarlyOrLateAsTheBlockIsTold) {
  for (const bool late : {false, true}) {
    alignas(16) std::array<float, 4> from{1, 2, 3, 4}, to{};
    float before = -1.0F, after = -1.0F;
    EXPECT_EQ(failure(
                  [&] {
                    if (thread_index() != 0) return;
                    copy_async_16(to.data(), from.data());
                    copies_commit();
                    before = to[3];
                    copies_wait<0>();
                    after = to[3];
                  },
                  0, late),
              "");
    EXPECT_EQ(before, late ? 0.0F : 4.0F);
    EXPECT_EQ(after, 4.0F);
  }
}

TEST(EmulatedFibers, CopiesWantTheirAlignment) {
  alignas(16) std::array<float, 12> memory{};
  for (const auto& [to, from] : {std::pair{4, 1}, std::pair{5, 0}}) {
    const std::string text = failure(
        [&, to = to, from = from] {
          if (thread_index() == 0) copy_async_16(memory.data() + to, memory.data() + from);
        },
        0);
    EXPECT_NE(text.find("no multiple"), text.npos) << text;
  }
}

TEST(EmulatedDevice, MemoryBeginsAsNaNAndEndsAtAPageThatNobodyMayTouch) {
  const DeviceBuffer<float> buffer(std::size_t{5000});
  EXPECT_TRUE(std::isnan(buffer.data()[0]));
  EXPECT_TRUE(std::isnan(buffer.data()[4999]));
  volatile float* const data = buffer.data();
  EXPECT_DEATH(data[5000] = 1.0F, "");
  EXPECT_DEATH((void)data[5000], "");
  EXPECT_EQ(DeviceBuffer<float>(std::size_t{0}).data(), nullptr);
}

}  // namespace
}  // namespace samestate::cuda
