#include "measure/sweep/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/cases/case_cost.h"
#include "optimized/call_kernel.h"
#include "optimized/kernel.h"
#include "tests/facts.h"
#include "tests/harness/operator_row.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

SweepOptions only(const std::string& system, bool quick = true) { return {quick, "chunk", system, ""}; }

/// Returns the cost of one token of one head.
CaseCost token_cost(const Case& c) {
  const Resolved r(c);
  return r.system->cost(r, false);
}

SweepCase of(const std::string& line) {
  SweepCase point{"chunk", "curve", 1.0, parse_case(line)};
  return point;
}

std::string error_of(const SweepOptions& options) {
  try {
    (void)plan_sweep(table(), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A kernel of chunks that no sweep visits is a hole in the report.
TEST(SweepPlan, EverySystemWithAChunkedFormIsSweptInEachOfItsContracts) {
  for (const bool quick : {true, false}) {
    std::set<std::pair<std::string, std::string>> swept;
    for (const SweepCase& point : plan_sweep(table(), {quick, "chunk", "", ""}))
      swept.emplace(point.c.system, point.c.contract);
    for (const OperatorKernel& kernel : operator_kernels()) {
      if (kernel.form != "chunked") continue;
      // A kernel with a single chunk size has no curve.
      if (std::ranges::find(kernel.limits, "chunk in 64") != kernel.limits.end()) continue;
      for (const std::string& contract : kernel.contracts)
        EXPECT_TRUE(swept.contains({kernel.system, contract})) << kernel.name << " " << contract;
    }
    for (const Kernel& kernel : kernels()) {
      if (kernel.form != "chunked" || kernel.device != "cpu") continue;
      EXPECT_TRUE(swept.contains({kernel.system, "bf16"})) << kernel.name;
    }
  }
}

TEST(SweepPlan, FromOneTokenToTwoHundredAndFiftySix) {
  std::vector<double> chunks;
  for (const SweepCase& point : plan_sweep(table(), only("state_space_duality", false))) {
    if (point.c.contract == "bf16" && point.c.regime == "normal") chunks.push_back(point.x);
  }
  EXPECT_EQ(chunks, (std::vector<double>{1, 2, 4, 8, 16, 32, 64, 128, 256}));
}

TEST(SweepPlan, ABackwardPassHasOneCurveAGradient) {
  std::map<std::string, std::set<double>> chunks;
  for (const SweepCase& point : plan_sweep(KernelTable(call_kernels()), only("gated_delta_rule.backward"))) {
    EXPECT_TRUE(point.curve.ends_with(" " + point.output)) << point.curve;
    if (point.c.contract == "bf16") chunks[point.output].insert(point.x);
  }
  EXPECT_EQ(chunks.size(), 6U);
  for (const char* gradient : {"d.q", "d.k", "d.v", "d.g", "d.beta", "d.initial_state"})
    EXPECT_EQ(chunks[gradient], (std::set<double>{1, 4, 16, 64, 256})) << gradient;
}

TEST(Sweep, EachGradientHasItsOwnErrorAndBound) {
  const KernelTable all(call_kernels());
  std::set<double> errors;
  for (const char* gradient : {"d.q", "d.v", "d.g", "d.initial_state"}) {
    SweepCase point =
        of("v1 gated_delta_rule pass=backward chunk=16 T=70 Hv=2 dk=16 dv=8 contract=bf16 state=random");
    point.output = gradient;
    const Measurement m = measure(point, all);
    EXPECT_EQ(m.record.judgement.verdict, Verdict::pass) << gradient;
    EXPECT_GT(m.rms_error, 0.0) << gradient;
    EXPECT_LT(m.rms_error, m.rms_bound) << gradient;
    EXPECT_TRUE(std::isnan(m.state_rms)) << gradient;
    // A gradient of the state has no tokens; of the others each window is one.
    EXPECT_EQ(m.by_token.size(), point.output == "d.initial_state" ? 0U : 70U) << gradient;
    errors.insert(m.rms_error);
  }
  EXPECT_EQ(errors.size(), 4U);
}

TEST(SweepPlan, EveryPointIsACaseOfItsOwnWithACost) {
  std::set<std::string> seen;
  for (const SweepCase& point : plan_sweep(table(), {true, "", "", ""})) {
    EXPECT_TRUE(seen.insert(point.series + point.curve + format_case(point.c)).second)
        << format_case(point.c);
    EXPECT_GT(point.work, 0.0);
    if (point.c.form != "chunked") continue;
    const CaseCost cost = token_cost(point.c);
    EXPECT_GT(cost.token_operations, 0.0) << format_case(point.c);
    EXPECT_GT(cost.token_bytes, 0.0) << format_case(point.c);
  }
}

TEST(SweepPlan, NamesWhatThereIsNot) {
  EXPECT_NE(error_of({true, "wrong", "", ""}).find("known: chunk, dendritic"), std::string::npos);
  EXPECT_NE(error_of(only("wrong")).find("no such system"), std::string::npos);
  EXPECT_EQ(lacking(error_of(only("rms_norm")), "rms_norm chunked"), "");
  EXPECT_NE(error_of({true, "", "", "cpu.retention.recurrent"}).find("not a chunked kernel"),
            std::string::npos);
  EXPECT_NE(error_of({true, "", "", "cpu.selective_scan.blelloch"}).find("not a chunked kernel"),
            std::string::npos);
  EXPECT_NE(error_of({true, "", "", "wrong"}).find("no such kernel"), std::string::npos);
  EXPECT_NE(error_of({true, "", "delta_rule", "cpu.retention.chunked"}).find("computes retention"),
            std::string::npos);
}

TEST(SweepPlan, ALawHasNoErrorToMeasure) {
  SweepOptions options;
  options.from = "v1 retention T=16 dk=4 dv=4";
  options.over = {axis_of("law=split")};
  EXPECT_EQ(lacking(error_of(options), "--over law another key"), "");
  options.over = {axis_of("dk=4,8")};
  EXPECT_EQ(error_of(options), "");
  options.over.push_back(axis_of("dk=2"));
  EXPECT_EQ(lacking(error_of(options), "dk twice"), "");
  options.over = {axis_of("dk=4,8")};
  options.from += " law=split";
  EXPECT_EQ(lacking(error_of(options), "--case law=split"), "");
}

TEST(SweepPlan, AKernelBringsItsOwnSystemOnly) {
  for (const SweepCase& point : plan_sweep(table(), {true, "", "", "cpu.selective_scan.chunked"})) {
    EXPECT_EQ(point.c.system, "selective_scan");
    EXPECT_EQ(point.c.kernel, "cpu.selective_scan.chunked");
  }
  // The drift is of the recurrent kernel.
  for (const SweepCase& point : plan_sweep(table(), {true, "", "", "cpu.gated_delta_rule.chunked"}))
    EXPECT_EQ(point.c.kernel, "cpu.gated_delta_rule.chunked") << point.series;
  EXPECT_NE(error_of({true, "drift", "", "cpu.gated_delta_rule.chunked"}).find("leave one of them out"),
            std::string::npos);
}

/// Computed by hand with dk = 4, dv = 8, C = 2. Retention: 2 C dk + 2 C dv + 4 dk dv + dk dv / C = 16 + 32 +
/// 128 + 16.
TEST(SweepCosts, AreThoseOfTheSystem) {
  EXPECT_EQ(token_cost(parse_case("v1 retention chunk=2 dk=4 dv=8")).token_operations, 192.0);
  // Two states of 32 numbers of 4 bytes a chunk of two; q, k, v, o of 2 bytes, g of 4.
  EXPECT_EQ(token_cost(parse_case("v1 retention chunk=2 dk=4 dv=8")).token_bytes, 128.0 + 48.0 + 4.0);
  EXPECT_EQ(token_cost(parse_case("v1 normalised_retention form=chunked chunk=2 dk=4 dv=8")).token_bytes,
            176.0);
  // The dual with a group of two heads, P = 8, N = 4: scores 2 C N / 2, the rest as retention's.
  EXPECT_EQ(
      token_cost(parse_case("v1 state_space_duality form=chunked chunk=2 H=2 G=1 P=8 N=4")).token_operations,
      184.0);
  EXPECT_EQ(token_cost(parse_case("v1 selective_scan form=chunked chunk=2 D=5 N=4")).token_operations,
            24.0 + 6.0);
  // Traffic does not depend on the chunk but for the state: halved where the chunk is doubled.
  for (const char* line : {"v1 mamba_mixer form=chunked chunk=", "v1 mamba2_mixer form=chunked chunk=",
                           "v1 gated_delta_net form=chunked chunk=", "v1 delta_rule chunk=",
                           "v1 linear_attention_normalised form=chunked chunk="}) {
    const auto bytes = [&](const char* chunk) {
      return token_cost(parse_case(std::string(line) + chunk)).token_bytes;
    };
    EXPECT_NEAR(bytes("1") - bytes("2"), 2 * (bytes("2") - bytes("4")), 1e-9) << line;
  }
  EXPECT_TRUE(std::isnan(token_cost(parse_case("v1 retention form=recurrent")).token_operations));
  EXPECT_TRUE(std::isnan(token_cost(parse_case("v1 rms_norm form=fused")).token_bytes));
}

TEST(Sweep, MeasuresARightKernelOfEitherTable) {
  for (const char* line : {"v1 gated_delta_rule chunk=8 T=40 dk=16 state=random",
                           "v1 linear_attention_normalised form=chunked chunk=8 T=40"}) {
    const Measurement m = measure(of(line), table());
    EXPECT_EQ(m.record.judgement.verdict, Verdict::pass) << line;
    EXPECT_GT(m.rms_error, 0.0);
    EXPECT_LT(m.rms_error, m.rms_bound);
    EXPECT_LE(m.rms_error, m.max_error);
    EXPECT_GT(m.state_rms, 0.0);
    EXPECT_LT(m.state_rms, m.state_bound);
    EXPECT_GT(m.size, 1e3 * m.rms_error);
    EXPECT_EQ(m.by_token.size(), 40U);
    EXPECT_EQ(m.by_chunk_position.size(), 8U);
    double squares = 0.0;
    for (const ErrorAt& e : m.by_token) squares += e.error * e.error;
    EXPECT_NEAR(std::sqrt(squares / 40.0), m.rms_error, 1e-9 * m.rms_error)
        << "the profile is of these errors";
  }
}

TEST(Sweep, AProfileHasNoMorePointsThanAskedFor) {
  SweepCase point = of("v1 retention chunk=33 T=100 dk=8");
  point.profile = 10;
  const Measurement m = measure(point, table());
  ASSERT_EQ(m.by_token.size(), 10U);
  EXPECT_EQ(m.by_token[9].position, 90.0);
  EXPECT_EQ(m.by_chunk_position.size(), 9U) << "windows of four";
}

/// One element of one output off by 1e-3: both the verdict and the figures show it.
TEST(Sweep, MeasuresAPlantedFault) {
  static const OperatorKernel right = operator_row("cpu.selective_scan.chunked");
  OperatorKernel wrong = right;
  wrong.name = "test.selective_scan.chunked";
  wrong.run = [](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    call.output("out").data[7] += 0.5F;
    call.output("h").data[3] += 0.25F;
    return outcome;
  };
  KernelTable with(kernels(), operator_kernels());
  with.add(std::vector<OperatorKernel>{wrong});
  const Measurement m =
      measure(of("v1 selective_scan form=chunked chunk=8 T=20 kernel=test.selective_scan.chunked"), with);
  EXPECT_EQ(m.record.judgement.verdict, Verdict::fail);
  EXPECT_NEAR(m.max_error, 0.5, 1e-4);
  EXPECT_NEAR(m.state_max, 0.25, 1e-4);
  EXPECT_NEAR(m.by_token[0].error, 0.5 / std::sqrt(32.0), 1e-4) << "the first token's row of 32 channels";
}

TEST(Sweep, WhatDidNotRunHasNoFigures) {
  OperatorKernel refuses = operator_row("cpu.selective_scan.chunked");
  refuses.name = "test.selective_scan.refuses";
  refuses.run = [](const OperatorArguments&, const Contract&) {
    return Outcome{Outcome::Kind::unsupported, "no"};
  };
  KernelTable with(kernels(), operator_kernels());
  with.add(std::vector<OperatorKernel>{refuses});
  const Measurement m =
      measure(of("v1 selective_scan form=chunked chunk=8 T=20 kernel=test.selective_scan.refuses"), with);
  EXPECT_EQ(m.record.judgement.verdict, Verdict::unsupported);
  EXPECT_TRUE(std::isnan(m.rms_error) && std::isnan(m.state_rms) && std::isnan(m.state_bound));
}

}  // namespace
}  // namespace samestate
