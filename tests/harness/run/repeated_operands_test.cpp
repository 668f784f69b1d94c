/// Cases of right kernels whose operands repeat, which failed before the bounds and the twin's second look knew of it, and
/// faults of the same kernels there.
#include <gtest/gtest.h>

#include <string>

#include "harness/run/run_case.h"
#include "oracles/contracts.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

class RepeatedOperands : public ::testing::TestWithParam<const char*> {};

TEST_P(RepeatedOperands, OfARightKernelPass) {
  static const KernelTable table(kernels());
  const Record record = run_case(parse_case(GetParam()), table);
  EXPECT_EQ(record.judgement.verdict, Verdict::pass) << record.judgement.reason;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RepeatedOperands,
    ::testing::Values(
        // V' and e^{G_C - G} V' of pairs: 1.01 and 1.08 of the head's limit.
        "v1 linear_attention chunk=1 dk=32 dv=16 contract=fp32+v_decayed:bf16+v_new:bf16 regime=memorised",
        "v1 linear_attention form=packed lengths=66,3,64 dk=128 l2norm=1 "
        "contract=fp32+v_decayed:bf16+v_new:bf16 regime=memorised state=random",
        // Keys of pairs as they are written: 2.2 of the state's, 1.02 of a row's.
        "v1 delta_rule form=head_parallel chunk=1 ranks=2 B=40 T=320 Hk=7 dk=2 contract=fp32+k_decayed:tf32 "
        "regime=memorised state=random seed=0x7cffe0026667f932",
        // T cut off, but for its ones: 1.74 of the state's.
        "v1 delta_rule chunk=63 T=125 Hv=7 dk=4 contract=fp32+T:tf32_truncated+residual:tf32 "
        "regime=memorised seed=0xd81b076457cbf53f",
        // Products about one on either side of a number of P's format: 3.5 and 3.1 of the twin's median.
        "v1 delta_rule form=sequence_parallel chunk=48 ranks=3 T=48 Hk=17 dk=37 dv=72 "
        "contract=fp32+P:tf32_truncated regime=memorised state=random layout=sliced seed=0xba2a802fd1609107",
        "v1 linear_attention form=head_parallel chunk=72 ranks=4 cuts=drawn T=33 Hk=2 Hv=4 dk=128 "
        "heads=tiled contract=fp32+P:tf32_truncated regime=memorised state=random seed=0xb99806f47bb1710c",
        // One key that is stored again: 1.1 of the head's.
        "v1 delta_rule form=packed chunk=0 lengths=9 dk=8 dv=29 contract=fp32+qk:bf16 "
        "regime=identical_beta_two state=random seed=0xafa6939352a71d11"));

/// The allowance for declared roundings that repeat hides neither a rounding that is not declared nor a wrong
/// equation.
TEST(FaultsOfRepeatedOperands, AreSeen) {
  const std::string line =
      "v1 gated_delta_rule chunk=64 T=192 Hv=2 dk=64 contract=fp32+v_decayed:bf16+v_new:bf16 "
      "regime=memorised "
      "state=random kernel=planted.gated_delta_rule.chunked";
  const auto verdict_of = [&](const faulty::Fault& fault) {
    const KernelTable table = faulty::planted_table(fault);
    return run_case(parse_case(line), table).judgement;
  };
  EXPECT_EQ(verdict_of(faulty::undamaged).verdict, Verdict::pass);
  for (const char* rounds : {"qk:bf16", "P:bf16", "k_decayed:bf16", "beta_v:bf16"}) {
    const Contract& more = contract_named(std::string("fp32+v_decayed:bf16+v_new:bf16+") + rounds);
    const Judgement j = verdict_of(
        [&more](const Kernel& base, const Arguments& a, const Contract&) { return base.run(a, more); });
    EXPECT_EQ(j.verdict, Verdict::fail) << rounds << ": " << j.gate << ' ' << j.ratio;
  }
  const Judgement late = verdict_of(faulty::before([](Arguments& a) { a.scale *= 1.01F; }));
  EXPECT_EQ(late.verdict, Verdict::fail) << late.gate << ' ' << late.ratio;
}

}  // namespace
}  // namespace samestate
