#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "optimized/cuda/units/emulated_run.h"
#include "optimized/cuda/units/emulation.h"
#include "optimized/kernel.h"

/// The runtime functions that kernels of named tensors need, emulated on the host: memory and launches,
/// without timing.
namespace samestate::cuda {

using cudaStream_t = void*;

inline std::int64_t block_index() { return emulation::self().block->index; }
inline std::int64_t grid_blocks() { return emulation::self().block->of; }

/// Runs the blocks one after another. Shared memory is NaN at the start of each, and no larger than
/// requested.
template <class Body>
void launch(unsigned blocks, std::size_t shared_bytes, const typename Body::Parameters& p, cudaStream_t) {
  for (unsigned block = 0; block < blocks; ++block) {
    const auto shared = std::make_unique<std::max_align_t[]>(shared_bytes / sizeof(std::max_align_t) + 1);
    std::memset(shared.get(), 0xff, shared_bytes);
    const auto body = [&] { Body::run(p, reinterpret_cast<unsigned char*>(shared.get())); };
    emulation::run_meeting_block(Body::kThreads, body, block, blocks);
  }
}

/// `bytes` bytes that end, up to 15 bytes of alignment, at the end of a page, followed by an inaccessible
/// page; filled with NaN at the start. A kernel that reads or writes beyond its tensors therefore crashes,
/// and one that reads memory it has not written gives wrong results.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes) {
    if (bytes == 0) return;
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t aligned = (bytes + 15) / 16 * 16, pages = (aligned + page - 1) / page * page;
    mapped_ = pages + page;
    void* const begin = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED || ::mprotect(static_cast<char*>(begin) + pages, page, PROT_NONE) != 0)
      throw std::bad_alloc();
    begin_ = begin;
    data_ = static_cast<char*>(begin) + pages - aligned;
    std::memset(data_, 0xff, aligned);
  }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    if (begin_ != nullptr) ::munmap(begin_, mapped_);
  }
  [[nodiscard]] void* data() const { return data_; }

 private:
  std::size_t mapped_ = 0;
  void *begin_ = nullptr, *data_ = nullptr;
};

/// `size` elements, 16-byte aligned; for size 0 there is no memory, and data() is null.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t size)
      : size_(size), memory_(size * sizeof(T)), data_(static_cast<T*>(memory_.data())) {}
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(T); }
  void fill(int byte, cudaStream_t) const {
    if (size_ > 0) std::memset(static_cast<void*>(data_), byte, bytes());
  }
  [[nodiscard]] std::vector<T> download() const { return std::vector<T>(data_, data_ + size_); }

 private:
  std::size_t size_;
  GuardedMemory memory_;
  T* data_;
};

struct Device {
  std::optional<int> info = 0;
  std::string reason;
};
inline const Device& device() {
  static const Device kEmulated;
  return kEmulated;
}
inline void check_launch(const char*) {}
/// True: the emulation has the asynchronous matrix unit.
inline bool has_asynchronous_products() { return true; }

}  // namespace samestate::cuda
