#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <string_view>

#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate {

/// Records which texts were already printed, by this process or by one that was forked after this object was
/// made. It is kept until the process ends, because forked processes may still ask.
class SaidOnce {
 public:
  static constexpr std::size_t kMost = 16;  ///< the number of different texts that are printed

  enum class Answer {
    new_text,  ///< print it
    last_new,  ///< print it, and add that others are left out from now on
    nothing    ///< it was printed before, or kMost others were
  };

  /// Throws Error if there is no memory that processes can share.
  SaidOnce() {
    void* shared = ::mmap(nullptr, sizeof(Hashes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Error(std::string("no memory to share (") + std::strerror(errno) + ")");
    hashes_ = new (shared) Hashes{};
  }

  /// If several processes ask about the same text at once, one is told to print it.
  [[nodiscard]] Answer say(std::string_view text) {
    const std::uint64_t hash = std::max<std::uint64_t>(hash_of(text), 1);  // 0 marks an empty entry
    for (std::size_t i = 0; i < kMost; ++i) {
      std::uint64_t there = 0;
      if ((*hashes_)[i].compare_exchange_strong(there, hash))
        return i + 1 == kMost ? Answer::last_new : Answer::new_text;
      if (there == hash) return Answer::nothing;
    }
    return Answer::nothing;
  }

 private:
  using Hashes = std::array<std::atomic<std::uint64_t>, kMost>;
  Hashes* hashes_ = nullptr;
};

}  // namespace samestate
