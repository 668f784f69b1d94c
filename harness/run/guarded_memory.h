#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

struct GuardedSlot;

/// Bytes of a tensor's memory that lie together, counted from its first element.
struct MemoryBlock {
  std::size_t begin = 0, bytes = 0;
};

/// How a tensor lies in the pages that hold it.
struct MemoryPlace {
  std::size_t alignment = 64;  ///< of the first element, in bytes; a power of two, at most a page
  bool ends_page =
      false;  ///< flush with the page behind it, as nearly as the alignment allows; else with the page before
  std::size_t element = 4;        ///< bytes, for messages
  std::size_t unused_before = 0;  ///< address space before the first block that belongs to the tensor too
};

inline constexpr std::size_t kPageBytes = 4096;

/// Memory of one tensor in pages of its own, with address space on both sides that nobody may touch (64 MiB where the machine
/// gives that much). A kernel that touches it, or that writes to an input, is not ended: the page is opened under it,
/// so that nothing else is damaged, and trespass() names the place. This works for every thread of the process.
class GuardedMemory {
 public:
  /// Blocks in ascending order; at most kMostBlocks of them have closed address space between each other. One block
  /// without bytes is an empty tensor. Throws Unavailable (harness/run/call_loop.h) where the machine does not give the memory.
  GuardedMemory(std::vector<MemoryBlock> blocks, const MemoryPlace& place);
  ~GuardedMemory();
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  static constexpr std::size_t kMostBlocks = 512;

  [[nodiscard]] std::byte* data() const;
  [[nodiscard]] const std::vector<MemoryBlock>& blocks() const { return blocks_; }
  /// The pages of block i. What the block leaves of them can be touched, so that the judge fills and checks it.
  [[nodiscard]] std::span<std::byte> pages(std::size_t i) const;

  /// Under which name trespass() speaks of it. From now on what is done to it counts.
  void named(std::string_view name, bool input);
  /// From now on it can only be read.
  void close();

  /// The first thing that was done to it since it was named, as "read outside q: 3 elements behind its end" or "wrote to its
  /// input q: element 5"; empty: nothing.
  [[nodiscard]] std::string trespass() const;

  /// Whether the input that holds this address, where one does, can be written: by the judge, between two calls.
  static void let_write(const void* address, bool may);

 private:
  std::vector<MemoryBlock> blocks_;
  GuardedSlot* slot_ = nullptr;
};

/// Blocks of a tensor of that shape and strides, elements of `element` bytes: one, or one for each row where rows lie at
/// least a MiB apart. Without elements: one block without bytes.
[[nodiscard]] std::vector<MemoryBlock> blocks_of(std::span<const std::int64_t> shape,
                                                 std::span<const std::int64_t> stride, std::size_t element);

/// "outside o: 3 elements behind its last" of an element counted from a tensor's first one, of which it spans `span`.
[[nodiscard]] std::string outside(std::string_view name, std::int64_t element, std::int64_t span);

/// Where a fault ends this process, what was done to the tensors before is left in `note`, kFaultNote bytes that another
/// process reads too; null: nowhere.
inline constexpr std::size_t kFaultNote = 512;
void note_faults(char* note);

}  // namespace samestate
