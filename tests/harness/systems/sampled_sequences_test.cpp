#include "harness/systems/sampled_sequences.h"

#include <gtest/gtest.h>

#include <vector>

namespace samestate {
namespace {

std::vector<Index> taken(const SampledSequences& which, Index batch, Verdict verdict = Verdict::pass) {
  std::vector<Index> out;
  for (Index b = 0; b < batch; ++b) {
    if (which.takes(b, verdict)) out.push_back(b);
  }
  return out;
}

TEST(SampledSequences, AsManyAsTheWorkAllowsTheFirstAndTheLastAmongThem) {
  for (Index batch = 1; batch <= 40; ++batch) {
    for (Index count = 0; count <= batch; ++count) {
      // Half a sequence more, so that no division decides.
      const SampledSequences which(batch, 1.0, static_cast<double>(count) + 0.5, 0.0);
      const std::vector<Index> got = taken(which, batch);
      ASSERT_EQ(std::ssize(got), count) << batch;
      if (count >= 1) {
        EXPECT_EQ(got.front(), 0);
      }
      if (count >= 2) {
        EXPECT_EQ(got.back(), batch - 1);
      }
      for (std::size_t i = 1; i < got.size(); ++i) {
        const double step = static_cast<double>(batch - 1) / static_cast<double>(count - 1);
        EXPECT_NEAR(static_cast<double>(got[i] - got[i - 1]), step, 1.0) << batch << " " << count;
      }
    }
  }
}

TEST(SampledSequences, MoreWhereTheWorstCaseSaysNothing) {
  const SampledSequences which(10, 1.0, 2.5, 4.5);
  EXPECT_EQ(taken(which, 10), (std::vector<Index>{0, 9}));
  EXPECT_EQ(taken(which, 10, Verdict::vacuous), (std::vector<Index>{0, 3, 6, 9}));
}

TEST(SampledSequences, NoneWhereNoneIsAskedForOrOneIsTooDear) {
  EXPECT_TRUE(taken(SampledSequences(5, 1.0, 0.0, 0.0), 5).empty());
  EXPECT_TRUE(taken(SampledSequences(5, 3.0, 2.0, 2.9), 5, Verdict::vacuous).empty());
  EXPECT_EQ(taken(SampledSequences(5, 0.0, 1.0, 1.0), 5).size(), 5U);  // without work all of them
  EXPECT_TRUE(taken(SampledSequences(0, 1.0, 1.0, 1.0), 0).empty());
}

}  // namespace
}  // namespace samestate
