#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "harness/run/guard.h"
#include "harness/run/guarded_memory.h"

namespace samestate {
namespace guarded {

using Address = std::uintptr_t;

/// Pages outside that are opened one at a time; a kernel that goes on gets more at once.
inline constexpr int kSinglePages = 16;
inline constexpr std::size_t kPagesAtOnce = 64;
/// Faults of one tensor in memory that is open, after which the machine is taken to be unable to open it.
inline constexpr int kMostLate = 1000;

enum class Access { unknown, write, read, execute };

constexpr Address page_of(Address a) { return a / kPageBytes * kPageBytes; }
constexpr std::size_t whole_pages(std::size_t bytes) { return page_of(bytes + kPageBytes - 1); }

inline int protect(Address begin, std::size_t bytes, int protection) {
  return bytes == 0 ? 0 : ::mprotect(reinterpret_cast<void*>(begin), bytes, protection);
}

}  // namespace guarded

/// A reservation of address space. While its tensor lives the fault handler reads it, on whichever thread
/// that runs.
struct GuardedSlot {
  using Address = guarded::Address;
  using Access = guarded::Access;
  std::atomic<bool> live{false};
  Address begin = 0, end = 0;  ///< the whole reservation
  Address first = 0;           ///< the page at which the memory starts
  std::size_t capacity = 0;  ///< bytes from there that any tensor may use; 0 if it belongs to one tensor only
  std::size_t open = 0;      ///< bytes from there that are accessible; 0 if there are several blocks
  std::vector<MemoryBlock> blocks;  ///< used if there are several
  Address data = 0;
  std::size_t span = 0, element = 4;
  std::array<char, 64> name{};
  bool input = false;
  std::atomic<bool> closed{false};  ///< it is read-only
  /// The first fault.
  std::atomic<Address> fault{0};
  std::atomic<Access> access{Access::unknown};
  /// All pages outside that were opened are between these.
  std::atomic<Address> strayed_begin{0}, strayed_end{0};
  std::atomic<int> strays{0};
  std::atomic<int> late{0};  ///< faults in memory that is open

  template <class F>
  void each_part(F&& f) const {
    if (blocks.empty()) f(first, open);
    for (const MemoryBlock& b : blocks) {
      const Address from = guarded::page_of(data + b.begin);
      f(from, guarded::whole_pages(data + b.begin + b.bytes) - from);
    }
  }
  [[nodiscard]] bool owns(Address a) const {
    bool found = false;
    each_part([&](Address from, std::size_t bytes) { found = found || (a >= from && a - from < bytes); });
    return found;
  }
  [[nodiscard]] bool protect_all(int protection) const {
    bool done = true;
    each_part([&](Address from, std::size_t bytes) {
      done = guarded::protect(from, bytes, protection) == 0 && done;
    });
    return done;
  }

  [[nodiscard]] bool let(bool write) {
    if (closed.load() != write) return true;
    closed.store(!write);
    return protect_all(write ? PROT_READ | PROT_WRITE : PROT_READ);
  }

  /// Writes the text of trespass() without a terminating null, and returns the number of characters.
  std::size_t describe(char* out, std::size_t size) const {
    const Address at = fault.load();
    if (at == 0) return 0;
    const Access how = access.load();
    const char* verb = how == Access::write ? "wrote" : how == Access::read ? "read" : "touched memory";
    const auto offset = static_cast<std::int64_t>(at - data), all = static_cast<std::int64_t>(span);
    const auto step = static_cast<std::int64_t>(element);
    const char* const of = name.data();
    if (offset >= 0 && offset < all && owns(at))
      return fmt::format_to_n(out, size, "wrote to its input {}: element {} of its buffer", of, offset / step)
          .size;
    if (offset < 0 || offset >= all) {
      const std::int64_t far = offset < 0 ? (step - 1 - offset) / step : (offset - all) / step + 1;
      return fmt::format_to_n(out, size, "{} outside {}: {} element{} {}", verb, of, far, far == 1 ? "" : "s",
                              offset < 0 ? "before its first" : "behind its last")
          .size;
    }
    return fmt::format_to_n(out, size, "{} outside {}: element {} of its buffer, between its rows", verb, of,
                            offset / step)
        .size;
  }

  /// Makes a page of the reservation accessible. Returns false if the machine does not allow it, or the
  /// access is an instruction fetch.
  bool absorb(Address at, Access how) {
    // Everybody may write what is open. Where CUDA's driver works on the same pages, a machine was late to open them for
    // the judge, once in some 5,000 calls with far tensors.
    if (how != Access::execute && owns(at) && !closed.load())
      return late.fetch_add(1) < guarded::kMostLate && protect_all(PROT_READ | PROT_WRITE);
    Address none = 0;
    if (fault.compare_exchange_strong(none, at)) access.store(how);
    if (how == Access::execute) return false;
    if (owns(at)) return how != Access::read && let(true);
    const std::size_t most = strays.fetch_add(1) < guarded::kSinglePages ? 1 : guarded::kPagesAtOnce;
    const Address from = guarded::page_of(at);
    Address to = from;
    for (std::size_t i = 0; i < most && to < end && !owns(to); ++i) to += kPageBytes;
    if (guarded::protect(from, to - from, PROT_READ | PROT_WRITE) != 0) return false;
    if (strayed_begin.load() == 0 || from < strayed_begin.load()) strayed_begin.store(from);
    if (to > strayed_end.load()) strayed_end.store(to);
    // A value that is visible in the outputs if it is read; as the offset of a token it ends a loop.
    constexpr std::int64_t kNoOffset = -0x5a5a5a5a;
    const float outside = kOutside;
    for (Address a = from; a < to; a += 8) {
      if (element == 8) {
        std::memcpy(reinterpret_cast<void*>(a), &kNoOffset, 8);
      } else {
        std::memcpy(reinterpret_cast<void*>(a), &outside, 4);
        std::memcpy(reinterpret_cast<void*>(a + 4), &outside, 4);
      }
    }
    return true;
  }

  void close_strays() {
    const Address from = strayed_begin.exchange(0), to = strayed_end.exchange(0);
    const auto drop = [](Address begin, Address end) {
      if (begin < end)
        (void)::mmap(reinterpret_cast<void*>(begin), end - begin, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    };
    if (from == 0) return;
    drop(from, std::min(to, first));
    drop(std::max(from, first + open), to);
  }
};

}  // namespace samestate
