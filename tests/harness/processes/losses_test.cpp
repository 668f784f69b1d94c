#include "harness/processes/losses.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

Record trespass(double start, bool lost = true) {
  Record record;
  record.kernel = "mine.retention.recurrent", record.device = "cpu";
  record.judgement.verdict = Verdict::fail;
  record.judgement.gate = "memory";
  record.spent.calls = 1, record.spent.lost = lost, record.spent.start = start;
  return record;
}

bool skips_after(int count, const Record& record) {
  Losses losses;
  for (int i = 0; i < count; ++i) losses.add(record);
  Record next = record;
  return losses.skip(next);
}

TEST(Losses, ProcessesThatLeftTheirMemoryAreBoundedByTheirNumberAndWhatTheyTookToStart) {
  EXPECT_FALSE(skips_after(kMostTrespasses - 1, trespass(100.0)));
  EXPECT_TRUE(skips_after(kMostTrespasses, trespass(4.0)));
  EXPECT_FALSE(skips_after(10 * kMostTrespasses, trespass(0.1)));  // one that starts fast goes on
  EXPECT_FALSE(skips_after(1000, trespass(4.0, false)));  // one that wrote to an input goes on as it was
}

TEST(Losses, ASkippedCaseSaysWhy) {
  Losses losses;
  for (int i = 0; i < kMostTrespasses; ++i) losses.add(trespass(5.0));
  Record next = trespass(0.0);
  ASSERT_TRUE(losses.skip(next));
  EXPECT_EQ(next.judgement.verdict, Verdict::skipped);
  EXPECT_NE(next.judgement.reason.find("has left its memory in 20 cases"), std::string::npos)
      << next.judgement.reason;
}

}  // namespace
}  // namespace samestate
