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

/// Which texts were said already: by this process, or by one that was forked off after it was made. Kept until the process
/// ends, as whoever was forked off may still ask.
class SaidOnce {
 public:
  static constexpr std::size_t kMost = 16;  ///< different texts that are said

  enum class Answer {
    new_text,  ///< say it
    last_new,  ///< say it, and that others are left out from now on
    nothing    ///< it was said, or kMost others were
  };

  /// Throws Error where there is no memory that processes share.
  SaidOnce() {
    void* shared = ::mmap(nullptr, sizeof(Hashes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) throw Error(std::string("no memory to share (") + std::strerror(errno) + ")");
    hashes_ = new (shared) Hashes{};
  }

  /// Of processes that ask at the same time about the same text one is told to say it.
  [[nodiscard]] Answer say(std::string_view text) {
    const std::uint64_t hash = std::max<std::uint64_t>(hash_of(text), 1);  // 0: nothing is there
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
