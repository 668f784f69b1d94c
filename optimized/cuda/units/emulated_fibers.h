#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "optimized/cuda/units/emulated_block.h"

/// A block as fibers of one host thread: a hundred times as fast as host threads, but unable to show races,
/// which host threads are for. It is fast enough to run a whole plan of cases.
namespace samestate::cuda::emulation {

inline constexpr std::size_t kFiberStack = 128 * 1024;

/// Which thread runs first between two barriers of a block: a value that a kernel reads from another warp
/// without a barrier is there only by luck.
enum class Schedule { in_turn, first_warp_first, last_warp_first };
inline constexpr std::int64_t kSchedules = 3;
/// The number of the first schedule for the blocks that this host thread runs; the blocks take the schedules
/// in turn.
inline thread_local std::int64_t first_schedule = 0;

/// As run_block. It also fails if every thread waits for another one.
template <class Body>
void run_block_in_fibers(int threads, Body&& body, std::int64_t number = 0, std::int64_t blocks = 1) {
  using boost::context::fiber;
  static thread_local boost::context::pooled_fixedsize_stack stacks(kFiberStack);
  Block block(threads, number, blocks);
  std::vector<fiber> team;
  team.reserve(static_cast<std::size_t>(threads));
  bool moved = true;  // a thread has reached a barrier since the last check
  for (int t = 0; t < threads; ++t) {
    team.emplace_back(std::allocator_arg, stacks, [&block, &body, &moved, t](fiber&& scheduler) {
      fiber away = std::move(scheduler);
      run_thread(
          block, t,
          [&away] {
            Thread* const mine = running;
            away = std::move(away).resume();
            running = mine;
          },
          body);
      moved = true;
      return away;
    });
  }
  const auto turns = [&] {
    std::uint64_t sum = block.meet.turn() + block.phases.load();
    for (const std::unique_ptr<Warp>& warp : block.warps) sum += warp->meet.turn();
    return sum;
  };
  const auto resume_warp = [&](std::size_t warp) {
    bool left = false;
    for (std::size_t t = 32 * warp; t < 32 * (warp + 1); ++t) {
      if (!team[t]) continue;
      team[t] = std::move(team[t]).resume();
      left = left || static_cast<bool>(team[t]);
    }
    return left;
  };
  const auto schedule = static_cast<Schedule>((first_schedule + number) % kSchedules);
  for (bool left = true; left;) {
    const std::uint64_t before = turns();
    left = moved = false;
    const std::size_t warps = block.warps.size();
    for (std::size_t i = 0; i < warps; ++i) {
      const std::size_t warp = schedule == Schedule::last_warp_first ? warps - 1 - i : i;
      bool of_warp = resume_warp(warp);
      // Runs on as far as the thread gets by itself.
      for (unsigned met = 0;
           of_warp && schedule != Schedule::in_turn && met != block.warps[warp]->meet.turn();) {
        met = block.warps[warp]->meet.turn();
        of_warp = resume_warp(warp);
      }
      left = left || of_warp;
    }
    if (left && !moved && turns() == before && !block.failed)
      block.fail("every thread of the block waits for another one");
  }
  running = &no_thread;
  if (block.failed) throw Error(block.failure);
}

}  // namespace samestate::cuda::emulation
