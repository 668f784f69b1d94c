// Which key turns a fault on, found by changing one at a time: a planted fault for each rule.
#include "harness/explain/explain_keys.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/harness/planted.h"

namespace samestate {
namespace {

const std::vector<std::pair<std::int64_t, std::string>> kChunk{{16, "chunk"}};

TEST(RuleOf, NamesWhatSeparatesTheValues) {
  const auto rule = [](std::int64_t failing, const FailsWith& fails) {
    const std::string text = rule_of("T", failing, fails, kChunk);
    return text.substr(0, text.find(':'));
  };
  EXPECT_EQ(rule(5, {{4, true}, {5, true}}), "");
  EXPECT_EQ(rule(37, {{15, true}, {16, false}, {17, true}, {32, false}, {37, true}, {48, false}}),
            "only where T is no multiple of 16 (chunk)");
  EXPECT_EQ(rule(32, {{1, false}, {16, true}, {17, false}, {32, true}, {33, false}, {48, true}}),
            "only where T is a multiple of 16 (chunk)");
  EXPECT_EQ(rule(40, {{1, false}, {15, false}, {16, false}, {17, true}, {32, true}, {40, true}}),
            "only where T is larger than 16 (chunk)");
  EXPECT_EQ(rule(40, {{1, false}, {20, false}, {39, false}, {40, true}, {41, true}, {80, true}}),
            "only from T = 40 on");
  EXPECT_EQ(rule(1, {{1, true}, {2, false}, {3, false}, {4, false}}), "only T = 1");
  EXPECT_EQ(
      rule(12,
           {{1, false}, {2, false}, {3, true}, {4, false}, {8, false}, {12, true}, {16, false}, {24, true}}),
      "only where T is no power of two");
  EXPECT_EQ(rule(9, {{2, false}, {7, true}, {8, false}, {9, true}, {10, false}, {15, true}}),
            "only where T is odd");
  EXPECT_EQ(rule(9, {{3, true}, {4, false}, {6, true}, {8, false}, {9, true}, {12, false}, {16, true}})
                .substr(0, 9),
            "depends o");
}

// Two values on a side are chance, unless there are no more: then the values themselves are told.
TEST(RuleOf, FewValuesMakeNoRule) {
  const auto rule = [](std::int64_t failing, const FailsWith& fails) {
    return rule_of("sequences", failing, fails, {});
  };
  EXPECT_EQ(rule(137, {{1, false}, {2, false}, {3, false}, {68, false}, {136, false}, {137, true}}),
            "depends on sequences: passes with sequences=1, 2, 3, 68, 136, fails with 137");
  for (const FailsWith& few : {FailsWith{{5, false}, {6, false}, {7, true}, {8, true}, {9, true}},
                               FailsWith{{5, false}, {6, false}, {6, false}, {7, true}, {8, true}},
                               FailsWith{{7, true}, {8, true}, {9, false}, {10, false}, {11, false}},
                               FailsWith{{6, true}, {7, true}, {8, false}, {16, false}},
                               FailsWith{{7, true}, {8, false}, {9, false}}})
    EXPECT_TRUE(rule(7, few).starts_with("depends on ")) << rule(7, few);
  EXPECT_TRUE(rule(3, {{1, false}, {2, false}, {3, true}, {4, true}, {5, true}})
                  .starts_with("only from sequences = 3 on"));
  EXPECT_TRUE(rule(2, {{1, true}, {2, true}, {3, false}, {4, false}, {5, false}})
                  .starts_with("only up to sequences = 2"));
}

TEST(RuleOf, OneIsAnExceptionThatIsTold) {
  const std::string text = rule_of(
      "T", 37, {{1, false}, {15, true}, {16, false}, {32, false}, {33, true}, {37, true}, {48, false}},
      kChunk);
  EXPECT_TRUE(text.starts_with("only where T is no multiple of 16 (chunk)")) << text;
  EXPECT_TRUE(text.ends_with("and with 1 it passes too")) << text;
}

struct Planted {
  const char* line;
  bool (*wrong)(const Arguments&);
  const char* says;
};

constexpr const char* kKernel = " kernel=planted.gated_delta_rule.chunked";

// The words that a reader looks for, of a fault that is there with some values of one key alone.
TEST(KeysThatMatter, FindsTheKeyOfAPlantedFault) {
  const Planted faults[] = {
      {"chunk=16 T=37 dk=4 dv=4", [](const Arguments& a) { return a.q.shape[1] % a.chunk != 0; },
       "only where T is no multiple of 16 (chunk)"},
      {"chunk=16 T=37 dk=4 dv=4", [](const Arguments& a) { return a.q.shape[1] > a.chunk; },
       "only where T is larger than 16 (chunk)"},
      {"chunk=16 T=9 dk=12 dv=4", [](const Arguments& a) { return (a.q.shape[3] & (a.q.shape[3] - 1)) != 0; },
       "only where dk is no power of two"},
      {"chunk=16 T=9 dk=1 dv=4", [](const Arguments& a) { return a.q.shape[3] == 1; }, "only dk = 1"},
      {"chunk=16 T=9 dk=4 dv=7", [](const Arguments& a) { return a.v.shape[3] % 2 == 1; },
       "only where dv is odd"},
      {"chunk=16 B=4 T=9 dk=4 dv=4", [](const Arguments& a) { return a.q.shape[0] >= 3; },
       "only from B = 3 on"},
      {"chunk=8 T=9 dk=4 dv=4", [](const Arguments& a) { return a.chunk == 8; }, "only chunk = 8"},
      {"chunk=16 T=77 dk=4 dv=4", [](const Arguments& a) { return a.q.shape[1] >= 41; },
       "only from T = 41 on"},
      {"form=decode chunk=16 T=40 prefill=24 dk=4 dv=4",
       [](const Arguments& a) { return a.q.shape[1] == 24; }, "only prefill = 24"},
  };
  for (const Planted& f : faults) {
    const KernelTable table = faulty::planted_table(faulty::after([&](const Arguments& a) {
      if (f.wrong(a)) faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
    }));
    const Case c = parse_case(std::string("v1 gated_delta_rule ") + f.line + kKernel);
    ASSERT_EQ(run_case(c, table).judgement.verdict, Verdict::fail) << f.line;
    Reruns reruns(30.0);
    const KeyRules found = keys_that_matter(c, table, reruns);
    ASSERT_FALSE(found.rules.empty()) << f.says;
    EXPECT_TRUE(found.rules.front().starts_with(f.says)) << found.rules.front();
  }
}

// Findings about other forms, contracts and the run without the law come last, because many faults show only
// there.
TEST(KeysThatMatter, OtherFormsAndContractsAreWeak) {
  const KernelTable table =
      faulty::planted_table([](const Kernel& base, const Arguments& a, const Contract& contract) {
        const Outcome outcome = base.run(a, contract);
        if (contract.name == "bf16" && a.cu_seqlens.present())
          faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
        return outcome;
      });
  Reruns reruns(30.0);
  const KeyRules found = keys_that_matter(
      parse_case(std::string("v1 gated_delta_rule form=packed chunk=16 lengths=9,7 dk=4 dv=4 contract=bf16") +
                 kKernel),
      table, reruns);
  const std::string all = testing::PrintToString(found.weak);
  EXPECT_NE(all.find("passes in form=chunked, decode, and fails in form=packed"), std::string::npos) << all;
  EXPECT_NE(all.find("passes with contract=fp32, and fails with contract=bf16"), std::string::npos) << all;
}

// Each key has its part of the runs' time, so that a slow kernel's first key does not take all of it.
TEST(KeysThatMatter, EachKeyHasItsPartOfTheTime) {
  const KernelTable table = faulty::planted_table(faulty::after([](const Arguments& a) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (a.v.shape[3] == 7) faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
  }));
  Reruns reruns(1.0);
  const KeyRules found = keys_that_matter(
      parse_case(std::string("v1 gated_delta_rule chunk=16 T=37 dk=4 dv=7") + kKernel), table, reruns);
  const std::string all = testing::PrintToString(found.rules);
  EXPECT_NE(all.find("dv"), std::string::npos) << all;
  EXPECT_NE(reruns.text().find("left some values untried"), std::string::npos) << reruns.text();
}

TEST(KeysThatMatter, SaysNothingOfWhatIsWrongWithEveryValue) {
  const KernelTable table = faulty::planted_table(
      faulty::after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; }); }));
  Reruns reruns(30.0);
  const KeyRules found = keys_that_matter(
      parse_case(std::string("v1 gated_delta_rule chunk=16 T=9 dk=4 dv=4") + kKernel), table, reruns);
  EXPECT_TRUE(found.rules.empty());
  // One token at a time is another kernel's, which is right.
  EXPECT_EQ(found.weak, std::vector<std::string>{"passes in form=decode, and fails in form=chunked"});
}

}  // namespace
}  // namespace samestate
