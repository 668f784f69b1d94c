#include "reference/backward/reverse_sweep.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

/// A state that counts how many of its kind exist.
struct CountedState {
  static Index alive, most;
  Index value;
  explicit CountedState(Index v) : value(v) { most = std::max(most, ++alive); }
  CountedState(CountedState&& other) noexcept : value(other.value) { ++alive; }
  CountedState(const CountedState&) = delete;
  CountedState& operator=(CountedState&& other) noexcept {
    value = other.value;
    return *this;
  }
  ~CountedState() { --alive; }
};
Index CountedState::alive = 0;
Index CountedState::most = 0;

TEST(ReverseSweep, MeetsEveryStateOnceFromTheLastToTheFirst) {
  for (const Index steps : {0, 1, 2, 3, 4, 5, 8, 9, 10, 99, 100, 101, 1000}) {
    Index next = steps - 1;
    Index advanced = 0;
    CountedState::most = 0;
    reverse_sweep(
        steps, CountedState(0),
        [&](Index i, const CountedState& s) {
          EXPECT_EQ(s.value, i);
          ++advanced;
          return CountedState(i + 1);
        },
        [&](Index i, const CountedState& s) {
          EXPECT_EQ(i, next--);
          EXPECT_EQ(s.value, i);
        });
    EXPECT_EQ(next, -1) << steps;
    EXPECT_LE(advanced, 2 * steps) << steps;
    EXPECT_LE(CountedState::most, 2 * checkpoint_stride(steps) + 1) << steps;
    EXPECT_EQ(CountedState::alive, 0);
  }
}

TEST(ReverseSweep, StridesAreRootsRoundedUp) {
  EXPECT_EQ(checkpoint_stride(0), 1);
  EXPECT_EQ(checkpoint_stride(1), 1);
  EXPECT_EQ(checkpoint_stride(2), 2);
  EXPECT_EQ(checkpoint_stride(4), 2);
  EXPECT_EQ(checkpoint_stride(5), 3);
  EXPECT_EQ(checkpoint_stride(1'000'000), 1000);
  EXPECT_EQ(checkpoint_stride(1'000'001), 1001);
}

}  // namespace
}  // namespace samestate
