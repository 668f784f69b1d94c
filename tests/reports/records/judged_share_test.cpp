#include "reports/records/judged_share.h"

#include <gtest/gtest.h>

#include "oracles/reasons.h"
#include "tests/facts.h"

namespace samestate {
namespace {

Record of(const char* kernel, Verdict verdict, std::string_view gate = "") {
  Record record;
  record.kernel = kernel;
  record.contract = "fp32";
  record.judgement.verdict = verdict;
  record.judgement.gate = gate;
  return record;
}

std::vector<Record> many(const char* kernel, Verdict verdict, int count, std::string_view gate = "") {
  return std::vector<Record>(static_cast<std::size_t>(count), of(kernel, verdict, gate));
}

std::vector<Record> operator+(std::vector<Record> a, const std::vector<Record>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(JudgedShare, CountsWhatLiesInside) {
  const auto records = many("a", Verdict::pass, 6) + many("a", Verdict::vacuous, 2) +
                       many("a", Verdict::unsupported, 50) + many("a", Verdict::fail, 1) +
                       many("a", Verdict::skipped, 1, kNoDevice);
  const JudgedShare share = judged_shares(records).at("a");
  EXPECT_EQ(share.planned, 10);
  EXPECT_EQ(share.judged, 7);
  EXPECT_EQ(share.vacuous, 2);
  EXPECT_EQ(share.outside, 50);
  EXPECT_EQ(share.no_device, 1);
  EXPECT_DOUBLE_EQ(share.share(), 0.7);
}

// This used to pass: one case judged, and all others refused, vacuous or never begun.
TEST(JudgedShare, OneJudgedCaseOfManyIsTooLittle) {
  const std::map<std::string, std::int64_t> not_started{{"a", 19}};
  for (const auto& shares :
       {judged_shares(many("a", Verdict::pass, 1) + many("a", Verdict::vacuous, 19)),
        judged_shares(many("a", Verdict::pass, 1) + many("a", Verdict::skipped, 19, kNoDevice)),
        judged_shares(many("a", Verdict::pass, 1), not_started)}) {
    const std::vector<std::string> said = too_little(shares, 0.5);
    ASSERT_EQ(said.size(), 1U);
    EXPECT_EQ(lacking(said[0], "1 20 judged 50 %"), "") << said[0];
    EXPECT_TRUE(too_little(shares, 0.05).empty());
  }
  EXPECT_TRUE(too_little(judged_shares(many("a", Verdict::vacuous, 8)), 0.5).empty())
      << "too few to be a plan";
}

TEST(JudgedShare, WhatExpectsNothingButZerosIsNotPlanned) {
  const auto shares =
      judged_shares(many("a", Verdict::pass, 20) + many("a", Verdict::vacuous, 30, kZeroGate) +
                    many("a", Verdict::vacuous, 5, "row"));
  EXPECT_EQ(shares.at("a").planned, 25);
  EXPECT_EQ(shares.at("a").vacuous, 5);
  EXPECT_DOUBLE_EQ(shares.at("a").share(), 0.8);
  // A failure there is one.
  EXPECT_EQ(judged_shares(many("a", Verdict::fail, 1, kZeroGate)).at("a").judged, 1);
}

TEST(JudgedShare, EachKernelCountsForItself) {
  const auto shares = judged_shares(many("a", Verdict::pass, 1000) + many("b", Verdict::pass, 9) +
                                    many("b", Verdict::vacuous, 11));
  const std::vector<std::string> said = too_little(shares, 0.5);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(said[0].starts_with("b: ")) << said[0];
}

TEST(JudgedShare, AKernelWithoutItsDeviceIsACountedSkip) {
  EXPECT_TRUE(too_little(judged_shares(many("a", Verdict::skipped, 90, kNoDevice)), 0.5).empty());
  EXPECT_TRUE(too_little(judged_shares(many("a", Verdict::skipped, 90, kNoDevice) +
                                       many("a", Verdict::vacuous, 9, "law")),
                         0.5)
                  .empty());
  EXPECT_FALSE(too_little(judged_shares(many("a", Verdict::vacuous, 90)), 0.5).empty());
  EXPECT_FALSE(too_little(judged_shares(many("a", Verdict::skipped, 90)), 0.5).empty())
      << "for another reason";
  EXPECT_TRUE(too_little(judged_shares(many("a", Verdict::unsupported, 90)), 0.5).empty())
      << "nothing is inside";
}

TEST(JudgedShare, ADeviceThatComesAndGoesIsAFailure) {
  std::vector<Record> records = many("a", Verdict::pass, 8) + many("a", Verdict::skipped, 2, kNoDevice) +
                                many("b", Verdict::skipped, 2, kNoDevice) +
                                many("b", Verdict::unsupported, 2);
  EXPECT_EQ(mark_missing_devices(records), 2);
  std::vector<Record> lost = many("a", Verdict::pass, 8) + many("a", Verdict::skipped, 2, kDevicesLost);
  EXPECT_EQ(mark_missing_devices(lost), 0) << "a device that is lost is no fault of the kernel";
  EXPECT_EQ(records[8].judgement.verdict, Verdict::fail);
  EXPECT_NE(records[8].judgement.reason.find("ran in this run"), std::string::npos);
  EXPECT_EQ(records[10].judgement.verdict, Verdict::skipped);
  Record other = of("a", Verdict::skipped, kNoDevice);
  other.contract = "bf16";
  records = many("a", Verdict::pass, 1) + std::vector<Record>{other};
  EXPECT_EQ(mark_missing_devices(records), 0) << "a contract may need another device";
  const std::vector<Record> skips = many("a", Verdict::skipped, 2, kNoDevice);
  records = many("a", Verdict::vacuous, 1, "law") + skips;
  EXPECT_EQ(mark_missing_devices(records), 0) << "a law that does not fit calls no kernel";
  records = many("a", Verdict::vacuous, 1) + skips;
  EXPECT_EQ(mark_missing_devices(records), 2);
}

}  // namespace
}  // namespace samestate
