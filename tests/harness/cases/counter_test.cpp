#include "harness/cases/counter.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace samestate {
namespace {

struct Known {
  std::uint64_t seed;
  const char* tensor;
  Coordinates at;
  double uniform, normal;
};

// From an implementation of Philox4x64-10 and FNV-1a in Python integers, itself checked against Random123's
// known-answer file (zero counter and key give 16554d9eca36314c).
TEST(Counter, KnownAnswers) {
  const std::array known{
      Known{0x0U, "q", {0, 0, 0, 0}, 0x1.6729b8ffdb6c0p-2, -0x1.a12753193db9bp-3},
      Known{0x1U, "q", {0, 0, 0, 0}, 0x1.746190bd2e96ep-2, -0x1.f8531134c10ebp-2},
      Known{0x0U, "k", {0, 0, 0, 0}, 0x1.a92c1a31d930cp-2, -0x1.2427af9921739p+0},
      Known{0x2aU, "v", {3, 1000, 7, 127}, 0x1.ed93ec7809054p-3, 0x1.8aa153d4bc32ep-1},
      Known{0xffffffffffffffffU, "state", {1, -1, 2, 3}, 0x1.19a4302532ff8p-2, -0x1.3c2f7f54be689p+1},
      Known{0x0U, "", {0, 0, 0, 0}, 0x1.ef0200108813cp-3, -0x1.d836c10b39b0bp-2},
  };
  for (const Known& k : known) {
    const Counter counter(k.seed, k.tensor);
    EXPECT_EQ(counter.uniform(k.at), k.uniform) << k.tensor;
    EXPECT_EQ(counter.normal(k.at), k.normal) << k.tensor;
  }
}

TEST(Counter, DependsOnEachOfSeedTensorAndCoordinates) {
  const Coordinates at{1, 2, 3, 4};
  const double x = Counter(5, "q").uniform(at);
  EXPECT_EQ(x, Counter(5, "q").uniform(at));
  EXPECT_NE(x, Counter(6, "q").uniform(at));
  EXPECT_NE(x, Counter(5, "k").uniform(at));
  for (std::int64_t Coordinates::*c :
       {&Coordinates::sequence, &Coordinates::token, &Coordinates::head, &Coordinates::channel}) {
    Coordinates other = at;
    ++(other.*c);
    EXPECT_NE(x, Counter(5, "q").uniform(other));
    other.*c = -1;
    EXPECT_NE(x, Counter(5, "q").uniform(other));
  }
}

// Five standard errors of each estimate; a generator off by more than they allow is wrong once in 10^6.
TEST(Counter, Moments) {
  constexpr int n = 100000;
  const Counter counter(9, "moments");
  double sum = 0, squares = 0, fourth = 0, uniform_sum = 0, largest = 0, neighbours = 0, previous = 0;
  for (int i = 0; i < n; ++i) {
    const double x = counter.normal({0, i, 0, 0});
    const double u = counter.uniform({0, i, 0, 0});
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    uniform_sum += u;
    neighbours += x * previous;
    largest = std::max(largest, std::abs(x));
    previous = x;
  }
  const double error = 5 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(sum / n, 0.0, error);
  EXPECT_NEAR(squares / n, 1.0, error * std::sqrt(2.0));
  EXPECT_NEAR(fourth / n, 3.0 - 1.2 / 16, error * std::sqrt(96.0));  // kurtosis of a sum of 16 uniforms
  EXPECT_NEAR(uniform_sum / n, 0.5, error / std::sqrt(12.0));
  EXPECT_NEAR(neighbours / n, 0.0, error);
  EXPECT_LT(largest, 6.93);
  EXPECT_GT(largest, 3.0);
}

TEST(Counter, BelowReachesEveryValueAndNoOther) {
  const Counter counter(1, "below");
  std::array<int, 7> seen{};
  for (std::int64_t i = 0; i < 7000; ++i) {
    const std::int64_t x = counter.below({i, 0, 0, 0}, 7);
    ASSERT_TRUE(x >= 0 && x < 7) << x;
    ++seen[static_cast<std::size_t>(x)];
    ASSERT_EQ(counter.below({i, 0, 0, 0}, 1), 0);
  }
  for (int count : seen) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0 * 6 / 7));
}

}  // namespace
}  // namespace samestate
