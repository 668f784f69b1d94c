#include "fuzz/plan/refusals.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/facts.h"

namespace samestate {
namespace {

std::vector<Case> cases_of(std::initializer_list<const char*> lines) {
  std::vector<Case> out;
  for (const char* line : lines)
    out.push_back(parse_case(std::string("v1 retention form=recurrent ") + line));
  return out;
}

using Texts = std::vector<std::string>;

TEST(Refusals, TheLimitIsFoundThatTellsRefusedCallsFromTakenOnes) {
  EXPECT_EQ(separating_limits(cases_of({"dk=64 T=3", "dk=96", "dk=16 T=8"}),
                              cases_of({"dk=128 T=3", "dk=128 T=9 dv=64", "dk=128 dv=16"})),
            Texts{"dk = 128"});
  EXPECT_EQ(separating_limits(cases_of({"dk=192", "dk=256 dv=8"}),
                              cases_of({"dk=128", "dk=64", "dk=48 dv=256", "dk=7", "dk=9", "dk=3", "dk=1"})),
            Texts{"dk <= 128"});
  EXPECT_EQ(separating_limits(cases_of({"T=17", "T=33", "T=1"}),
                              cases_of({"T=16", "T=128", "T=48", "T=64", "T=80", "T=96", "T=256"})),
            Texts{"T % 2 = 0"});
  EXPECT_EQ(separating_limits(cases_of({"contract=bf16", "contract=bf16 T=2"}), cases_of({"", "T=7 dk=3"})),
            Texts{"contract = fp32"});
}

TEST(Refusals, TwoSizesThatAreRefusedAlikeAreTwoLimits) {
  EXPECT_EQ(separating_limits(cases_of({"dk=64 dv=128", "dk=128 dv=64", "dk=64 dv=64", "dk=32 dv=128"}),
                              cases_of({"dk=128 dv=128", "dk=128 dv=128 T=3"})),
            (Texts{"dk = 128", "dv = 128"}));
}

TEST(Refusals, WhatHangsOnNoSizeIsNoLimit) {
  EXPECT_TRUE(separating_limits(cases_of({"dk=64 T=3"}), cases_of({"dk=64 T=3"})).empty());
  EXPECT_TRUE(separating_limits(cases_of({"dk=64"}), {}).empty()) << "nothing was taken";
}

Record record_of(const std::string& line, Verdict verdict, std::string_view gate = "",
                 std::string reason = "") {
  Record r;
  r.line = "v1 retention form=recurrent " + line, r.kernel = "mine", r.spent.calls = 1;
  r.judgement.verdict = verdict, r.judgement.gate = gate, r.judgement.reason = std::move(reason);
  return r;
}

std::vector<Record> records() {
  std::vector<Record> out{record_of("dk=128", Verdict::pass), record_of("dk=128 T=7", Verdict::pass)};
  for (const char* dk : {"64", "32", "7"})
    out.push_back(record_of(std::string("dk=") + dk + " dv=128", Verdict::crash, kRefusal,
                            std::string("the kernel threw: ValueError: no ") + dk + " (mine.py:3 f)"));
  return out;
}

TEST(Refusals, ACaseThatWasNotCalledIsNotTaken) {
  std::vector<Record> all = records();
  Record vacuous = record_of("dk=64 dv=128 law=reset", Verdict::vacuous);
  vacuous.spent.calls = 0;
  all.push_back(vacuous);
  const std::vector<Refusals> found = find_refusals(all, [](const std::string&) { return std::string(); });
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].limits, Texts{"dk = 128"});
  all.back().spent.calls = 1;
  EXPECT_NE(find_refusals(all, [](const std::string&) { return std::string(); }).at(0).limits,
            Texts{"dk = 128"});
}

TEST(Refusals, ALawIsNoLimit) {
  EXPECT_TRUE(separating_limits(cases_of({"T=9 law=reset B=2"}), cases_of({"T=9 law=batch_permutation B=2"}))
                  .empty());
}

TEST(Refusals, ThreeAlikeAreARefusalAndTwoAreCrashes) {
  const auto none = [](const std::string&) { return std::string("none"); };
  std::vector<Record> all = records();
  const std::vector<Refusals> found = find_refusals(all, none);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].limits, Texts{"dk = 128"});
  const std::vector<std::string> said = count_as_refused(all, found);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(lacking(said[0], "limit dk = 128"), "") << said[0];
  EXPECT_EQ(all.back().judgement.verdict, Verdict::unsupported);
  EXPECT_EQ(all.back().judgement.gate, kRefused);
  EXPECT_EQ(all.front().judgement.verdict, Verdict::pass);

  all = records();
  all.pop_back();
  EXPECT_TRUE(find_refusals(all, none).empty());
}

TEST(Refusals, AKernelThatDeclaresALimitOfThatSizeStaysAFailure) {
  std::vector<Record> all = records();
  const auto declares = [](const std::string& text) { return [text](const std::string&) { return text; }; };
  EXPECT_TRUE(count_as_refused(all, find_refusals(all, declares("dk <= 256"))).empty());
  EXPECT_EQ(all.back().judgement.verdict, Verdict::crash);
  EXPECT_EQ(count_as_refused(all, find_refusals(all, declares("dkx <= 256, B >= 1"))).size(), 1U);
}

TEST(Refusals, AnotherCrashIsNone) {
  std::vector<Record> all = records();
  for (Record& r : all) {
    if (r.judgement.gate == kRefusal) r.judgement.gate = "exception";
  }
  EXPECT_TRUE(find_refusals(all, [](const std::string&) { return std::string(); }).empty());
}

}  // namespace
}  // namespace samestate
