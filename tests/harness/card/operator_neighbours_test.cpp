/// Contracts that explain what a kernel of named tensors wrote, where it declares another.
#include "harness/card/operator_neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "tests/facts.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

/// `kernel` of the table under `does`, whatever it is called with, its outputs times `factor`.
OperatorKernel known(const char* kernel, const char* does, float factor = 1.0F) {
  const OperatorKernel& right = operator_row(kernel);
  OperatorKernel row = right;
  row.name = "known." + right.system + "." + right.form;
  row.strided = false;
  row.contracts = {"fp32", "tf32", "bf16"};
  row.run = [&right, does, factor](const OperatorArguments& call, const Contract&) {
    const Outcome outcome = right.run(call, contract_named(does));
    for (const NamedTensor<float>& x : call.outputs) {
      std::int64_t size = 1;
      for (const std::int64_t extent : x.shape) size *= extent;
      for (std::int64_t i = 0; i < size; ++i) x.data[i] *= factor;
    }
    return outcome;
  };
  return row;
}

struct Asked {
  Judgement judgement;
  Neighbours neighbours;
  bool about = false;
};

Asked asked(const OperatorKernel& kernel, const char* declared, const std::string& sizes = " T=40") {
  const KernelTable table({}, std::vector<OperatorKernel>{kernel});
  Case c = parse_case("v1 " + kernel.system + " form=" + kernel.form + sizes + " seed=0x5");
  c.contract = declared;
  c.kernel = kernel.name;
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  const Resolved r(c);
  return {record.judgement, neighbours_of(r, trace, 60.0), is_about_the_contract(r, record.judgement)};
}

TEST(OperatorNeighbours, AreWhatAnOperatorsContractSays) {
  const auto names = [](const char* of, int changes) {
    std::set<std::string> out;
    for (const Contract& c : operator_contracts_near(contract_named(of), changes))
      out.insert(contract_of(c).name);
    return out;
  };
  EXPECT_TRUE(names("fp32", 1).contains("tf32+exponential:exact")) << "the exponential stays its own";
  EXPECT_TRUE(names("fp32", 2).contains("tf32"));
  EXPECT_TRUE(names("tf32", 1).contains("tf32_truncated"));
  EXPECT_FALSE(names("bf16", 1).contains("tf32")) << "data are in bf16";
  for (const char* of : {"fp32", "tf32", "bf16", "fp16"}) EXPECT_FALSE(names(of, 1).contains(of));
}

TEST(OperatorNeighbours, NameTheOperandsThatTheOutputsShow) {
  for (const char* kernel : {"cpu.softmax_attention.online", "cpu.gated_delta_net.chunked"}) {
    const Asked cut = asked(known(kernel, "tf32_truncated"), "tf32");
    EXPECT_EQ(cut.judgement.verdict, Verdict::fail) << kernel;
    EXPECT_TRUE(cut.about) << cut.judgement.gate;
    EXPECT_EQ(lacking(cut.neighbours.text(), "passes contract tf32_truncated"), "")
        << kernel << ": " << cut.neighbours.text();
    const Asked of_fp32 = asked(known(kernel, "tf32_truncated"), "fp32");
    EXPECT_EQ(of_fp32.judgement.verdict, Verdict::fail) << kernel;
    EXPECT_TRUE(of_fp32.about) << of_fp32.judgement.gate;
    EXPECT_NE(of_fp32.neighbours.text().find("tf32_truncated"), std::string::npos)
        << kernel << ": " << of_fp32.neighbours.text();
  }
}

// Data in fp32, every output a number of bf16: said where it is so, and not of outputs that are none.
TEST(OperatorNeighbours, NameTheFormatThatTheOutputsAreWrittenIn) {
  const Asked written = asked(known("cpu.softmax_attention.online", "fp32+output:bf16"), "fp32");
  EXPECT_EQ(written.judgement.verdict, Verdict::fail);
  EXPECT_EQ(lacking(written.neighbours.text(), "passes contract fp32+output:bf16"), "")
      << written.neighbours.text();
  const Asked scaled = asked(known("cpu.softmax_attention.online", "fp32", 1.0003F), "fp32");
  EXPECT_EQ(scaled.neighbours.text().find("output:bf16"), std::string::npos) << scaled.neighbours.text();
}

TEST(OperatorNeighbours, SayThatNoContractExplainsAScale) {
  const Asked scaled = asked(known("cpu.softmax_attention.online", "tf32", 1.003F), "tf32");
  EXPECT_EQ(scaled.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(scaled.neighbours.passes.empty()) << scaled.neighbours.text();
  EXPECT_NE(scaled.neighbours.text().find("no other contract within two changes"), std::string::npos);
}

TEST(OperatorNeighbours, StopWhereTheyAreToldTo) {
  const Neighbours none = [] {
    const Case c = parse_case("v1 softmax_attention form=online T=8");
    return operator_neighbours_of(Resolved(c), {}, 60.0, [] { return true; });
  }();
  EXPECT_FALSE(none.complete);
}

}  // namespace
}  // namespace samestate
