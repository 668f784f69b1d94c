#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "harness/subjects/edge.h"

namespace samestate {

/// The memory object that judge and subject map: a sparse file in which each tensor has pages of its own with
/// MiB of holes around them. A page of a hole exists once a process has touched it, to read or to write,
/// which reveals the access whichever process made it.
class SharedMemory {
 public:
  /// `lanes` is the number of calls whose tensors may be in it at once, each in its own part. Throws Error if
  /// it cannot be created.
  explicit SharedMemory(int lanes = 1);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The path that the subject opens.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Places the tensors of a call until leave(); only their pages exist. A call that is larger than a lane
  /// waits until the others have left theirs, because it moves them. Throws Unavailable.
  [[nodiscard]] std::vector<EdgePlace> place(std::span<const EdgeRegion> regions, int lane = 0);
  /// The places of the lane will not be read any more.
  void leave(int lane = 0);

  /// The first page of a hole that was touched since, for example "wrote outside o: 20 elements behind its
  /// last"; empty if there is none. `regions` are those passed to place().
  [[nodiscard]] std::string touched(std::span<const EdgeRegion> regions, int lane = 0);

  /// Describes what another process did to the object itself, for example "sealed the memory object"; empty
  /// if it did nothing.
  [[nodiscard]] std::string changed() const;

 private:
  struct Pages {
    std::size_t begin, end;
  };
  struct Lane {
    std::vector<Pages> held;           ///< in ascending order
    std::vector<std::size_t> offsets;  ///< offsets of the regions' first elements
    bool placed = false;
  };
  void grow(std::size_t bytes);
  [[nodiscard]] std::vector<Pages> held() const;
  void punch(std::size_t begin, std::size_t end) const;
  void unmap();

  int file_;
  int seals_ = 0;
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;      ///< bytes that are mapped
  std::size_t made_ = 0;      ///< bytes of the object
  std::vector<Lane> lanes_;   ///< each has an equal part of what is mapped
  mutable std::mutex mutex_;  ///< guards all lanes
  std::condition_variable left_;
};

}  // namespace samestate
