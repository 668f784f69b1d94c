#include "harness/cases/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "harness/cases/counter.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Work as a plan has it: many small cases and few that take a thousand times as much.
std::vector<double> some_work(std::size_t count) {
  std::vector<double> work(count);
  const Counter counter(7, "shards");
  for (std::size_t i = 0; i < count; ++i) {
    const auto step = static_cast<double>(counter.below({static_cast<std::int64_t>(i), 0, 0, 0}, 3000));
    work[i] = std::pow(10.0, step / 1000.0 - 3.0);
  }
  return work;
}

std::vector<double> loads(const std::vector<double>& work, const std::vector<std::int64_t>& of,
                          std::int64_t count) {
  std::vector<double> out(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < of.size(); ++i) out[static_cast<std::size_t>(of[i])] += work[i];
  return out;
}

TEST(Shards, AreDisjointAndTogetherAreTheWhole) {
  const std::vector<double> work = some_work(1000);
  for (const std::int64_t count : {1, 2, 3, 7, 64, 1500}) {
    std::set<std::size_t> all;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::vector<std::size_t> part = part_of(work, {i, count});
      EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
      for (const std::size_t at : part) EXPECT_TRUE(all.insert(at).second) << at << " of " << count;
    }
    EXPECT_EQ(all.size(), work.size()) << count;
  }
}

TEST(Shards, HaveEqualWorkWhereEqualCountsHaveNot) {
  const std::vector<double> work = some_work(20000);
  const double sum = std::accumulate(work.begin(), work.end(), 0.0);
  for (const std::int64_t count : {2, 3, 7, 64}) {
    const std::vector<double> ours = loads(work, shards_by_work(work, count), count);
    const double mean = sum / static_cast<double>(count);
    EXPECT_LT(*std::max_element(ours.begin(), ours.end()), 1.001 * mean) << count;
    EXPECT_GT(*std::min_element(ours.begin(), ours.end()), 0.999 * mean) << count;
  }
  // The planted fault: every N-th of them, as the shards were before.
  std::vector<std::int64_t> by_count(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) by_count[i] = static_cast<std::int64_t>(i % 64);
  const std::vector<double> theirs = loads(work, by_count, 64);
  EXPECT_GT(*std::max_element(theirs.begin(), theirs.end()), 1.05 * sum / 64);
}

TEST(Shards, DoNotHangOnTheLastBits) {
  const std::vector<double> work = some_work(5000);
  std::vector<double> other = work;
  for (double& x : other) x = std::nextafter(std::nextafter(x, 1e9), 1e9);
  EXPECT_EQ(shards_by_work(work, 7), shards_by_work(other, 7));
}

TEST(Shards, SpreadWhatTakesNothing) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> work{0.0, nan, -1.0, 0.0, 0.0, 0.0};
  const std::vector<double> count = loads(std::vector<double>(6, 1.0), shards_by_work(work, 3), 3);
  EXPECT_EQ(count, (std::vector<double>{2.0, 2.0, 2.0}));
  const std::vector<double> endless{std::numeric_limits<double>::infinity(), 1.0};
  EXPECT_NE(shards_by_work(endless, 2)[0], shards_by_work(endless, 2)[1]);
  EXPECT_TRUE(part_of({}, {1, 2}).empty());
}

TEST(Shards, RefuseWhatIsNone) {
  const std::vector<double> work{1.0};
  EXPECT_THROW((void)shards_by_work(work, 0), Error);
  EXPECT_THROW((void)shards_by_work(work, kMostShards + 1), Error);
  EXPECT_THROW((void)part_of(work, {2, 2}), Error);
  EXPECT_THROW((void)part_of(work, {-1, 2}), Error);
}

}  // namespace
}  // namespace samestate
