#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

struct GuardedSlot;

/// A contiguous range of bytes of a tensor's memory, relative to its first element.
struct MemoryBlock {
  std::size_t begin = 0, bytes = 0;
};

/// How a tensor is placed in its pages.
struct MemoryPlace {
  std::size_t alignment = 64;  ///< alignment of the first element in bytes; a power of two, at most a page
  bool ends_page =
      false;  ///< it ends at the page after it, as closely as the alignment allows; if false, it starts right
              ///< after the page before it
  std::size_t element = 4;        ///< bytes, for messages
  std::size_t unused_before = 0;  ///< address space before the first block that also belongs to the tensor
};

inline constexpr std::size_t kPageBytes = 4096;

/// The memory of one tensor in pages of its own, with inaccessible address space on both sides (64 MiB if the
/// machine provides it). A kernel that touches that, or writes to an input, is not ended: the page is made
/// accessible, so that nothing else is damaged, and trespass() names the place. This works for every thread
/// of the process.
class GuardedMemory {
 public:
  /// Blocks in ascending order; at most kMostBlocks of them have inaccessible address space in between. One
  /// block without bytes is an empty tensor. Throws Unavailable (harness/run/call_loop.h) if the machine does
  /// not provide the memory.
  GuardedMemory(std::vector<MemoryBlock> blocks, const MemoryPlace& place);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  static constexpr std::size_t kMostBlocks = 512;

  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] const std::vector<MemoryBlock>& blocks() const { return blocks_; }
  /// The pages of block i. The part of them outside the block is accessible, so the judge fills and checks
  /// it.
  [[nodiscard]] std::span<std::byte> pages(std::size_t i) const;

  /// Sets the name that trespass() uses. From now on accesses are recorded.
  void named(std::string_view name, bool input);
  /// Makes the memory read-only from now on.
  void close();

  /// Describes the first violation since the memory was named, for example "read outside q: 3 elements behind
  /// its end" or "wrote to its input q: element 5"; empty if there is none.
  [[nodiscard]] std::string trespass() const;

  /// Allows or forbids writing to the input that contains this address, if one does: for the judge, between
  /// two calls.
  static void let_write(const void* address, bool may);

 private:
  std::vector<MemoryBlock> blocks_;
  GuardedSlot* slot_ = nullptr;
};

/// The blocks of a tensor with that shape and strides, and elements of `element` bytes: one block, or one per
/// row if rows are at least a MiB apart. Without elements, one block without bytes.
[[nodiscard]] std::vector<MemoryBlock> blocks_of(std::span<const std::int64_t> shape,
                                                 std::span<const std::int64_t> stride, std::size_t element);

/// Returns "outside o: 3 elements behind its last" for an element, counted from the first one of a tensor
/// that spans `span` elements.
[[nodiscard]] std::string outside(std::string_view name, std::int64_t element, std::int64_t span);

/// If a fault ends this process, a description of what was done to the tensors before it is left in `note`,
/// kFaultNote bytes that another process can read too. Null means that no description is left.
inline constexpr std::size_t kFaultNote = 512;
void note_faults(char* note);

}  // namespace samestate
