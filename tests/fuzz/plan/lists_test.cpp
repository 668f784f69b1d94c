#include "fuzz/plan/lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fuzz/plan/corpus.h"
#include "fuzz/plan/edge_cases.h"
#include "fuzz/plan/factors.h"
#include "fuzz/plan/kernel_plan.h"
#include "optimized/operator_kernel.h"
#include "reference/error.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

/// How many cases each list has.
using Counts = std::map<const PlanList*, std::int64_t>;

void count(const KernelPlan& plan, Counts& counts) {
  for (const PlannedCase& edge : plan.edges) ++counts[edge.list];
  for (const Turn& turn : plan.turns) ++counts[turn.planned.list];
}

/// The edges of all kernels of the table that `of` takes.
Counts edges_of_kernels(const std::function<bool(const KernelRow&)>& of) {
  Counts counts;
  for (const KernelRow& kernel : table().all()) {
    if (!of(kernel)) continue;
    for (const PlannedCase& edge : edge_cases_of(table(), kernel)) ++counts[edge.list];
  }
  return counts;
}

/// The rows that no kernel has a case of.
std::set<std::string_view> without_cases(const Counts& counts) {
  std::set<std::string_view> out;
  for (const PlanList& list : plan_lists()) {
    if (!counts.contains(&list)) out.insert(list.name);
  }
  return out;
}

TEST(PlanLists, SayInASentenceWhatTheyAddAndWhy) {
  std::set<std::string_view> names, reasons;
  for (const PlanList& list : plan_lists()) {
    EXPECT_TRUE(names.insert(list.name).second) << list.name;
    EXPECT_TRUE(reasons.insert(list.why).second) << list.name << ": the reason of another list";
    for (const std::string_view text : {list.adds, list.why}) {
      ASSERT_GT(text.size(), 20U) << list.name;
      EXPECT_TRUE(std::isupper(static_cast<unsigned char>(text.front())) != 0 ||
                  std::isdigit(static_cast<unsigned char>(text.front())) != 0)
          << list.name << ": " << text;
    }
    EXPECT_TRUE(list.why.ends_with('.')) << list.name;
    EXPECT_FALSE(list.adds.ends_with('.') || list.share.empty()) << list.name;
    const int kinds = (list.edges != nullptr ? 1 : 0) + (list.turns != nullptr ? 1 : 0);
    EXPECT_EQ(kinds, list.name == kCorpusList ? 0 : 1) << list.name;
    EXPECT_EQ(&plan_list(list.name), &list);
  }
  EXPECT_THROW((void)plan_list("lengthz"), Error);
}

TEST(PlanLists, EachHasACaseOfSomeKernelAndEachCaseHasAList) {
  Counts counts = edges_of_kernels([](const KernelRow&) { return true; });
  count(plan_of_kernel(table(), table().row_named("cpu.l2norm.fused"), {}, kSecondsOfPlan), counts);
  PlanOptions all_triples;
  all_triples.effort = kTriples;
  count(plan_of_kernel(table(), table().row_named("cpu.load_balance.direct"), all_triples, 20.0), counts);
  count(plan_of_kernel(table(), table().row_named("cpu.softmax_attention.online"), all_triples, 1.0), counts);
  EXPECT_FALSE(counts.contains(nullptr));
  const std::filesystem::path folder = SAMESTATE_SOURCE_DIR "/fuzz/corpus";
  counts[&plan_list(kCorpusList)] = std::ssize(corpus_cases(read_corpus(folder), table(), {}));
  EXPECT_GT(counts[&plan_list(kCorpusList)], 0);
  EXPECT_EQ(without_cases(counts), std::set<std::string_view>());
}

// The planted fault: without kernels over ranks the rows that only they have are dead, and without the recurrent family its own.
TEST(PlanLists, ARowWithoutCasesIsSeen) {
  const auto lost = [](const std::function<bool(const KernelRow&)>& of) {
    const std::set<std::string_view> all =
        without_cases(edges_of_kernels([](const KernelRow&) { return true; }));
    std::set<std::string_view> out = without_cases(edges_of_kernels(of));
    for (const std::string_view name : all) out.erase(name);
    return out;
  };
  EXPECT_EQ(lost([](const KernelRow& kernel) { return !over_ranks(kernel); }),
            (std::set<std::string_view>{"settings of divided heads", "shapes over ranks",
                                        "shapes of divided heads"}));
  EXPECT_EQ(
      lost([](const KernelRow& kernel) { return !kernel.system->of_family(); }),
      (std::set<std::string_view>{"settings of divided heads", "shapes over ranks", "shapes of divided heads",
                                  "family calls over ranks too", "family calls", "regimes of family calls"}));
}

TEST(PlanLists, OfKnownLinesAreThoseThatPutThem) {
  struct Known {
    const char* kernel;
    const char* line;
    const char* list;
  };
  std::map<std::string, std::map<std::string, std::string_view>> lists;
  for (const Known& known :
       {Known{"cpu.retention.recurrent", "v1 retention form=recurrent T=33 dk=16 dv=8 state=random seed=0x21",
              "lengths"},
        {"cpu.retention.recurrent", "v1 retention form=decode chunk=0 T=33 dk=16 dv=8 state=random", "calls"},
        {"cpu.retention.recurrent", "v1 retention form=recurrent T=33 Hk=48 dk=16 dv=8 state=random",
         "widths between powers of two"},
        {"cpu.retention.recurrent", "v1 retention form=recurrent T=33 Hk=3 Hv=6 dk=16 dv=8 state=random",
         "head groups"},
        {"cpu.retention.recurrent", "v1 retention form=recurrent T=33 Hk=2 Hv=82 dk=16 dv=8 state=random",
         "reciprocals"},
        {"cpu.retention.recurrent", "v1 retention form=recurrent T=65537 dk=2 state=random",
         "shapes under one contract"},
        {"cpu.retention.recurrent", "v1 retention form=recurrent T=130 dk=128 state=random final=in_place",
         "family calls"},
        {"cpu.retention.chunked", "v1 retention chunk=31 T=31 dk=3 state=random", "full chunks"},
        {"cpu.retention.sequence_parallel",
         "v1 retention form=sequence_parallel chunk=16 ranks=3 cuts=drawn T=33 Hk=2 Hv=6 dk=16 dv=8 "
         "state=random",
         "shapes over ranks"},
        {"cpu.softmax_attention.online",
         "v1 softmax_attention form=decode chunk=8 prefill=63 T=66 H=2 d=3 dv=3",
         "caches that end at a tile"},
        {"cpu.softmax_attention.online", "v1 softmax_attention form=online T=1026 H=1 Hkv=1 d=64 dv=1",
         "wide calls"},
        {"cpu.softmax_attention.online", "v1 softmax_attention form=online chunk=8 B=2 T=13 law=split",
         "laws"},
        {"cpu.softmax_attention.online", "v1 softmax_attention form=online chunk=8 T=32 H=16 d=256 dv=256",
         "models"}}) {
    const auto [of, fresh] = lists.try_emplace(known.kernel);
    if (fresh) {
      for (const PlannedCase& edge : edge_cases_of(table(), table().row_named(known.kernel)))
        of->second[format_case(edge.c)] = edge.list->name;
    }
    ASSERT_TRUE(of->second.contains(known.line)) << known.line;
    EXPECT_EQ(of->second.at(known.line), known.list) << known.line;
  }
}

// A plan that is cut or filtered names for each line that is left the list that it names in the whole plan.
TEST(PlanLists, StayWithTheirCases) {
  PlanOptions options;
  options.system = "l2norm,retention";
  options.device = "cpu";
  options.effort = 0.05;
  const Plan whole = plan_of(table(), options);
  ASSERT_EQ(whole.lists.size(), whole.cases.size());
  std::map<std::string, std::set<const PlanList*>> lists;  // of the seeded cases each line has one
  for (std::size_t i = 0; i < whole.cases.size(); ++i)
    lists[format_case(whole.cases[i])].insert(whole.lists[i]);
  PlanOptions cut = options;
  cut.max_cases = 101;
  Plan part = plan_of(table(), cut);
  ASSERT_EQ(part.cases.size(), 101U);
  ASSERT_EQ(part.lists.size(), part.cases.size());
  part.keep({100, 3, 50});
  ASSERT_EQ(part.lists.size(), 3U);
  Plan few = plan_of(table(), cut);
  EXPECT_EQ(part.lists, (std::vector<const PlanList*>{few.lists[100], few.lists[3], few.lists[50]}));
  std::set<const PlanList*> met;
  for (std::size_t i = 0; i < few.cases.size(); ++i) {
    EXPECT_TRUE(lists[format_case(few.cases[i])].contains(few.lists[i])) << format_case(few.cases[i]);
    met.insert(few.lists[i]);
  }
  EXPECT_GT(met.size(), 5U);
}

}  // namespace
}  // namespace samestate
