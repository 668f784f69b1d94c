#include "harness/explain/explain_settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>

#include "harness/run/run_case.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

/// Returns what is said about the case, with enough runs.
std::vector<std::string> settings_of(const Case& c, const KernelTable& table) {
  Reruns reruns(600.0);
  std::vector<std::string> texts;
  for (const SettingRule& rule : settings_that_matter(c, table, reruns)) texts.push_back(rule.text);
  return texts;
}

constexpr const char* kSettingsLine =
    "v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 state=random final=in_place layout=padded "
    "scale=2 "
    "kernel=planted.gated_delta_rule.chunked";

// A kernel that clears the final state before it reads the initial one: in one memory it is wrong, and alone there.
TEST(ExplainSettings, NamesTheOneWithoutWhichTheCasePasses) {
  const KernelTable table = faulty::planted_table(faulty::before([](Arguments& a) {
    if (a.final_state.present() && a.final_state.data == a.initial_state.data)
      faulty::each(a.final_state, [](float& x, const auto&) { x = 0.0F; });
  }));
  const Case c = parse_case(kSettingsLine);
  ASSERT_EQ(run_case(c, table).judgement.verdict, Verdict::fail);
  EXPECT_EQ(settings_of(c, table),
            std::vector<std::string>{"only with final=in_place: passes with final=apart"});
}

// A kernel that takes seconds a run, as one in Python may, is not run for minutes.
TEST(ExplainSettings, TheLimitOfRunsHoldsAndIsTold) {
  int calls = 0;
  const KernelTable table = faulty::planted_table(faulty::after([&](const Arguments& a) {
    ++calls;
    faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
  }));
  Reruns few(600.0, 7), late(0.0);
  (void)settings_that_matter(parse_case(kSettingsLine), table, few);
  EXPECT_EQ(few.runs(), 7);
  const int called = calls;
  EXPECT_TRUE(few.text().starts_with("7 reruns with one key changed at a time, ")) << few.text();
  EXPECT_NE(few.text().find("the limit of 7 reruns and 600 s"), std::string::npos) << few.text();
  EXPECT_TRUE(settings_that_matter(parse_case(kSettingsLine), table, late).empty());
  EXPECT_EQ(calls, called) << "the time was up before the first run";
}

// A fault of the equation is there whatever the settings are.
TEST(ExplainSettings, SaysNothingOfWhatIsWrongAnyway) {
  const KernelTable table = faulty::planted_table(
      faulty::after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; }); }));
  EXPECT_EQ(settings_of(parse_case(kSettingsLine), table), std::vector<std::string>());
}

// The other data pass with the one thread that their seed gives, and fail with three as these do.
TEST(ExplainSettings, ThreadsThatASeedChoosesAreNamed) {
  const KernelTable table = faulty::planted_table(faulty::after([](const Arguments& a) {
    if (a.threads > 1) faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
  }));
  const std::string line = std::string(kSettingsLine) + " seed=0x5";
  EXPECT_EQ(settings_of(parse_case(line), table),
            std::vector<std::string>{
                "only with 3 threads, which the seed chooses: 4 other seeds pass with one thread and "
                "fail with 3"});
}

/// Wrong in the calls that `wrong` says so of, counted from 0.
template <class Wrong>
KernelTable wrong_at_times(Wrong wrong, float by = 3.0F) {
  return faulty::planted_table(faulty::after([=, calls = std::make_shared<int>(0)](const Arguments& a) {
    const int call = (*calls)++;
    if (wrong(call)) faulty::each(a.o, [&](float& x, const auto&) { x += by; });
  }));
}

// As of a race. A run without a setting would pass by chance.
TEST(ExplainSettings, AFailureThatDoesNotRepeatIsBlamedOnNoSetting) {
  const KernelTable table = wrong_at_times([](int call) { return (0b110100101101 >> call & 1) != 0; });
  EXPECT_EQ(settings_of(parse_case(kSettingsLine), table),
            std::vector<std::string>{
                "not deterministic: of the same line 7 of 12 runs failed, their outputs differ "
                "bitwise; no setting is told to be the cause"});
}

// A kernel that counts its calls, or keeps something from the first, is deterministic: the rule of its runs is told.
TEST(ExplainSettings, AFailureByTheNumberOfCallsIsToldAsThat) {
  const auto says = [](bool (*wrong)(int call)) {
    return settings_of(parse_case(kSettingsLine), wrong_at_times(wrong));
  };
  const std::string begin = "depends on earlier calls in the process: the same line ";
  EXPECT_EQ(says([](int call) { return call % 3 == 2; }),
            std::vector<std::string>{begin + "fails in every third run (4 of 12 failed)"});
  EXPECT_EQ(
      says([](int call) { return call > 0; }),
      std::vector<std::string>{begin + "passes in the first run and fails from run 2 on (11 of 12 failed)"});
  EXPECT_EQ(says([](int call) { return call == 0; }),
            std::vector<std::string>{
                begin + "fails in the first run alone and passes from run 2 on (1 of 12 failed)"});
}

// keys_that_matter reports that other data pass, and how many do: a seed is not a cause.
TEST(ExplainSettings, ASeedIsNoCause) {
  const KernelTable table = faulty::planted_table(faulty::after([](const Arguments& a) {
    if (a.v(0, 0, 0, 0) > 0.0F) faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; });
  }));
  for (int seed = 1; seed < 20; ++seed) {
    const Case c = parse_case(kSettingsLine + fmt::format(" seed={}", seed));
    if (run_case(c, table).judgement.verdict != Verdict::fail) continue;
    for (const std::string& text : settings_of(c, table)) EXPECT_EQ(text.find("seed="), text.npos) << text;
  }
}

// Rare: the line itself fails whenever it is tried, and what passes without a setting does not always.
TEST(ExplainSettings, APassThatDoesNotRepeatBlamesNoSetting) {
  const KernelTable table =
      wrong_at_times([](int call) { return call < 5 || (0b101100111010 >> (call % 12) & 1) != 0; });
  const std::vector<std::string> says = settings_of(parse_case(kSettingsLine), table);
  ASSERT_EQ(says.size(), 1U);
  EXPECT_TRUE(says[0].starts_with("not deterministic: with ")) << says[0];
  EXPECT_NE(says[0].find("no setting"), std::string::npos) << says[0];
}

TEST(ExplainSettings, BitsThatDifferInAFailureThatRepeatsAreTold) {
  const KernelTable table =
      faulty::planted_table(faulty::after([calls = std::make_shared<int>(0)](const Arguments& a) {
        const auto by = 3.0F + static_cast<float>((*calls)++ % 2);
        faulty::each(a.o, [&](float& x, const auto&) { x += by; });
      }));
  EXPECT_EQ(
      settings_of(parse_case(kSettingsLine), table),
      std::vector<std::string>{"not deterministic in its bits: of the same line 5 of 5 runs failed, their "
                               "outputs differ bitwise"});
}

}  // namespace
}  // namespace samestate
