/// Kernels of contracts that are changes of a named one: within their bounds, near their twin, and far from the twin of the
/// contract without the change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

#include "harness/run/run_case.h"
#include "optimized/cpu/rounding.h"
#include "oracles/contracts.h"
#include "tests/harness/operator_row.h"
#include "tests/harness/planted.h"
#include "tests/harness/random_contract.h"

namespace samestate {
namespace {

/// The CPU kernels, which keep every contract.
KernelTable table_for(std::string_view contract) {
  KernelTable table(kernels());
  table.keep(contract);
  return table;
}

TEST(ChangedContract, TheCpuKernelsPassUnderAnyContractOfTheGrammar) {
  std::mt19937_64 random(11);
  const char* systems[] = {"gated_delta_rule", "gated_delta_rule", "delta_rule", "retention",
                           "linear_attention"};
  const char* regimes[] = {"normal", "slow", "unnormalised", "tiny_v", "positive"};
  int judged = 0;
  for (int n = 0; n < 90; ++n) {
    const Format input = n % 3 == 0 ? Format::bf16 : n % 3 == 1 ? Format::fp16 : Format::fp32;
    const Contract& c = testing::random_contract(random, 1 + n % 6, input);
    const char* system = systems[random() % 5];
    std::string regime = regimes[random() % 5];
    if (regime == "slow" &&
        (std::string(system) == "delta_rule" || std::string(system) == "linear_attention"))
      regime = "normal";
    const std::string line = fmt::format(
        "v1 {} form={} chunk={} T=100 dk=24 dv=24 l2norm={} contract={} regime={} state=random seed={}",
        system, n % 5 == 0 ? "recurrent" : "chunked", n % 2 == 0 ? 64 : 33, random() % 2, c.name, regime, n);
    const Record record = run_case(parse_case(line), table_for(c.name));
    EXPECT_NE(record.judgement.verdict, Verdict::fail) << line << "\n" << record.judgement.reason;
    EXPECT_NE(record.judgement.verdict, Verdict::unsupported) << line << "\n" << record.judgement.reason;
    judged += record.judgement.verdict == Verdict::pass ? 1 : 0;
  }
  EXPECT_GE(judged, 60);
}

struct Point {
  const char* with;     ///< the contract that the kernel keeps
  const char* without;  ///< a contract under which it must not pass
  const char* regime;
  bool l2norm;
};

constexpr Point kPoints[] = {
    {"bf16+inverse:block16/tf32_truncated", "bf16_block16_tf32", "collinear", false},
    {"fp32+inverse:block16/bf16+merges:rows", "fp32+inverse:block16/bf16", "slow", false},
    {"bf16+beta_k:bf16", "bf16", "collinear", false},
    {"bf16+residual:bf16", "bf16", "slow", false},
    {"bf16+beta_in_T:yes+residual:bf16", "bf16+residual:bf16", "slow", false},
    {"bf16+norm:unrounded", "bf16", "slow", true},
    {"bf16_io", "bf16", "slow", false},
};

TEST(ChangedContract, AKernelThatRoundsSoFailsTheTwinOfTheContractWithoutIt) {
  for (const Point& p : kPoints) {
    const Contract& does = contract_named(p.with);
    const faulty::Fault fault = [&](const Kernel& base, const Arguments& a, const Contract&) {
      return base.run(a, p.l2norm ? with_l2norm(does) : does);
    };
    KernelTable table = faulty::planted_table(fault);
    const auto run = [&](const char* contract) {
      return run_case(
          parse_case(fmt::format("v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked chunk=64 T=192 "
                                 "dk=64 dv=64 l2norm={} contract={} regime={} state=random seed=0x5",
                                 p.l2norm ? 1 : 0, contract, p.regime)),
          table);
    };
    const Record right = run(p.with);
    EXPECT_EQ(right.judgement.verdict, Verdict::pass) << p.with << ": " << right.judgement.reason;
    const Record wrong = run(p.without);
    EXPECT_EQ(wrong.judgement.verdict, Verdict::fail) << p.with << " as " << p.without;
    RecordProperty(p.with,
                   fmt::format("{:.3g} / {:.3g}", right.judgement.twin_ratio, wrong.judgement.twin_ratio));
  }
}

TEST(ChangedContract, ANearestCardReportsTheTwinAndGatesTheRest) {
  const faulty::Fault fault = [&](const Kernel& base, const Arguments& a, const Contract&) {
    return base.run(a, contract_named("bf16+beta_k:bf16"));
  };
  const std::string line =
      "v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked T=192 dk=64 dv=64 contract={} regime={} "
      "state=random "
      "seed=0x5";
  const KernelTable table = faulty::planted_table(fault);
  const auto run = [&](const KernelTable& of, const char* contract, const char* regime) {
    return run_case(parse_case(fmt::format(fmt::runtime(line), contract, regime)), of).judgement;
  };
  EXPECT_EQ(run(table, "bf16", "collinear").verdict, Verdict::fail);
  const Judgement nearest = run(table, "bf16+card:nearest", "collinear");
  EXPECT_EQ(nearest.verdict, Verdict::pass);
  EXPECT_GT(nearest.twin_ratio, 1.0);
  EXPECT_NE(nearest.reason.find("nearest"), std::string::npos);
  // A wrong factor is not a card: bounds and exact regimes gate as usual.
  const KernelTable broken = faulty::planted_table(
      faulty::after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x *= 1.5F; }); }));
  EXPECT_EQ(run(broken, "bf16+card:nearest", "normal").verdict, Verdict::fail);
  EXPECT_EQ(run(broken, "bf16+card:nearest", "exact").verdict, Verdict::fail);
}

// The weights of a norm have 16 bits in most models, and a library gives their gradients in 16 bits too. The judge draws
// weights in fp32, so that the contract has to say it. A gradient that is one per cent off fails there too.
TEST(ChangedContract, AGradientOfAWeightIsWrittenInSixteenBitsWhereTheContractSaysSo) {
  for (const std::string system : {"rms_norm", "gated_rms_norm", "activation_gates"}) {
    const std::string form = system == "activation_gates" ? "branchless" : "fused";
    const OperatorKernel& right = operator_row(fmt::format("cpu.{}.backward.{}", system, form));
    const auto verdict = [&](const char* contract, bool written, float factor, std::uint64_t seed) {
      OperatorKernel kernel = right;
      kernel.contracts = {contract};
      kernel.run = [&, factor](const OperatorArguments& call, const Contract& c) {
        const Outcome outcome = right.run(call, c);
        for (const NamedTensor<float>& x : call.outputs) {
          if (!written || x.axis != Axis::whole) continue;
          for (std::int64_t i = 0; i < x.shape.front(); ++i) x.data[i] = cpu::to_bf16(factor * x.data[i]);
        }
        return outcome;
      };
      const Resolved r(parse_case(
          fmt::format("v1 {}.backward form={} B=3 T=9 contract={} seed={}", system, form, contract, seed)));
      const KernelRow row = adapted(kernel);
      return run_resolved(r, {&row, &row, &row}, 1).judgement.verdict;
    };
    constexpr const char* kWritten = "bf16_io+weight_gradient.written:bf16";
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      EXPECT_EQ(verdict("bf16_io", false, 1.0F, seed), Verdict::pass) << system << seed;
      EXPECT_EQ(verdict("bf16_io", true, 1.0F, seed), Verdict::fail) << system << seed;
      EXPECT_EQ(verdict(kWritten, true, 1.0F, seed), Verdict::pass) << system << seed;
      EXPECT_EQ(verdict(kWritten, true, 1.01F, seed), Verdict::fail) << system << seed;
    }
  }
}

TEST(ChangedContract, RowsAreReadInCanonicalFormAndHeldExactOnRequest) {
  KernelTable table(kernels());
  Kernel mine = table.named("cpu.gated_delta_rule.chunked");
  mine.name = "my.gated_delta_rule.chunked";
  mine.contracts = {"bf16+inverse:block16/tf32+card:nearest",
                    "bf16+inverse:block16/tf32_truncated+beta_k:bf16"};
  table.add(std::span(&mine, 1));
  EXPECT_EQ(table.all().back().contracts,
            (std::vector<std::string>{"bf16_block16_tf32+card:nearest",
                                      "bf16+beta_k:bf16+inverse:block16/tf32_truncated"}));
  table.keep("bf16+A:bf16");  // only rows that keep any
  EXPECT_EQ(table.all().back().contracts.size(), 2U);
  EXPECT_EQ(table.all().front().contracts.back(), "bf16+A:bf16");
  table.hold_exact();
  EXPECT_EQ(table.all().back().contracts.front(), "bf16_block16_tf32");
  EXPECT_NE(table.all().back().options.find("--strict"), std::string::npos);
}

}  // namespace
}  // namespace samestate
