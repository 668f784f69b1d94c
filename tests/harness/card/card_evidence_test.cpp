/// Tests what distinguishes the values of a point, with synthetic outputs.
#include "harness/card/card_evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "harness/run/family_run.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

/// Returns what a kernel that is the twin of `contract` would have written on every probe.
std::vector<Outputs> outputs_of(const std::vector<Probe>& probes, const Contract& contract,
                                bool reordered = false) {
  std::vector<Outputs> out;
  for (const Probe& probe : probes) {
    const Path path = Resolved(probe.c).path(probe.batch.shape.T);
    out.push_back(run_on_twin("gated_delta_rule", probe.batch, path,
                              probe.c.l2norm ? with_l2norm(contract) : contract, reordered));
  }
  return out;
}

// Where log2 e multiplies turns one rounding to bf16 on these probes, which the twin's own bits tell and no others: a kernel
// whose exponential is not the twin's turns as many.
TEST(CardEvidence, AFewTurnedRoundingsTellOnlyWhatIsTheTwinToTheBit) {
  const KernelTable table(kernels());
  const KernelRow& row = table.row_named("cpu.gated_delta_rule.chunked");
  const std::vector<Probe> probes = probes_of(row, "bf16_fused");
  const Contract& contract = contract_named("bf16_fused+log2e:sum");
  std::vector<Outputs> outputs = outputs_of(probes, contract);
  CardDistance bits("gated_delta_rule", probes, outputs);
  EXPECT_EQ(bits.likeness(contract), CardDistance::Likeness::bits);
  EXPECT_TRUE(evidence_of(contract_point("log2e"), contract, bits).told);

  float& one = outputs.back().o.front();
  one *= 1.0F + 0x1p-7F;
  CardDistance sums("gated_delta_rule", probes, outputs);
  EXPECT_EQ(sums.likeness(contract), CardDistance::Likeness::sums);
  const CardPoint log2e = evidence_of(contract_point("log2e"), contract, sums);
  EXPECT_FALSE(log2e.told) << log2e.without << " on " << log2e.probe;
  EXPECT_FALSE(log2e.like.empty());
  EXPECT_TRUE(evidence_of(contract_point("residual"), contract, sums).told);

  CardDistance another("gated_delta_rule", probes, outputs_of(probes, contract, true));
  EXPECT_EQ(another.likeness(contract), CardDistance::Likeness::another_order);
  EXPECT_FALSE(evidence_of(contract_point("log2e"), contract, another).told);
}

}  // namespace
}  // namespace samestate
