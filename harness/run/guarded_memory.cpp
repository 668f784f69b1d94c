#include "harness/run/guarded_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <numeric>

#include "harness/run/call_loop.h"
#include "harness/run/guarded_slot.h"

namespace samestate {
namespace {

using namespace guarded;

/// Inaccessible address space on each side: the first of these sizes that the machine grants. Near a limit of
/// the process the first size would take what the judge itself needs.
constexpr std::array<std::size_t, 3> kClosed{std::size_t{64} << 20, std::size_t{1} << 20, kPageBytes};
constexpr std::uint64_t kNearLimit = std::uint64_t{64} << 30;

std::size_t closed_at_most() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < kNearLimit ? kClosed[1] : kClosed[0];
}

/// Sizes of reservations that are reused for one tensor after another; a larger tensor has a reservation of
/// its own.
constexpr std::array<std::size_t, 3> kCapacities{std::size_t{256} << 10, std::size_t{4} << 20,
                                                 std::size_t{64} << 20};
/// The most memory that all unused reservations keep together.
constexpr std::size_t kMostKept = std::size_t{256} << 20;
constexpr std::size_t kMostSlots = 4096;
[[noreturn]] void refuse(std::size_t bytes, std::string_view what) {
  throw Unavailable({Outcome::Kind::no_device,
                     fmt::format("{} MiB of {} for a tensor between guard pages: {}; raise ulimit -v, set "
                                 "vm.overcommit_memory to 0 or 1, or leave out layout=far",
                                 (bytes >> 20) + 1, what, std::strerror(errno))});
}

}  // namespace

namespace {

extern "C" void on_fault(int signal, siginfo_t* info, void* context);

/// Holds all reservations of the process.
class Slots {
 public:
  /// Never destroyed: a tensor or a fault may come after the end of any static object.
  static Slots& all() {
    static Slots* const one = new Slots;
    return *one;
  }

  /// Safe to call in a signal handler.
  GuardedSlot* holding(Address a) {
    for (std::size_t i = 0, n = used_.load(); i < n; ++i) {
      if (slots_[i].live.load() && a >= slots_[i].begin && a < slots_[i].end) return &slots_[i];
    }
    return nullptr;
  }
  GuardedSlot* faulted() {
    for (std::size_t i = 0, n = used_.load(); i < n; ++i) {
      if (slots_[i].live.load() && slots_[i].fault.load() != 0) return &slots_[i];
    }
    return nullptr;
  }

  /// A library that a kernel loads may replace this handler with its own.
  void watch() {
    struct sigaction now {};
    if (::sigaction(SIGSEGV, nullptr, &now) != 0) return;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &on_fault) return;
    const std::scoped_lock lock(mutex_);
    before = now;
    struct sigaction ours {};
    ours.sa_sigaction = &on_fault;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &ours, nullptr);
  }

  /// Returns a reservation of which exactly this many bytes, in whole pages, can be accessed.
  GuardedSlot* take(std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    const std::size_t kind = kind_of(bytes);
    GuardedSlot* slot = nullptr;
    if (kind < kCapacities.size() && !free_[kind].empty()) {
      std::vector<GuardedSlot*>& list = free_[kind];
      auto at =
          std::find_if(list.rbegin(), list.rend(), [&](const GuardedSlot* s) { return s->open == bytes; });
      if (at == list.rend()) at = list.rbegin();
      std::iter_swap(at, list.rbegin());
      slot = list.back();
      list.pop_back();
      kept_ -= slot->open;
    } else {
      slot = reserved(0, kind < kCapacities.size() ? kCapacities[kind] : bytes, false);
      slot->capacity = kind < kCapacities.size() ? kCapacities[kind] : 0;
    }
    const std::size_t least = std::min(bytes, slot->open), most = std::max(bytes, slot->open);
    if (protect(slot->first + least, most - least, bytes > slot->open ? PROT_READ | PROT_WRITE : PROT_NONE) !=
        0) {
      give_up(*slot);
      refuse(bytes, "memory");
    }
    slot->open = bytes;
    return slot;
  }

  /// Returns a reservation for a single tensor, of which nothing can be touched yet. If it is `shared`, its
  /// memory does not count as the process's data, for which a worker has a limit.
  GuardedSlot* take_alone(std::size_t before, std::size_t bytes, bool shared) {
    const std::scoped_lock lock(mutex_);
    return reserved(before, bytes, shared);
  }

  void put_back(GuardedSlot& slot) {
    const std::scoped_lock lock(mutex_);
    slot.live.store(false);
    const std::size_t kind = kind_of(slot.capacity);
    if (slot.capacity == 0 || kept_ + slot.open > kMostKept) return give_up(slot);
    slot.close_strays();
    kept_ += slot.open;
    free_[kind].push_back(&slot);
  }

  char* note = nullptr;
  struct sigaction before {};

 private:
  static std::size_t kind_of(std::size_t bytes) {
    const auto at = std::ranges::find_if(kCapacities, [&](std::size_t most) { return bytes <= most; });
    return static_cast<std::size_t>(at - kCapacities.begin());
  }

  GuardedSlot* reserved(std::size_t before_first, std::size_t bytes, bool shared) {
    const std::size_t most = closed_at_most();
    for (const std::size_t closed : kClosed) {
      if (closed > most) continue;
      const std::size_t all = closed + before_first + bytes + closed;
      void* at = ::mmap(nullptr, all, PROT_NONE,
                        (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (at == MAP_FAILED) continue;
      GuardedSlot& slot = unused();
      slot.begin = reinterpret_cast<Address>(at);
      slot.end = slot.begin + all;
      slot.first = slot.begin + closed + before_first;
      slot.capacity = slot.open = 0;
      return &slot;
    }
    refuse(before_first + bytes, "address space");
  }

  GuardedSlot& unused() {
    if (!without_.empty()) {
      GuardedSlot& slot = *without_.back();
      without_.pop_back();
      return slot;
    }
    const std::size_t n = used_.load();
    if (n == kMostSlots)
      throw Unavailable({Outcome::Kind::no_device,
                         fmt::format("{} tensors at once between guard pages: use fewer --threads", n)});
    used_.store(n + 1);
    return slots_[n];
  }

  void give_up(GuardedSlot& slot) {
    ::munmap(reinterpret_cast<void*>(slot.begin), slot.end - slot.begin);
    slot.strayed_begin.store(0), slot.strayed_end.store(0);
    slot.blocks.clear();
    without_.push_back(&slot);
  }

  std::mutex mutex_;
  std::array<GuardedSlot, kMostSlots> slots_;
  std::atomic<std::size_t> used_{0};
  std::size_t kept_ = 0;  ///< touchable bytes of reservations without a tensor
  std::vector<GuardedSlot*> without_;
  std::array<std::vector<GuardedSlot*>, kCapacities.size()> free_;
};

Access access_of([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  const auto bits = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR];
  return (bits & 16) != 0 ? Access::execute : (bits & 2) != 0 ? Access::write : Access::read;
#else
  return Access::unknown;
#endif
}

extern "C" void on_fault(int, siginfo_t* info, void* context) {
  const int error = errno;
  Slots& all = Slots::all();
  const auto at = reinterpret_cast<Address>(info->si_addr);
  GuardedSlot* slot = info->si_code == SEGV_ACCERR ? all.holding(at) : nullptr;
  if (slot != nullptr && slot->absorb(at, access_of(context))) {
    errno = error;
    return;
  }
  // The instruction runs again, and the handler that was there before handles its fault.
  if (slot == nullptr) slot = all.faulted();
  if (all.note != nullptr && slot != nullptr) {
    const std::size_t size = slot->describe(all.note, kFaultNote - 1);
    all.note[std::min(size, kFaultNote - 1)] = '\0';
  }
  ::sigaction(SIGSEGV, &all.before, nullptr);
  // A fault sent by another process is not raised again by any instruction.
  if (info->si_code <= 0) ::raise(SIGSEGV);
  errno = error;
}

}  // namespace

GuardedMemory::GuardedMemory(std::vector<MemoryBlock> blocks, const MemoryPlace& place)
    : blocks_(std::move(blocks)) {
  const std::size_t span = blocks_.back().begin + blocks_.back().bytes;
  const std::size_t pages = whole_pages(span);
  if (blocks_.size() == 1) {
    slot_ = Slots::all().take(pages);
  } else {
    const bool apart = blocks_.size() <= kMostBlocks;
    slot_ = Slots::all().take_alone(whole_pages(place.unused_before), pages, !apart);
    if (apart) slot_->blocks = blocks_;
    if (!apart) slot_->open = pages;
  }
  slot_->data = slot_->first + (place.ends_page ? (pages - span) / place.alignment * place.alignment : 0);
  slot_->span = span;
  slot_->element = place.element;
  slot_->name[0] = '\0';
  slot_->input = false;
  slot_->fault.store(0);
  slot_->strays.store(0);
  slot_->late.store(0);
  if (blocks_.size() > 1 && !slot_->protect_all(PROT_READ | PROT_WRITE)) {
    const int error = errno;
    Slots::all().put_back(*slot_);
    errno = error;
    refuse(span, "address space");
  }
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : blocks_(std::move(other.blocks_)), slot_(std::exchange(other.slot_, nullptr)) {}

GuardedMemory::~GuardedMemory() {
  if (slot_ == nullptr) return;
  (void)slot_->let(true);
  Slots::all().put_back(*slot_);
}

std::byte* GuardedMemory::data() const { return reinterpret_cast<std::byte*>(slot_->data); }

std::span<std::byte> GuardedMemory::pages(std::size_t i) const {
  const Address from = page_of(slot_->data + blocks_[i].begin);
  const Address to = whole_pages(slot_->data + blocks_[i].begin + blocks_[i].bytes);
  return {reinterpret_cast<std::byte*>(from), to - from};
}

void GuardedMemory::named(std::string_view name, bool input) {
  const std::size_t size = std::min(name.size(), slot_->name.size() - 1);
  std::copy_n(name.begin(), size, slot_->name.begin());
  slot_->name[size] = '\0';
  slot_->input = input;
  Slots::all().watch();
  slot_->live.store(true);
}

void GuardedMemory::close() {
  if (!slot_->let(false)) refuse(slot_->span, "memory that can only be read");
}

std::string GuardedMemory::trespass() const {
  std::array<char, kFaultNote> text{};
  return {text.data(), std::min(slot_->describe(text.data(), text.size()), text.size())};
}

void GuardedMemory::let_write(const void* address, bool may) {
  GuardedSlot* slot = Slots::all().holding(reinterpret_cast<Address>(address));
  if (slot != nullptr && slot->input) (void)slot->let(may);
}

std::vector<MemoryBlock> blocks_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> stride,
                                   std::size_t element) {
  constexpr std::int64_t kApart = std::int64_t{1} << 20;
  std::vector<std::size_t> order(shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t d) { return stride[d]; });
  const auto size = static_cast<std::int64_t>(element);
  std::int64_t row = size;
  std::vector<MemoryBlock> blocks{{}};
  for (const std::size_t d : order) {
    if (shape[d] == 0) return {{}};
    const std::int64_t step = stride[d] * size;
    if (shape[d] == 1) continue;
    if (blocks.size() == 1 && step - row < kApart) {
      row += (shape[d] - 1) * step;
      continue;
    }
    std::vector<MemoryBlock> rows;
    for (std::int64_t i = 0; i < shape[d]; ++i) {
      for (const MemoryBlock& b : blocks) rows.push_back({static_cast<std::size_t>(i * step) + b.begin, 0});
    }
    blocks = std::move(rows);
  }
  for (MemoryBlock& b : blocks) b.bytes = static_cast<std::size_t>(row);
  return blocks;
}

std::string outside(std::string_view name, std::int64_t element, std::int64_t span) {
  const auto elements = [](std::int64_t n) { return fmt::format("{} element{}", n, n == 1 ? "" : "s"); };
  if (element < 0) return fmt::format("outside {}: {} before its first", name, elements(-element));
  if (element >= span)
    return fmt::format("outside {}: {} behind its last", name, elements(element - span + 1));
  return fmt::format("outside {}: element {} of its buffer, in a gap", name, element);
}

void note_faults(char* note) { Slots::all().note = note; }

}  // namespace samestate
