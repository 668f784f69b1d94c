#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "harness/subjects/edge.h"

namespace samestate {

/// The memory object that judge and subject map: a sparse file, each tensor in pages of its own and MiB of holes around
/// them. A page of a hole is there once a process touched it, to read or to write, which is how that is found out in whatever
/// process it happened.
class SharedMemory {
 public:
  /// `lanes`: calls whose tensors may lie in it at a time, each in a part of its own. Throws Error where there is none.
  explicit SharedMemory(int lanes = 1);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// To be opened by the subject.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Where the tensors of a call lie until leave(); only their pages are there. A call that is larger than a lane waits until the
  /// others have left theirs, since it moves them. Throws Unavailable.
  [[nodiscard]] std::vector<EdgePlace> place(std::span<const EdgeRegion> regions, int lane = 0);
  /// The places of the lane are read no more.
  void leave(int lane = 0);

  /// The first page of a hole that somebody touched since, as "wrote outside o: 20 elements behind its last"; empty: none.
  /// `regions`: as place() got them.
  [[nodiscard]] std::string touched(std::span<const EdgeRegion> regions, int lane = 0);

  /// What somebody else did to the object itself, as "sealed the memory object"; empty: nothing.
  [[nodiscard]] std::string changed() const;

 private:
  struct Pages {
    std::size_t begin, end;
  };
  struct Lane {
    std::vector<Pages> held;           ///< in ascending order
    std::vector<std::size_t> offsets;  ///< of the regions' first elements
    bool placed = false;
  };
  void grow(std::size_t bytes);
  [[nodiscard]] std::vector<Pages> held() const;
  void punch(std::size_t begin, std::size_t end) const;
  void unmap();

  int file_;
  int seals_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;      ///< that are mapped
  std::size_t made_ = 0;      ///< of the object
  std::vector<Lane> lanes_;   ///< each has the same part of what is mapped
  mutable std::mutex mutex_;  ///< of all lanes
  std::condition_variable left_;
};

}  // namespace samestate
