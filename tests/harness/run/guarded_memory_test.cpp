#include "harness/run/guarded_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>

namespace samestate {
namespace {

using Shape = std::vector<std::int64_t>;

volatile float* floats(const GuardedMemory& memory) {
  return reinterpret_cast<volatile float*>(memory.data());
}

GuardedMemory one(std::size_t elements, bool ends_page = false) {
  return {{{0, elements * sizeof(float)}}, {.ends_page = ends_page}};
}

// Whatever the distance, on both sides, and although the value is put back at once.
TEST(GuardedMemory, EveryWriteOutsideIsNamedWithItsDistance) {
  for (const bool ends_page : {false, true}) {
    for (const std::int64_t far : {1, 64, 5000, 100'000, 10'000'000}) {
      for (const bool behind : {false, true}) {
        GuardedMemory memory = one(1024, ends_page);  // a page: both sides are closed
        memory.named("o", false);
        volatile float* const at = floats(memory) + (behind ? 1023 + far : -far);
        *at = 7.0F;
        EXPECT_EQ(*at, 7.0F) << "the kernel goes on";
        EXPECT_EQ(memory.trespass(), "wrote outside o: " + std::to_string(far) +
                                         (far == 1 ? " element " : " elements ") +
                                         (behind ? "behind its last" : "before its first"));
      }
    }
  }
  GuardedMemory memory = one(1024);
  memory.named("q", true);
  volatile float* const at = floats(memory) + 1024 + 63;
  const float was = *at;
  *at = 7.0F;
  *at = was;
  EXPECT_EQ(memory.trespass(), "read outside q: 64 elements behind its last");
}

TEST(GuardedMemory, AWriteToAnInputIsNamedOnWhateverThread) {
  GuardedMemory memory = one(3000);
  std::fill_n(floats(memory), 3000, 1.0F);
  memory.named("beta", true);
  memory.close();
  EXPECT_EQ(std::accumulate(floats(memory), floats(memory) + 3000, 0.0F), 3000.0F);
  EXPECT_EQ(memory.trespass(), "");
  std::thread([&] { floats(memory)[1500] = 1.0F; }).join();
  EXPECT_EQ(memory.trespass(), "wrote to its input beta: element 1500 of its buffer");
}

TEST(GuardedMemory, TheJudgeMayWriteBetweenCalls) {
  GuardedMemory memory = one(10);
  memory.named("q", true);
  memory.close();
  GuardedMemory::let_write(memory.data() + 8, true);
  floats(memory)[2] = 5.0F;
  EXPECT_EQ(memory.trespass(), "");
  GuardedMemory::let_write(memory.data(), false);
  floats(memory)[2] = 6.0F;
  EXPECT_EQ(memory.trespass(), "wrote to its input q: element 2 of its buffer");
}

// Memory that is open may be written, and a machine that is late to make it so is no fault of the kernel.
TEST(GuardedMemory, AFaultInOpenMemoryIsNoTrespass) {
  GuardedMemory memory = one(3000);
  memory.named("v", true);
  ASSERT_EQ(::mprotect(memory.data(), 4096, PROT_READ), 0);
  floats(memory)[0] = 2.0F;
  EXPECT_EQ(memory.trespass(), "");
  EXPECT_EQ(floats(memory)[0], 2.0F);
  memory.close();
  floats(memory)[0] = 3.0F;
  EXPECT_EQ(memory.trespass(), "wrote to its input v: element 0 of its buffer");
}

// A fault outside of any tensor ends the process as it would have without guards.
TEST(GuardedMemory, OtherFaultsAreNotTaken) {
  GuardedMemory memory = one(10);
  memory.named("q", true);
  memory.close();
  EXPECT_EXIT(std::raise(SIGSEGV), ::testing::KilledBySignal(SIGSEGV), "");
  volatile int* volatile nowhere = nullptr;
  EXPECT_EXIT(*nowhere = 1, ::testing::KilledBySignal(SIGSEGV), "");
}

// The reservation of a tensor is the next one's.
TEST(GuardedMemory, WhatStrayedIsClosedAgain) {
  for (int i = 0; i < 100; ++i) {
    GuardedMemory memory = one(i % 2 == 0 ? 1024 : 5000);
    memory.named("o", false);
    EXPECT_EQ(memory.trespass(), "");
    floats(memory)[200'000] = 1.0F;
    EXPECT_NE(memory.trespass(), "") << i;
  }
}

TEST(GuardedMemory, FarRowsHaveClosedAddressSpaceBetweenThem) {
  std::vector<MemoryBlock> rows;
  for (std::size_t i = 0; i < 4; ++i) rows.push_back({i << 32, 40});
  GuardedMemory memory(rows, {.unused_before = std::size_t{1} << 33});
  memory.named("pool", false);
  floats(memory)[(3LL << 30) + 9] = 1.0F;
  EXPECT_EQ(memory.trespass(), "");
  floats(memory)[std::int64_t{1} << 29] = 1.0F;
  EXPECT_EQ(memory.trespass(), "wrote outside pool: element 536870912 of its buffer, between its rows");
  GuardedMemory before(rows, {.unused_before = std::size_t{1} << 33});
  before.named("pool", false);
  floats(before)[-(std::int64_t{1} << 31)] = 1.0F;
  EXPECT_EQ(before.trespass(), "wrote outside pool: 2147483648 elements before its first");
}

TEST(GuardedMemory, ManyTensorsStayWithinTheMapsOfAProcess) {
  const auto maps = [] {
    std::ifstream file("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  };
  const auto before = maps();
  for (int i = 0; i < 3000; ++i) {
    std::vector<GuardedMemory> call;
    for (std::size_t t = 0; t < 10; ++t)
      call.push_back(one(100 * t + static_cast<std::size_t>(i), t % 2 == 0));
    for (GuardedMemory& x : call) x.named("x", true), x.close();
  }
  EXPECT_LT(maps() - before, 200);
}

TEST(GuardedMemory, BlocksAreTheRowsThatLieApart) {
  const auto blocks = [](const Shape& shape, const Shape& stride) { return blocks_of(shape, stride, 4); };
  EXPECT_EQ(blocks({2, 3, 5}, {15, 5, 1}).size(), 1U);
  EXPECT_EQ(blocks({2, 3, 5}, {15, 5, 1})[0].bytes, 120U);
  EXPECT_EQ(blocks({2, 3, 5}, {40, 8, 1})[0].bytes, 4U * (40 + 16 + 4 + 1)) << "gaps are within";
  const std::vector<MemoryBlock> far = blocks({2, 3, 5}, {15, std::int64_t{1} << 31, 1});
  ASSERT_EQ(far.size(), 3U);
  EXPECT_EQ(far[2].begin, std::size_t{1} << 34);
  EXPECT_EQ(far[2].bytes, 80U);
  EXPECT_EQ(blocks({2, 0, 5}, {0, 5, 1})[0].bytes, 0U);
}

}  // namespace
}  // namespace samestate
