// A contract is named where it explains all failures, and not where a wider bound hides a mistake.
#include "harness/explain/explain_contract.h"

#include <gtest/gtest.h>

#include "harness/explain/explain.h"
#include "oracles/contracts.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

constexpr const char* kContractLine =
    "v1 gated_delta_rule chunk=16 T=40 dk=16 dv=16 regime=slow kernel=planted.gated_delta_rule.chunked "
    "seed=0x3";

/// The kernel with operands in tf32, and o times `factor` where there are more than 40 tokens.
faulty::Fault in_tf32(float factor = 1.0F) {
  return [factor](const Kernel& base, const Arguments& a, const Contract&) {
    const Outcome outcome = base.run(a, contract_named("tf32"));
    if (a.q.shape[1] > 40) faulty::each(a.o, [&](float& x, const auto&) { x *= factor; });
    return outcome;
  };
}

Explanation explained_run(const Case& c, const KernelTable& table) {
  Trace trace;
  EXPECT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  return explain(Resolved(c), trace);
}

TEST(ExplainContract, OperandsInTf32AreNamedAndPassEverywhere) {
  const KernelTable table = faulty::planted_table(in_tf32());
  const Case c = parse_case(kContractLine);
  const Explanation e = explained_run(c, table);
  ASSERT_FALSE(e.contracts.empty()) << testing::PrintToString(e.patterns);
  const ContractTrial trial = try_contract("fp32", "tf32", cases_near(c), table, 60.0);
  EXPECT_TRUE(trial.passes && trial.complete);
  EXPECT_EQ(trial.tried, kTrialCases);
}

// The state times 0.999 is within the bounds of tf32, but is not a rounding.
TEST(ExplainContract, AFactorIsNoRounding) {
  for (const float factor : {0.999F, 1.00006F}) {
    const KernelTable table = faulty::planted_table(faulty::after([&](const Arguments& a) {
      faulty::each(a.final_state, [&](float& x, const auto&) { x *= factor; });
    }));
    const Explanation e = explained_run(parse_case(kContractLine), table);
    EXPECT_TRUE(e.contracts.empty());
    ASSERT_FALSE(e.patterns.empty());
    EXPECT_TRUE(e.patterns.front().starts_with("the final state is the right one times "))
        << e.patterns.front();
  }
}

// One wrong element in a hundred, small enough for tf32.
TEST(ExplainContract, AFewWrongElementsAreNoRounding) {
  const KernelTable table =
      faulty::planted_table(faulty::after([](const Arguments& a) { a.o(0, 20, 0, 3) *= 1.002F; }));
  EXPECT_TRUE(explained_run(parse_case(kContractLine), table).contracts.empty());
}

// Passes under tf32 where the sequence is short, and fails it where it is long.
TEST(ExplainContract, OneThatAnotherFailureBreaksIsNotNamed) {
  const KernelTable table = faulty::planted_table(in_tf32(1.5F));
  const Case c = parse_case(kContractLine);
  ASSERT_FALSE(explained_run(c, table).contracts.empty()) << "alone it looks like it";
  EXPECT_FALSE(try_contract("fp32", "tf32", cases_near(c), table, 60.0).passes);
}

}  // namespace
}  // namespace samestate
