#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reference/error.h"

/// A thread block of the device as a team of host threads.
namespace samestate::cuda::emulation {

using Words = std::array<std::uint64_t, 4>;

/// Thrown in a thread to end it when another thread of its block has failed.
struct Abandoned {};

/// A barrier where a number of threads meet repeatedly. It also wakes them, without being complete, when the
/// block has failed.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}
  [[nodiscard]] unsigned turn() const { return turn_.load(); }
  /// `turn` is its value before the caller checked if the block has failed: a failure after that check
  /// changes it.
  void arrive_and_wait(unsigned turn) {
    if (complete()) return;
    while (turn_.load() == turn) turn_.wait(turn);
  }
  /// Arrives. Returns true if all have arrived, who are then woken.
  bool complete() {
    if (arrived_.fetch_add(1) + 1 != threads_) return false;
    arrived_ = 0;
    wake();
    return true;
  }
  void wake() {
    turn_.fetch_add(1);
    turn_.notify_all();
  }
  [[nodiscard]] int threads() const { return threads_; }

 private:
  int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> turn_{0};
};

/// Data exchange within one warp. Two tables alternate: a lane can write a table again only after the barrier
/// of the other one, which no lane reaches before it has read this one.
struct Warp {
  Meeting meet{32};
  std::array<std::array<Words, 32>, 2> table{};
};

/// If set, copies to shared memory land, and bulk stores to global memory leave, only when they are waited
/// for; otherwise when they are issued. A kernel has to be correct either way. A test sets it before a block
/// runs.
inline std::atomic<bool> copies_land_late{false};
/// The same for the blocks that this thread runs, if it is set: the gate runs cases side by side.
inline thread_local std::optional<bool> copies_land_late_here;

struct BarrierState;  // emulated_hopper.h
struct Asynchronous;  // operations that a thread has in flight: emulated_hopper.h

struct Block {
  explicit Block(int threads, std::int64_t number = 0, std::int64_t blocks = 1)
      : size(threads),
        index(number),
        of(blocks),
        meet(threads),
        warps(static_cast<std::size_t>(threads / 32)) {
    for (std::unique_ptr<Warp>& warp : warps) warp = std::make_unique<Warp>();
  }

  /// Records the first failure as the block's; every waiting thread is released, so that it ends.
  void fail(const std::string& what) {
    {
      const std::lock_guard lock(guard);
      if (failure.empty()) failure = what;
      failed = true;
    }
    meet.wake();
    for (const std::unique_ptr<Warp>& warp : warps) warp->meet.wake();
    const std::lock_guard lock(guard);
    for (auto& [id, meeting] : named) meeting->wake();
    for (const auto& wake : wakers) wake();
  }

  int size;
  std::int64_t index, of;  ///< index in its grid, and the grid's size
  bool late = copies_land_late_here.value_or(copies_land_late);
  Meeting meet;
  std::vector<std::unique_ptr<Warp>> warps;
  std::atomic<bool> failed{false};
  std::atomic<unsigned> phases{
      0};  ///< the number of completed barriers in shared memory, and of completed uses of the named ones
  std::mutex guard;  ///< guards everything below
  std::string failure;
  std::map<int, std::unique_ptr<Meeting>> named;
  std::vector<std::shared_ptr<BarrierState>> barriers;
  std::vector<std::function<void()>> wakers;
  std::map<std::uintptr_t, int> dirty;  ///< KiB of shared memory -> threads with unfenced stores to it
};

/// Bytes that are being copied to shared memory.
struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  int group;
};

struct Thread {
  Block* block = nullptr;
  int index = 0;
  unsigned turn = 0;
  bool waited = false;  ///< has waited for the preceding grids
  std::shared_ptr<Asynchronous> asynchronous;
  std::function<void()> at_end;  ///< completes the operations that it has in flight
  std::vector<Copy> copies;      ///< copies to shared memory in flight
  int copy_groups = 0;           ///< groups committed so far
  /// Lets the block's other threads run if they are fibers of one host thread; else null.
  std::function<void()> step_aside;
};

inline thread_local Thread no_thread;
inline thread_local Thread* running = &no_thread;
/// The thread of a block that is running the caller.
inline Thread& self() { return *running; }

[[noreturn]] inline void fail(const std::string& what) {
  self().block->fail("thread " + std::to_string(self().index) + ": " + what);
  throw Abandoned{};
}

inline void meet_at(Meeting& meeting) {
  const unsigned turn = meeting.turn();
  if (self().block->failed) throw Abandoned{};  // nobody would wake threads that arrive later
  if (self().step_aside == nullptr) {
    meeting.arrive_and_wait(turn);
  } else if (!meeting.complete()) {
    while (meeting.turn() == turn) self().step_aside();
  }
  if (self().block->failed) throw Abandoned{};
}

/// The values that every lane of the caller's warp passes to the same call.
inline const std::array<Words, 32>& exchange(Words mine) {
  Warp& warp = *self().block->warps[static_cast<std::size_t>(self().index / 32)];
  std::array<Words, 32>& table = warp.table[self().turn++ % 2];
  table[static_cast<std::size_t>(self().index % 32)] = mine;
  meet_at(warp.meet);
  return table;
}

/// Runs `body()` as thread `thread` of a block.
template <class Body>
void run_thread(Block& block, int thread, std::function<void()> step_aside, Body& body) {
  Thread mine;
  mine.block = &block;
  mine.index = thread;
  mine.step_aside = std::move(step_aside);
  running = &mine;
  try {
    body();
    if (mine.at_end) mine.at_end();
  } catch (const Abandoned&) {
  }
  running = &no_thread;
}

/// Runs `body()` in every thread of a block of `threads`, a multiple of 32. Throws Error with the first
/// failure that the emulation detected.
template <class Body>
void run_block(int threads, Body&& body, std::int64_t number = 0, std::int64_t blocks = 1) {
  Block block(threads, number, blocks);
  {
    std::vector<std::jthread> team;
    team.reserve(static_cast<std::size_t>(threads));
    for (int t = 0; t < threads; ++t)
      team.emplace_back([&block, &body, t] { run_thread(block, t, nullptr, body); });
  }
  if (block.failed) throw Error(block.failure);
}

}  // namespace samestate::cuda::emulation
