#include "harness/explain/explain_settings.h"

#include <gtest/gtest.h>

#include "harness/run/run_case.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

constexpr const char* kLine =
    "v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 state=random final=in_place layout=padded "
    "scale=2 "
    "kernel=planted.gated_delta_rule.chunked";

// A kernel that clears the final state before it reads the initial one: in one memory it is wrong, and alone there.
TEST(ExplainSettings, NamesTheOneWithoutWhichTheCasePasses) {
  const KernelTable table = faulty::planted_table(faulty::before([](Arguments& a) {
    if (a.final_state.present() && a.final_state.data == a.initial_state.data)
      faulty::each(a.final_state, [](float& x, const auto&) { x = 0.0F; });
  }));
  const Case c = parse_case(kLine);
  ASSERT_EQ(run_case(c, table).judgement.verdict, Verdict::fail);
  EXPECT_EQ(settings_that_matter(c, table),
            std::vector<std::string>{"only with final=in_place: passes with final=apart"});
}

// A fault of the equation is there whatever the settings are.
TEST(ExplainSettings, SaysNothingOfWhatIsWrongAnyway) {
  const KernelTable table = faulty::planted_table(
      faulty::after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x += 3.0F; }); }));
  EXPECT_EQ(settings_that_matter(parse_case(kLine), table), std::vector<std::string>());
}

}  // namespace
}  // namespace samestate
