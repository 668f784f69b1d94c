/// The twin gate on kernels that leave out one rounding point of bf16_fused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/run/run_case.h"
#include "oracles/contracts.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::planted_table;

struct TwinPoint {
  const char* name;
  Format Contract::*field;
};

/// The points whose absence the gate must see by itself. One need not be seen: the tf32 of the inverse is
/// finer than the bf16 of T, which rounds it away except for one element in eight. v_decayed shows in the
/// final states of the run and of its pieces. tests/optimized/fused_contract_test.cpp measures both against
/// the twin itself.
constexpr TwinPoint kTwinPoints[] = {
    {"residual", &Contract::residual},  {"T", &Contract::T}, {"state_operand", &Contract::state_operand},
    {"v_new", &Contract::v_new},        {"P", &Contract::P}, {"output", &Contract::output},
    {"v_decayed", &Contract::v_decayed}};

Record run(const faulty::Fault& fault, const std::string& line) {
  const KernelTable table = planted_table(fault);
  return run_case(parse_case(line), table);
}

std::string case_line(const char* regime) {
  return fmt::format(
      "v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked chunk=64 T=256 dk=64 dv=64 l2norm=1 "
      "contract=bf16_fused regime={} state=random seed=0x5",
      regime);
}

TEST(FusedTwinGate, KillsAKernelThatLeavesOutARoundingPoint) {
  for (const TwinPoint& point : kTwinPoints) {
    const faulty::Fault without = [&](const Kernel& base, const Arguments& a, Contract c) {
      c.*point.field = Format::fp32;
      return base.run(a, c);
    };
    const Record record = run(without, case_line("slow"));
    EXPECT_EQ(record.judgement.verdict, Verdict::fail) << point.name;
    EXPECT_TRUE(record.judgement.gate.starts_with("twin")) << point.name << ": " << record.judgement.reason;
    RecordProperty(point.name, std::to_string(record.judgement.twin_ratio));
  }
}

TEST(FusedTwinGate, PassesTheKernelThatKeepsThemAll) {
  for (const char* regime : {"slow", "beta_two"}) {
    const Record record = run(faulty::undamaged, case_line(regime));
    EXPECT_EQ(record.judgement.verdict, Verdict::pass) << record.judgement.reason;
    EXPECT_GT(record.judgement.twin_ratio, 0.0) << regime;
  }
}

}  // namespace
}  // namespace samestate
