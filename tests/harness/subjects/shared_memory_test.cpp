#include "harness/subjects/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "harness/run/call_loop.h"

namespace samestate {
namespace {

/// Another process's mapping of the object.
struct Mapped {
  explicit Mapped(const SharedMemory& memory)
      : file(::open(memory.path().c_str(), O_RDWR)),
        size(memory.size()),
        begin(static_cast<std::byte*>(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0))) {}
  ~Mapped() {
    ::munmap(begin, size);
    ::close(file);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  volatile float* at(std::size_t offset) const { return reinterpret_cast<volatile float*>(begin + offset); }

  int file;
  std::size_t size;
  std::byte* begin;
};

std::vector<EdgeRegion> regions(std::size_t q, std::size_t o) {
  return {{"q", true, {.ends_page = true}, {{0, q}}}, {"o", false, {}, {{0, o}}}};
}

void fill(const std::vector<EdgePlace>& places) {
  for (const EdgePlace& place : places) {
    for (const std::span<std::byte>& around : place.around) std::memset(around.data(), 0xff, around.size());
  }
}

TEST(SharedMemory, TensorsLieInPagesOfTheirOwn) {
  SharedMemory memory;
  const auto asked = regions(4000, 100);
  const std::vector<EdgePlace> places = memory.place(asked);
  EXPECT_EQ((places[0].offset + 4032) % kPageBytes, 0U) << "to 64 bytes";
  EXPECT_EQ(places[1].offset % kPageBytes, 0U);
  EXPECT_GE(places[1].offset - places[0].offset, std::size_t{4} << 20);
  fill(places);
  const Mapped mapped(memory);
  *mapped.at(places[1].offset) = 1.0F;
  EXPECT_EQ(*reinterpret_cast<float*>(places[1].data), 1.0F);
  EXPECT_EQ(memory.touched(asked), "");
}

TEST(SharedMemory, APageOfAHoleThatWasTouchedIsNamed) {
  SharedMemory memory;
  const auto asked = regions(4096, 4096);
  for (int again = 0; again < 2; ++again) {
    const std::vector<EdgePlace> places = memory.place(asked);
    fill(places);
    const Mapped mapped(memory);
    EXPECT_EQ(memory.touched(asked), "");
    *mapped.at(places[1].offset + 4096 + 4999 * 4) = 2.0F;
    EXPECT_EQ(memory.touched(asked), "wrote outside o: 5000 elements behind its last");
  }
  std::vector<EdgePlace> places = memory.place(asked);
  fill(places);
  {
    const Mapped mapped(memory);
    volatile float* const beyond = mapped.at(places[0].offset - 64 * 4);
    const float was = *beyond;
    *beyond = 3.0F;
    *beyond = was;
  }
  EXPECT_EQ(memory.touched(asked), "read, or wrote zeros to, the page outside q: 1 element before its first");
}

// The data of a larger call before are gone in the next one.
TEST(SharedMemory, PagesThatAreNoTensorsAreHolesAgain) {
  SharedMemory memory;
  for (const std::size_t size : {100'000, 10, 50'000, 5'000'000, 4, 0, 70'000}) {
    const auto asked = regions(size, 2 * size);
    fill(memory.place(asked));
    EXPECT_EQ(memory.touched(asked), "") << size;
  }
}

TEST(SharedMemory, FarRowsAreHolesBetweenThem) {
  SharedMemory memory;
  std::vector<EdgeRegion> asked{{"k", true, {.unused_before = std::size_t{1} << 33}, {}}};
  for (std::size_t i = 0; i < 4; ++i) asked[0].blocks.push_back({i << 33, 64});
  const std::vector<EdgePlace> places = memory.place(asked);
  ASSERT_EQ(places[0].around.size(), 4U);
  fill(places);
  const Mapped mapped(memory);
  *mapped.at(places[0].offset + (std::size_t{3} << 33)) = 1.0F;
  EXPECT_EQ(memory.touched(asked), "");
  *mapped.at(places[0].offset + (std::size_t{1} << 32)) = 1.0F;
  EXPECT_EQ(memory.touched(asked), "wrote outside k: element 1073741824 of its buffer, in a gap");
}

TEST(SharedMemory, ALaneKeepsItsTensorsWhileAnotherCallIsPlaced) {
  SharedMemory memory(2);
  const auto first = regions(5000, 100), second = regions(90'000, 3'000'000);
  const std::vector<EdgePlace> a = memory.place(first, 0), b = memory.place(second, 1);
  fill(a), fill(b);
  EXPECT_EQ(memory.touched(first, 0), "");
  EXPECT_EQ(memory.touched(second, 1), "");
  const Mapped mapped(memory);
  *mapped.at(b[0].offset + 90'000 + 8192) = 1.0F;
  EXPECT_EQ(memory.touched(second, 1), "wrote outside q: 2049 elements behind its last");
  *reinterpret_cast<float*>(a[1].data) = 2.0F;
  fill(memory.place(second, 1));
  EXPECT_EQ(*reinterpret_cast<float*>(a[1].data), 2.0F) << "the lane's own tensors stay";
  EXPECT_EQ(memory.touched(first, 0), "");
}

TEST(SharedMemory, ALargerCallWaitsForTheOtherLane) {
  SharedMemory memory(2);
  const auto small = regions(5000, 100), large = regions(200'000'000, 100);
  const std::vector<EdgePlace> a = memory.place(small, 0);
  fill(a);
  std::atomic<bool> left = false;
  std::thread other([&] {
    (void)memory.place(large, 1);
    EXPECT_TRUE(left.load()) << "it moved the memory of a call under way";
    memory.leave(1);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (const EdgePlace& place : a) EXPECT_EQ(*place.data, std::byte{0xff});
  left = true;
  memory.leave(0);
  other.join();
}

TEST(SharedMemory, ACallThatFitsInNoAddressSpaceLeavesTheNextOneTheObjectAsItWas) {
  SharedMemory memory;
  (void)memory.place(regions(4096, 4096));
  std::vector<EdgeRegion> far = regions(4096, 4096);
  far[1].place.unused_before = std::size_t{1} << 47;
  EXPECT_THROW((void)memory.place(far), Unavailable);
  EXPECT_EQ(memory.changed(), "");
  const auto asked = regions(4096, 8192);
  const std::vector<EdgePlace> places = memory.place(asked);
  fill(places);
  EXPECT_EQ(memory.touched(asked), "");
  EXPECT_EQ(memory.changed(), "");
}

TEST(SharedMemory, ASubjectThatChangesTheObjectIsSeen) {
  SharedMemory grown, sealed;
  EXPECT_EQ(grown.changed(), "");
  (void)grown.place(regions(100, 100));
  EXPECT_EQ(grown.changed(), "");
  ASSERT_EQ(::truncate(grown.path().c_str(), static_cast<off_t>(2 * grown.size())), 0);
  EXPECT_NE(grown.changed().find("which is the judge's"), std::string::npos);
  const int file = ::open(sealed.path().c_str(), O_RDWR);
  ASSERT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_GROW), 0);
  ::close(file);
  EXPECT_EQ(sealed.changed(), "sealed the memory object, which is the judge's");
}

}  // namespace
}  // namespace samestate
