#include "fuzz/plan/compiled_variants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "fuzz/plan/ordinary_calls.h"
#include "fuzz/plan/plan.h"
#include "harness/cases/resolved.h"
#include "harness/cases/system.h"
#include "harness/run/kernel_table.h"
#include "optimized/kernel.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr const char* kVariantName = "mine.retention.recurrent";

/// The table with a subject of retention that is compiled for those keys.
KernelTable with_variant(const std::vector<std::string>& keys, const std::vector<std::string>& limits = {}) {
  Kernel row = KernelTable(kernels()).named("cpu.retention.recurrent");
  row.name = kVariantName, row.contracts = {"fp32", "bf16"}, row.limits = limits;
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  table.converts(kVariantName, false, keys, {});
  return table;
}

std::vector<Case> lines(std::initializer_list<const char*> sizes) {
  std::vector<Case> cases;
  for (const char* text : sizes)
    cases.push_back(
        parse_case(std::string("v1 retention form=recurrent ") + text + " kernel=" + kVariantName));
  return cases;
}

TEST(CompiledVariants, ThoseWithMostCasesOfWhatIsNewAreKeptEachInOnePiece) {
  const KernelTable table = with_variant({"dk", "contract"});
  std::vector<Case> cases = lines({"T=1 dk=8", "T=1 dk=16", "T=2 dk=8", "T=3 dk=8 contract=bf16",
                                   "T=4 dk=16 contract=bf16", "T=5 dk=8", "T=6 dk=16"});
  cases.push_back(parse_case("v1 retention form=recurrent T=7 dk=32"));  // another kernel's
  std::vector<std::size_t> places;
  const std::vector<LeftOut> left = keep_callable(cases, table, 2, &places);
  EXPECT_EQ(places, (std::vector<std::size_t>{0, 1, 2, 5, 6, 3, 4, 7}));
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(
      text_of(left[0]),
      "mine.retention.recurrent: 2 of 4 variants are compiled (--compiles takes more), and 3 cases of the "
      "others have their sizes and settings");
  std::vector<std::string> shown;
  for (const Case& c : cases) shown.push_back(fmt::format("{} {} {}", c.T, c.dk, c.contract));
  // dk=8 in fp32 has most cases; then one case of two new values against two cases of one. T=1 dk=16 becomes T=1 dk=8 dv=16.
  EXPECT_EQ(shown, (std::vector<std::string>{"1 8 fp32", "1 8 fp32", "2 8 fp32", "5 8 fp32", "6 8 fp32",
                                             "3 16 bf16", "4 16 bf16", "7 32 fp32"}));

  std::vector<Case> all = lines({"T=1 dk=8", "T=1 dk=16", "T=2 dk=8"});
  EXPECT_EQ(text_of(keep_callable(all, table, 0)[0]),
            "mine.retention.recurrent: 2 of 2 variants are compiled");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[1].T, 2) << "one variant is done before the next is compiled";
  leave_compiled(all, table);
  EXPECT_TRUE(all.empty());
}

TEST(CompiledVariants, SizesThatOccurOnceDoNotTakeThePlaceOfASettingThatOccursOften) {
  const KernelTable table = with_variant({"dk", "dv", "Hk", "state"});
  std::vector<Case> cases = lines(
      {"T=1", "T=2", "T=3", "T=4", "T=5", "T=6", "T=7 dk=3 dv=5 Hk=7 state=random", "T=8 dk=9 dv=11 Hk=13"});
  for (int T = 9; T < 15; ++T) {
    const std::string text = "T=" + std::to_string(T) + " state=random";
    cases.push_back(lines({text.c_str()}).front());
  }
  EXPECT_EQ(keep_callable(cases, table, 2).at(0).kept, 2);
  EXPECT_EQ(
      std::ranges::count_if(cases, [](const Case& c) { return c.state == "random" && c.dk == Case{}.dk; }), 7)
      << "six of its own, and the one whose sizes occur once";
}

TEST(CompiledVariants, ValuesThatNoVariantHasAreNamed) {
  const KernelTable table = with_variant({"dk"});
  std::vector<Case> cases =
      lines({"T=1 dk=8", "T=2 dk=8", "T=3 dk=8", "T=1 dk=16", "T=2 dk=32", "T=3 dk=32"});
  EXPECT_EQ(text_of(keep_callable(cases, table, 1).at(0)),
            "mine.retention.recurrent: 1 of 3 variants are compiled (--compiles takes more), and 3 cases of "
            "the others "
            "have their sizes and settings; no variant has dk=32, dk=16");
}

TEST(CompiledVariants, ValuesOfOneKindShareAVariantWhereAKeyGoesBySixteens) {
  const KernelTable table = with_variant({"T%16"});
  std::vector<Case> cases = lines({"T=16", "T=1", "T=48", "T=17", "T=33"});
  EXPECT_EQ(keep_callable(cases, table, 0).at(0).variants, 3);
  std::vector<std::int64_t> tokens;
  for (const Case& c : cases) tokens.push_back(c.T);
  EXPECT_EQ(tokens.size(), 5U);
  EXPECT_EQ(std::ranges::find(tokens, 48) - std::ranges::find(tokens, 16), 1);
  EXPECT_EQ(std::ranges::find(tokens, 33) - std::ranges::find(tokens, 17), 1);
  EXPECT_THROW((void)with_variant({"width%16"}), Error);
}

TEST(CompiledVariants, AWholePlanIsMovedToTheSizesThatAreCompiled) {
  const KernelTable table = with_variant({"Hk", "Hv", "dk", "dv", "contract", "state"});
  PlanOptions options;
  options.kernel = kVariantName;
  std::vector<Case> cases = plan_cases(table, options);
  const std::size_t planned = cases.size();
  const LeftOut left = keep_callable(cases, table, 12).at(0);
  EXPECT_EQ(left.kept, 12);
  EXPECT_GT(left.variants, 200);
  EXPECT_GT(2 * cases.size(), planned) << left.left << " left out";
  std::set<std::tuple<Index, Index, Index, Index, std::string, std::string>> compiled;
  std::set<std::string> regimes, layouts;
  double seconds = 0.0;
  for (const Case& c : cases) {
    compiled.emplace(c.Hk, c.Hv, c.dk, c.dv, c.contract, c.state);
    regimes.insert(c.regime), layouts.insert(c.layout);
    EXPECT_TRUE(possible(c)) << format_case(c);
    seconds = std::max(seconds, seconds_of_call(table.row_named(kVariantName), c));
  }
  EXPECT_EQ(compiled.size(), 12U);
  EXPECT_TRUE(std::ranges::any_of(compiled, [](const auto& v) { return std::get<2>(v) == 128; }));
  EXPECT_GE(regimes.size(), 15U) << "what is not compiled stays as it was planned";
  EXPECT_LE(seconds, 4 * kSecondsOfDearCall);
}

// A fault at the heads of a model lives where all cases of these sizes have one token, or are packed, or are left out.
TEST(CompiledVariants, SizesOfModelsAreMetWithEachKindOfTokens) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.recurrent");
  row.name = "mine.gated_delta_rule.recurrent", row.contracts = {"bf16_io"};
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  table.converts(row.name, false, {"Hk", "Hv", "dk", "dv", "T%16", "state", "form", "l2norm"}, {});
  for (const std::uint64_t seed : {1U, 2U}) {
    PlanOptions options;
    options.kernel = row.name;
    options.seed = seed;
    std::vector<Case> cases = plan_cases(table, options);
    EXPECT_EQ(keep_callable(cases, table, 24).at(0).kept, 24);
    const auto met = [&](auto&& condition) {
      return std::ranges::count_if(
          cases, [&](const Case& c) { return c.dk == 128 && c.dv == 128 && c.Hv >= 8 && condition(c); });
    };
    EXPECT_GE(met([](const Case& c) { return c.lengths.empty() && c.T > 1 && c.T % 16 != 0; }), 40) << seed;
    EXPECT_GE(met([](const Case& c) { return c.lengths.empty() && c.T > 1 && c.Hk < c.Hv; }), 20) << seed;
    EXPECT_GE(met([](const Case& c) { return !c.lengths.empty(); }), 20) << seed;
    EXPECT_GE(met([](const Case& c) { return c.state != "random" && c.T > 1; }), 20) << seed;
  }
}

TEST(CompiledVariants, WhatLiesOutsideTheLimitsIsNotRun) {
  const KernelTable table = with_variant({}, {"dk <= 8"});
  std::vector<Case> cases = lines({"T=1 dk=8", "T=1 dk=16"});
  const std::vector<LeftOut> left = keep_callable(cases, table, 8);
  ASSERT_EQ(cases.size(), 1U);
  EXPECT_EQ(text_of(left.at(0)),
            "mine.retention.recurrent: 1 cases of the plan lie outside its limits or need a kernel of the "
            "other form");
  cases.push_back(
      parse_case(std::string("v1 retention form=decode prefill=3 T=5 dk=4 kernel=") + kVariantName));
  cases.push_back(
      parse_case(std::string("v1 retention form=decode chunk=0 prefill=3 T=5 dk=4 kernel=") + kVariantName));
  (void)keep_callable(cases, table, 8);
  ASSERT_EQ(cases.size(), 2U) << "there is no chunked kernel of its name";
  EXPECT_EQ(cases[1].chunk, 0);
  cases.pop_back();
  leave_compiled(cases, table);
  EXPECT_EQ(cases.size(), 1U) << "nothing is compiled by its calls";
}

TEST(CompiledVariants, AWholePlanHasEveryValueOfAFewKeys) {
  const KernelTable table = with_variant({"dk", "dv", "contract", "state"}, {"dk in 16 64", "dv in 16 64"});
  PlanOptions options;
  options.kernel = kVariantName;
  std::vector<Case> cases = plan_cases(table, options);
  (void)keep_callable(cases, table, 4);
  std::set<std::string> dk, dv, contract, state;
  for (const Case& c : cases)
    dk.insert(std::to_string(c.dk)), dv.insert(std::to_string(c.dv)), contract.insert(c.contract),
        state.insert(c.state);
  EXPECT_EQ(dk.size(), 2U);
  EXPECT_EQ(dv.size(), 2U);
  EXPECT_EQ(contract.size(), 2U);
  EXPECT_EQ(state.size(), 2U);
}

TEST(CompiledVariants, AKeyThatNoCallShowsIsRefused) {
  for (const char* key : {"seed", "width", "lengths"}) {
    try {
      (void)with_variant({key});
      FAIL() << key;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("variant: '" + std::string(key) + "'"), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace samestate
