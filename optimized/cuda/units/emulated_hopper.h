#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "optimized/cuda/units/emulation.h"

/// The functions of hopper.cuh on the host. Mistakes that the device would let pass by luck end the block
/// with a message: a wait of a minute, a copy or a product that reads a KiB of shared memory that was stored
/// to since the writer's last fence_async(), or a barrier with another number of threads.
namespace samestate::cuda {
namespace emulation {

inline constexpr std::chrono::milliseconds kPatience{60000};
/// How long a wait may take before it fails the block; tests of such failures shorten it.
inline std::chrono::milliseconds patience = kPatience;
/// If copies land late: how much later than the earliest time stores read shared memory; some products are
/// late by half of it. A test of rings lengthens it.
inline std::chrono::microseconds lateness{500};

struct BarrierState {
  std::mutex guard;
  std::condition_variable changed;
  int arrivals = 0, missing = 0, phase = 0;
  std::int64_t bytes = 0;
  /// Copies that land when a thread waits for them, and their sizes: a thread that does not wait does not
  /// find the data.
  std::vector<std::pair<std::function<void()>, int>> under_way;

  /// Requires `guard` to be held.
  void settle() {
    if (missing > 0 || bytes != 0) return;
    ++phase;
    ++self().block->phases;
    missing = arrivals;
    changed.notify_all();
  }
};

/// The multiplications of 16 inner elements that are in flight to the same results, and the results so far.
struct Product {
  /// Checks for one of them that a tile still holds the same values.
  struct Check {
    int group;
    std::function<void()> run;
  };
  float* c;
  int group;  ///< group of the last one
  std::vector<float> sums;
  std::vector<Check> recheck;
};

struct Asynchronous {
  std::set<std::uintptr_t> dirty;  ///< KiB of shared memory with unfenced stores by this thread
  std::vector<Product> products;
  int groups = 0;  ///< committed groups

  /// A bulk store: it reads shared memory, and returns a function that then writes global memory.
  using Store = std::function<std::function<void()>()>;
  std::vector<Store> uncommitted, unread;
  std::vector<std::function<void()>> unwritten;
  bool reading = false, writing = false;  ///< stores are committed, but nobody has waited for their reads or
                                          ///< writes

  void commit_stores() {
    unread.insert(unread.end(), uncommitted.begin(), uncommitted.end());
    if (!unread.empty()) reading = writing = true;
    uncommitted.clear();
    if (!self().block->late) read_stores(), write_stores();
  }
  void read_stores() {
    for (const Store& store : unread) unwritten.push_back(store());
    unread.clear();
  }
  void write_stores() {
    read_stores();
    for (const auto& write : unwritten) write();
    unwritten.clear();
  }
  /// The end of the thread: global memory is still written, but shared memory can no longer be read.
  void end() {
    if (!uncommitted.empty()) fail("ends with a bulk store that is not committed");
    if (reading) fail("ends while a bulk store may still read shared memory");
    write_stores();
  }
};

inline Asynchronous& asynchronous() {
  if (!self().asynchronous) {
    self().asynchronous = std::make_shared<Asynchronous>();
    self().at_end = [] { asynchronous().end(); };
  }
  return *self().asynchronous;
}

inline void mark_dirty(const void* at) {
  const std::uintptr_t kib = reinterpret_cast<std::uintptr_t>(at) / 1024;
  if (!asynchronous().dirty.insert(kib).second) return;
  const std::lock_guard lock(self().block->guard);
  ++self().block->dirty[kib];
}

inline void expect_clean(const void* from, std::int64_t bytes, const char* reader) {
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(from) / 1024;
  const std::uintptr_t last =
      (reinterpret_cast<std::uintptr_t>(from) + static_cast<std::uintptr_t>(bytes) - 1) / 1024;
  bool found = false;
  {
    const std::lock_guard lock(self().block->guard);
    const auto next = self().block->dirty.lower_bound(first);
    found = next != self().block->dirty.end() && next->first <= last;
  }
  if (found) fail(std::string(reader) + " reads shared memory that was stored to without fence_async()");
}

}  // namespace emulation

class Barrier {
 public:
  void init(int arrivals) {
    auto state = std::make_shared<emulation::BarrierState>();
    state->arrivals = state->missing = arrivals;
    state_ = state.get();
    const std::lock_guard lock(emulation::self().block->guard);
    emulation::self().block->barriers.push_back(state);
    emulation::self().block->wakers.emplace_back([state] { state->changed.notify_all(); });
  }
  void expect(int bytes) { change(1, bytes); }
  void arrive() { change(1, 0); }
  void arrive_warp() {
    warp_barrier();
    if (thread_index() % 32 == 0) change(1, 0);
  }
  /// A copy that completes `bytes` here: now, or when a thread waits.
  void land(std::function<void()> copy, int bytes) {
    if (!emulation::copies_land_late_here.value_or(emulation::copies_land_late)) {
      copy();
      change(0, -bytes);
      return;
    }
    const std::lock_guard lock(state_->guard);
    state_->under_way.emplace_back(std::move(copy), bytes);
    state_->changed.notify_all();
  }
  void wait(int phase) {
    std::unique_lock lock(state_->guard);
    let_land(lock);
    if (state_->phase < phase) emulation_fail(lock, "waits for a phase before the one before it is complete");
    if (state_->phase > phase + 1) emulation_fail(lock, "waits for a phase after the next one is complete");
    const auto over = [&] { return state_->phase > phase || emulation::self().block->failed; };
    // Fibers of one thread let each other run; their scheduler notices if all of them wait.
    while (emulation::self().step_aside != nullptr && !over()) {
      lock.unlock();
      emulation::self().step_aside();
      lock.lock();
      let_land(lock);
    }
    bool there = false;
    do {
      there = state_->changed.wait_for(lock, emulation::patience,
                                       [&] { return over() || !state_->under_way.empty(); });
      let_land(lock);
    } while (there && !over());
    if (emulation::self().block->failed) {
      lock.unlock();
      throw emulation::Abandoned{};
    }
    if (!there) emulation_fail(lock, "waits for a phase that does not complete");
  }
  static void wait_all(Barrier& a, int phase_a, Barrier& b, int phase_b, Barrier& c, int phase_c) {
    a.wait(phase_a), b.wait(phase_b), c.wait(phase_c);
  }

 private:
  /// Requires `lock` to be held.
  void let_land(std::unique_lock<std::mutex>& lock) {
    while (!state_->under_way.empty()) {
      const auto copies = std::exchange(state_->under_way, {});
      lock.unlock();
      for (const auto& [copy, bytes] : copies) {
        copy();
        change(0, -bytes);
      }
      lock.lock();
    }
  }
  [[noreturn]] void emulation_fail(std::unique_lock<std::mutex>& lock, const char* what) {
    const int phase = state_->phase;
    lock.unlock();
    emulation::fail(std::string(what) + " (it is in phase " + std::to_string(phase) + ")");
  }
  void change(int arrivals, int bytes) {
    const std::lock_guard lock(state_->guard);
    state_->missing -= arrivals;
    state_->bytes += bytes;
    if (state_->missing < 0) emulation::fail("one arrival too many at a barrier");
    state_->settle();
  }

  emulation::BarrierState* state_;
};

inline void barriers_ready() {}

inline void named_barrier(int id, int threads) {
  emulation::Block& block = *emulation::self().block;
  emulation::Meeting* meeting = nullptr;
  {
    const std::lock_guard lock(block.guard);
    auto& slot = block.named[id];
    if (!slot) slot = std::make_unique<emulation::Meeting>(threads);
    meeting = slot.get();
  }
  if (meeting->threads() != threads) emulation::fail("named barrier with two numbers of threads");
  emulation::meet_at(*meeting);
  ++block.phases;
}

inline void fence_async() {
  const std::lock_guard lock(emulation::self().block->guard);
  for (const std::uintptr_t kib : emulation::asynchronous().dirty) {
    const auto at = emulation::self().block->dirty.find(kib);
    if (--at->second == 0) emulation::self().block->dirty.erase(at);
  }
  emulation::asynchronous().dirty.clear();
}

inline int uniform(int x) {
  return static_cast<int>(emulation::exchange({static_cast<std::uint64_t>(x)})[0][0]);
}
inline int broadcast(int x) { return uniform(x); }
inline float shuffle_up(float x, int lanes) {
  const auto& table = emulation::exchange({emulation::to_bits(x)});
  const int lane = thread_index() % 32;
  return emulation::from_bits(
      static_cast<std::uint32_t>(table[static_cast<std::size_t>(lane < lanes ? lane : lane - lanes)][0]));
}

template <int n>
void more_registers() {}
template <int n>
void fewer_registers() {}

struct TensorMap {
  Bf16* data = nullptr;  ///< [tokens, heads, width]
  std::int64_t width = 0, heads = 0, tokens = 0;
};

namespace emulation {

/// Calls cell(element of the tile, element of the tensor, or null if it is outside the tensor).
template <class Cell>
void for_each_cell(Bf16* tile, const TensorMap& map, int column, int head, int token, Cell&& cell) {
  if (reinterpret_cast<std::uintptr_t>(tile) % 1024 != 0) fail("a tile that is not 1024-byte aligned");
  if (map.width % 8 != 0) fail("a tensor whose rows are no multiple of 16 bytes");
  auto* bytes = reinterpret_cast<unsigned char*>(tile);
  for (int r = 0; r < kTileRows; ++r) {
    for (int c = 0; c < kTileColumns; ++c) {
      const bool inside = column + c < map.width && head < map.heads && token + r < map.tokens;
      cell(reinterpret_cast<Bf16*>(bytes + swizzled(r, 2 * c)),
           inside ? map.data + ((token + r) * map.heads + head) * map.width + column + c : nullptr);
    }
  }
}

}  // namespace emulation

inline void load_tile(Bf16* tile, const TensorMap& from, Barrier& barrier, int column, int head, int token) {
  barrier.land(
      [tile, &from, column, head, token] {
        emulation::for_each_cell(tile, from, column, head, token,
                                 [](Bf16* to, const Bf16* x) { *to = x ? *x : Bf16{0}; });
      },
      kTileBytes);
}
inline void store_tile(const TensorMap& to, const Bf16* tile, int column, int head, int token) {
  emulation::expect_clean(tile, kTileBytes, "a copy");
  emulation::asynchronous().uncommitted.emplace_back([=]() -> std::function<void()> {
    std::vector<std::pair<Bf16*, Bf16>> cells;
    emulation::for_each_cell(const_cast<Bf16*>(tile), to, column, head, token,
                             [&](const Bf16* x, Bf16* cell) {
                               if (cell) cells.emplace_back(cell, *x);
                             });
    return [cells] {
      for (const auto& [cell, x] : cells) *cell = x;
    };
  });
}
inline void load_bytes(void* to, const void* from, Barrier& barrier, int bytes) {
  barrier.land([to, from, bytes] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }, bytes);
}
inline void store_bytes(void* to, const void* from, int bytes) {
  emulation::expect_clean(from, bytes, "a copy");
  emulation::asynchronous().uncommitted.emplace_back([=]() -> std::function<void()> {
    const auto* const first = static_cast<const unsigned char*>(from);
    return [to, read = std::vector<unsigned char>(first, first + bytes)] {
      std::memcpy(to, read.data(), read.size());
    };
  });
}
inline void commit_stores() { emulation::asynchronous().commit_stores(); }
inline void wait_stores_read() {
  // Gives other threads the time to overwrite memory that they must not overwrite yet.
  if (emulation::self().block->late && emulation::asynchronous().reading)
    std::this_thread::sleep_for(emulation::lateness);
  emulation::asynchronous().read_stores();
  emulation::asynchronous().reading = false;
}
inline void wait_stores() {
  emulation::asynchronous().write_stores();
  emulation::asynchronous().reading = emulation::asynchronous().writing = false;
}

inline void copy_async_4(void* to, const void* from) { emulation::copy_async(to, from, 4); }
inline void copy_commit() { copies_commit(); }
template <int n>
void copy_wait_but() {
  copies_wait<n>();
}

inline void publish(int* flag, int value) {
  if (emulation::asynchronous().writing) emulation::fail("publishes what its stores have not written yet");
  std::atomic_ref<int>(*flag).store(value, std::memory_order_release);
}
inline int await_some(const int* flag, bool exists, int value) {
  const auto start = std::chrono::steady_clock::now();
  while (true) {
    const bool seen =
        exists && std::atomic_ref<int>(*const_cast<int*>(flag)).load(std::memory_order_acquire) == value;
    const auto& there = emulation::exchange({static_cast<std::uint64_t>(seen)});
    int count = 0;
    while (count < 32 && there[static_cast<std::size_t>(count)][0] != 0) ++count;
    if (count > 0) return count;
    if (std::chrono::steady_clock::now() - start > emulation::patience)
      emulation::fail("awaits a flag that stays");
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}
inline int fetch_add(int* counter, int n) { return std::atomic_ref<int>(*counter).fetch_add(n); }
inline int load_shared_by_all(const int* word) {
  return std::atomic_ref<int>(*const_cast<int*>(word)).load();
}

inline std::uint32_t pack(float low, float high) {
  return narrow<Bf16>(low).bits | static_cast<std::uint32_t>(narrow<Bf16>(high).bits) << 16;
}
inline float low(std::uint32_t both) { return emulation::from_bits(both << 16); }
inline float high(std::uint32_t both) { return emulation::from_bits(both & 0xffff0000U); }
inline void pin(float&) {}

struct Words {
  std::uint32_t x, y, z, w;
};
inline Words words(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return {a, b, c, d};
}

inline Words load_words(const Bf16* tile, int offset) {
  Words x;
  std::memcpy(&x, reinterpret_cast<const unsigned char*>(tile) + offset, sizeof x);
  return x;
}
inline Words load_global_words(const Bf16* from) { return load_words(from, 0); }
inline void mark_stored(const void* at) { emulation::mark_dirty(at); }

inline void store_words(Bf16* tile, int offset, Words x) {
  auto* at = reinterpret_cast<unsigned char*>(tile) + offset;
  emulation::mark_dirty(at);
  std::memcpy(at, &x, sizeof x);
}
template <bool transposed>
void store_matrices(Bf16* tile, int offset, Words x) {
  auto* row = reinterpret_cast<unsigned char*>(tile) + offset;
  emulation::mark_dirty(row);
  const auto& table = emulation::exchange(
      {x.x | static_cast<std::uint64_t>(x.y) << 32, x.z | static_cast<std::uint64_t>(x.w) << 32});
  const int lane = thread_index() % 32;
  const int matrix = lane / 8, r = lane % 8;
  for (int c = 0; c < 8; ++c) {
    const int at_row = transposed ? c : r;
    const int at_column = transposed ? r : c;
    const std::uint64_t pair =
        table[static_cast<std::size_t>(4 * at_row + at_column / 2)][static_cast<std::size_t>(matrix / 2)];
    const auto word = static_cast<std::uint32_t>(pair >> (32 * (matrix % 2)));
    const auto element = static_cast<std::uint16_t>(word >> (16 * (at_column % 2)));
    std::memcpy(row + 2 * c, &element, 2);
  }
}

}  // namespace samestate::cuda
