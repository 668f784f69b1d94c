#include "harness/processes/each_device.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

constexpr std::size_t kCaseIndex = 7;

Record record(const std::string& gpu, const std::string& outputs, Verdict verdict = Verdict::pass) {
  Record r;
  r.kernel = "k";
  r.device = "cuda";
  r.gpu = gpu;
  r.outputs = outputs;
  r.judgement.verdict = verdict;
  return r;
}

Devices three(Devices::Look look = {}) {
  return Devices({{0, "A", "a", "", "a"}, {1, "B", "b", "", "b"}, {2, "C", "c", "", "c"}}, std::move(look));
}

TEST(EachDevice, ACaseIsFinishedWhenAllHaveRunItAndAgree) {
  const Devices devices = three();
  EachDevice each(devices);
  ASSERT_TRUE(each.begin(kCaseIndex, record("b", "o:1 s:2")));
  EXPECT_TRUE(each.waits(kCaseIndex));
  EXPECT_FALSE(each.waits(kCaseIndex + 1));
  EXPECT_EQ(each.next()->device, "a");
  EXPECT_EQ(each.next()->device, "c");
  EXPECT_FALSE(each.next());
  EXPECT_FALSE(each.take(kCaseIndex, record("c", "o:1 s:2")));
  const auto done = each.take(kCaseIndex, record("a", "o:1 s:2"));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->judgement.verdict, Verdict::pass);
  EXPECT_EQ(done->gpu, "b") << "the record is that of the first";
  EXPECT_EQ(each.compared(), 1);
  EXPECT_FALSE(each.waits(kCaseIndex));
}

TEST(EachDevice, WhatCannotBeComparedDoesNotWait) {
  const Devices devices = three();
  EachDevice each(devices);
  EXPECT_FALSE(each.begin(kCaseIndex, record("", "o:1"))) << "no device of its own";
  EXPECT_FALSE(each.begin(kCaseIndex, record("a", ""))) << "a kernel of the processor";
  for (const Verdict v : {Verdict::fail, Verdict::crash, Verdict::skipped, Verdict::unsupported})
    EXPECT_FALSE(each.begin(kCaseIndex, record("a", "o:1", v)));
  const Devices one({{0, "A", "a", "", "a"}});
  EXPECT_FALSE(EachDevice(one).begin(kCaseIndex, record("a", "o:1")));
}

/// Returns the record of a case whose first device wrote `first`, device b `second`, c the same as the first,
/// and the first again `again`.
Record differing(const std::string& first, const Record& second, const std::string& again) {
  const Devices devices = three();
  EachDevice each(devices);
  EXPECT_TRUE(each.begin(kCaseIndex, record("a", first)));
  (void)each.next(), (void)each.next();
  EXPECT_FALSE(each.take(kCaseIndex, second));
  EXPECT_FALSE(each.take(kCaseIndex, record("c", first)));
  const auto repeat = each.next();
  EXPECT_TRUE(repeat && repeat->device == "a") << "the first is asked again";
  return each.take(kCaseIndex, record("a", again)).value();
}

TEST(EachDevice, ADifferenceIsAFailureThatNamesOutputAndDevices) {
  const Record r = differing("o:11 s:22", record("b", "o:11 s:23"), "o:11 s:22");
  EXPECT_EQ(r.judgement.verdict, Verdict::fail);
  EXPECT_EQ(r.judgement.gate, kBetweenDevices);
  EXPECT_EQ(r.judgement.reason,
            "s has other bits on another device, which passes too: hash 22 on device 0: A, a, 23 on device "
            "1: B, b; "
            "the first repeats its own");
}

TEST(EachDevice, AKernelThatDoesNotRepeatItselfIsToldApart) {
  const Record r = differing("o:11 s:22", record("b", "o:12 s:23"), "o:13 s:22");
  EXPECT_EQ(r.judgement.verdict, Verdict::fail);
  EXPECT_EQ(
      r.judgement.reason,
      "o has other bits in each run, so the kernel is not deterministic: hash 11 on device 0: A, a, 12 on "
      "device 1: "
      "B, b, and 13 on the first again");
}

TEST(EachDevice, AFailureOnOneDeviceIsOneToo) {
  Record other = record("b", "o:11", Verdict::fail);
  other.judgement.reason = "ratio 7";
  const Record r = differing("o:11", other, "o:11");
  EXPECT_EQ(r.judgement.verdict, Verdict::fail);
  EXPECT_EQ(r.judgement.reason,
            "a pass on one device and fail on another: device 0: A, a passes, but on device 1: B, b ratio 7");
}

TEST(EachDevice, OneThatIsLostMeanwhileIsNotCompared) {
  Devices devices = three([](const auto&) { return false; });
  EachDevice each(devices);
  ASSERT_TRUE(each.begin(kCaseIndex, record("a", "o:1")));
  EXPECT_TRUE(devices.is_gone(1, ""));
  EXPECT_FALSE(each.take(kCaseIndex, record("a", "o:1"))) << "its run went to the first";
  EXPECT_EQ(each.take(kCaseIndex, record("", "", Verdict::skipped)).value().judgement.verdict, Verdict::pass);
  EXPECT_EQ(each.compared(), 0);
  ASSERT_TRUE(each.begin(kCaseIndex, record("a", "o:1")));
  (void)each.next();
  EXPECT_EQ(each.next()->device, "c") << "a case that comes later does not ask for it";
}

TEST(EachDevice, WhatStillWaitsAtAnEndIsNoPass) {
  const Devices devices = three();
  EachDevice each(devices);
  ASSERT_TRUE(each.begin(kCaseIndex, record("a", "o:1")));
  const auto rest = each.rest();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].first, kCaseIndex);
  EXPECT_EQ(rest[0].second.judgement.verdict, Verdict::skipped);
  EXPECT_FALSE(each.next());
}

}  // namespace
}  // namespace samestate
