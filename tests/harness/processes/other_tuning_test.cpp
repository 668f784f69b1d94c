#include "harness/processes/other_tuning.h"

#include <gtest/gtest.h>

#include <string>

namespace samestate {
namespace {

Record failure(const std::string& tuned, Verdict verdict = Verdict::fail) {
  Record r;
  r.kernel = "mine", r.tuned = tuned, r.judgement.verdict = verdict;
  return r;
}

CaseResult repeat(const std::string& tuned, Verdict verdict) {
  CaseResult result;
  result.judgement.verdict = verdict, result.tuned = tuned;
  return result;
}

constexpr const char* kFirst = "first: scan: BLOCK=128, num_warps=4";
constexpr const char* kFull = "full: scan: BLOCK=64, num_warps=8";

TEST(OtherTuning, AFailureIsRepeatedWithTheOtherSettingAlone) {
  EXPECT_EQ(other_tuning_of(failure(kFirst)), "full");
  EXPECT_EQ(other_tuning_of(failure("cached: scan: BLOCK=128")), "full");
  EXPECT_EQ(other_tuning_of(failure(kFull)), "first");
  EXPECT_EQ(other_tuning_of(failure(kFirst, Verdict::crash)), "full");
  EXPECT_EQ(other_tuning_of(failure("")), "") << "nothing was tuned";
  EXPECT_EQ(other_tuning_of(failure("interpreter: scan: BLOCK=128")), "") << "which can time nothing";
  EXPECT_EQ(other_tuning_of(failure(kFirst, Verdict::pass)), "");
  Record refused = failure(kFirst, Verdict::crash);
  refused.judgement.gate = kRefusal;
  EXPECT_EQ(other_tuning_of(refused), "");
}

TEST(OtherTuning, TheRecordNamesBothConfigurations) {
  OtherTuning tuning;
  ASSERT_TRUE(tuning.begin(3, failure(kFirst), true));
  EXPECT_EQ(tuning.setting(3), "full");
  const std::optional<Record> done = tuning.take(3, repeat(kFull, Verdict::pass));
  ASSERT_TRUE(done);
  EXPECT_FALSE(tuning.waits(3));
  EXPECT_EQ(done->retuned, "full: pass: scan: BLOCK=64, num_warps=8");
  EXPECT_EQ(
      done->judgement.reason,
      "with --autotune full it passes (scan: BLOCK=64, num_warps=8), with first it fails (scan: BLOCK=128, "
      "num_warps=4)");
  EXPECT_EQ(configuration_to_blame(*done),
            "only with the configuration of --autotune first (scan: BLOCK=128, num_warps=4): passes with "
            "that of full "
            "(scan: BLOCK=64, num_warps=8)");
}

TEST(OtherTuning, AFailureThatComesWithBothBlamesNone) {
  OtherTuning tuning;
  ASSERT_TRUE(tuning.begin(0, failure(kFirst), true));
  const std::optional<Record> done = tuning.take(0, repeat(kFull, Verdict::fail));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->retuned, "full: fail: scan: BLOCK=64, num_warps=8");
  EXPECT_EQ(configuration_to_blame(*done), "");
  // The same configuration, which passes, is none that is wrong.
  ASSERT_TRUE(tuning.begin(0, failure(kFirst), true));
  const std::optional<Record> same =
      tuning.take(0, repeat("full: scan: BLOCK=128, num_warps=4", Verdict::pass));
  ASSERT_TRUE(same);
  EXPECT_EQ(configuration_to_blame(*same), "");
}

// An exception may come from what ran before in its process: it has to come with its own setting alone, too.
TEST(OtherTuning, ACrashThatTheOtherSettingDoesNotShowIsRepeatedWithItsOwn) {
  OtherTuning tuning;
  ASSERT_TRUE(tuning.begin(0, failure(kFirst, Verdict::crash), true));
  EXPECT_FALSE(tuning.take(0, repeat(kFull, Verdict::pass)));
  EXPECT_EQ(tuning.setting(0), "first");
  const std::optional<Record> done = tuning.take(0, repeat(kFirst, Verdict::crash));
  ASSERT_TRUE(done);
  EXPECT_NE(configuration_to_blame(*done), "");

  ASSERT_TRUE(tuning.begin(1, failure(kFirst, Verdict::crash), true));
  EXPECT_FALSE(tuning.take(1, repeat(kFull, Verdict::pass)));
  const std::optional<Record> flaky = tuning.take(1, repeat(kFirst, Verdict::pass));
  ASSERT_TRUE(flaky);
  EXPECT_EQ(configuration_to_blame(*flaky), "");
  EXPECT_NE(flaky->judgement.reason.find("comes and goes"), std::string::npos) << flaky->judgement.reason;
}

// A process of somebody else's keeps its setting: its repeat says nothing, and no other of the kernel is made.
TEST(OtherTuning, ASubjectThatKeepsItsSettingIsAskedOnce) {
  OtherTuning tuning;
  ASSERT_TRUE(tuning.begin(0, failure(kFirst), true));
  const std::optional<Record> done = tuning.take(0, repeat(kFirst, Verdict::fail));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->retuned, "");
  EXPECT_EQ(done->judgement.reason, "");
  EXPECT_FALSE(tuning.begin(1, failure(kFirst), true));
}

// One that ended its process could not say what it had chosen.
TEST(OtherTuning, ARepeatThatEndsItsProcessIsOneOfThatSetting) {
  OtherTuning tuning;
  ASSERT_TRUE(tuning.begin(0, failure(kFirst), true));
  const std::optional<Record> done = tuning.take(0, repeat("", Verdict::crash));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->retuned, "full: crash: not told");
}

TEST(OtherTuning, WithoutTimeTheFirstFailureOfAKernelIsRepeatedStill) {
  OtherTuning tuning;
  EXPECT_TRUE(tuning.begin(0, failure(kFirst), false));
  EXPECT_FALSE(tuning.begin(1, failure(kFirst), false));
  EXPECT_EQ(tuning.give_up(0).tuned, kFirst);
  EXPECT_TRUE(tuning.none());
}

}  // namespace
}  // namespace samestate
