#include "fuzz/plan/wide_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/lists.h"
#include "harness/cases/keys.h"
#include "harness/cases/resolved.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

/// An adversary's bugs that survived acted at a width of a model after several tiles of tokens, which no case
/// had.
TEST(WideCalls, AWidthOfAModelComesBehindTilesOfTokens) {
  struct Row {
    const char* kernel;
    const char* size;
    Index width, tokens;
  };
  for (const Row& row :
       {Row{"cpu.gated_attention.online", "d", 256, 65}, Row{"cpu.gated_attention.online", "d", 64, 257},
        Row{"cpu.softmax_attention.online", "d", 128, 257},
        Row{"cpu.softmax_attention.online", "d", 64, 1025},
        Row{"cpu.state_space_duality.chunked", "N", 64, 1025},
        Row{"cpu.normalised_retention_recurrence.core", "dv", 128, 257},
        Row{"cpu.mamba_mixer.chunked", "Di", 256, 65}, Row{"cpu.gated_delta_net.chunked", "dk", 128, 65}}) {
    const KernelRow& kernel = table().row_named(row.kernel);
    const std::vector<Case> cases = wide_calls(kernel, start_of(kernel), plan_list("wide calls").most);
    EXPECT_TRUE(std::ranges::any_of(
        cases, [&](const Case& c) { return size_in(c, row.size) >= row.width && c.T >= row.tokens; }))
        << row.kernel << " " << row.size << " " << row.width;
  }
}

TEST(WideCalls, AreCasesOfWorkThatEachMayTake) {
  for (const KernelRow& kernel : table().all()) {
    std::set<std::string> seen;
    for (const Case& c : wide_calls(kernel, start_of(kernel), plan_list("wide calls").most)) {
      EXPECT_TRUE(possible(c)) << format_case(c);
      EXPECT_TRUE(within_limits(kernel, c)) << format_case(c);
      EXPECT_LE(work_of(kernel, c), 2.0) << format_case(c);
      EXPECT_GE(c.T, 70) << format_case(c);
      seen.insert(format_case(c));
    }
    EXPECT_TRUE(!kernel.system->sizes.empty() || seen.empty()) << kernel.name;
  }
}

TEST(WideCalls, FewOfEachSizeAreACase) {
  for (const KernelRow& kernel : table().all()) {
    const Case start = start_of(kernel);
    const Case few = few_of_each_size(kernel, start, start, 2);
    EXPECT_TRUE(possible(few)) << format_case(few);
    for (const CaseSize& size : kernel.system->sizes)
      EXPECT_LE(size_in(few, size.name), std::max<Index>(size_in(start, size.name), size.least))
          << format_case(few);
  }
}

}  // namespace
}  // namespace samestate
