#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "harness/cases/system.h"
#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tensor_system.h"
#include "optimized/operator_kernel.h"
#include "oracles/numbers.h"

/// Packed batches of systems of named tensors.
namespace samestate {
namespace {

const KernelTable& table() {
  static const KernelTable all({}, operator_kernels());
  return all;
}

std::vector<const KernelRow*> packing_rows() {
  std::vector<const KernelRow*> rows;
  for (const KernelRow& row : table().all()) {
    if (row.device == "cpu" && row.system->form("packed") != nullptr) rows.push_back(&row);
  }
  return rows;
}

Case packed_case(const KernelRow& row, const std::string& words) {
  return parse_case("v1 " + std::string(row.system->name) + " form=packed " + words + " kernel=" + row.name);
}

TEST(PackedTensors, EverySystemWhoseTokensMeetHasThem) {
  for (const Operator& of : operators()) {
    const bool has = system_named(of.name).form("packed") != nullptr;
    // load_balance has one number for all tokens.
    EXPECT_EQ(has, of.streams || (!of.token_wise && of.name != "load_balance")) << of.name;
  }
  EXPECT_GE(packing_rows().size(), 15U);
}

TEST(PackedTensors, RightKernelsPass) {
  for (const KernelRow* row : packing_rows()) {
    for (const std::string words :
         {"lengths=5,0,1,9 chunk=4", "lengths=3,6 unowned=2,1 chunk=4 layout=padded",
          "lengths=7,2 chunk=4 repeat=1 regime=trained"}) {
      Case c;
      try {
        c = packed_case(*row, words);
      } catch (const Error&) {
        continue;  // a system without that regime
      }
      if (!within_limits(*row, c)) continue;
      const Record record = run_case(c, table());
      EXPECT_TRUE(record.judgement.verdict == Verdict::pass || record.judgement.verdict == Verdict::vacuous)
          << format_case(c) << ": " << record.judgement.reason;
    }
  }
}

// A kernel that goes over the tokens of its call meets the last sequence too.
TEST(PackedTensors, ACallHasTheTokensOfNoSequenceToo) {
  const auto right =
      std::ranges::find(operator_kernels(), "cpu.short_convolution.scatter", &OperatorKernel::name);
  ASSERT_NE(right, operator_kernels().end());
  std::vector<OperatorKernel> rows{*right};
  std::vector<std::int64_t> tokens;
  rows[0].run = [&](const OperatorArguments& call, const Contract& contract) {
    tokens.push_back(call.tokens);
    return right->run(call, contract);
  };
  const KernelTable counted({}, rows);
  const Case c = parse_case(
      "v1 short_convolution form=packed lengths=3,2 unowned=1,2 kernel=cpu.short_convolution.scatter");
  EXPECT_EQ(run_case(c, counted).judgement.verdict, Verdict::pass);
  EXPECT_EQ(tokens, std::vector<std::int64_t>{8});
}

// A kernel that has chunks alone does not take calls without.
TEST(PackedTensors, AKernelOfChunksTakesNoCallWithout) {
  for (const char* line :
       {"v1 selective_scan form=packed chunk=0 lengths=3,0,2 kernel=cpu.selective_scan.chunked",
        "v1 state_space_duality form=decode chunk=0 T=3 kernel=cpu.state_space_duality.chunked",
        "v1 gated_delta_net form=packed chunk=0 lengths=3,2 kernel=cpu.gated_delta_net.chunked",
        "v1 linear_attention_normalised form=decode chunk=0 T=3 "
        "kernel=cpu.linear_attention_normalised.chunked"}) {
    const Judgement j = run_case(parse_case(line), table()).judgement;
    EXPECT_EQ(j.verdict, Verdict::unsupported) << line;
    EXPECT_NE(j.reason.find("chunk=0"), std::string::npos) << j.reason;
  }
}

/// The outputs of a packed case are changed in one place of each sequence.
TEST(PackedTensors, AWrongElementOfAnySequenceFailsAndIsPlaced) {
  const Case c =
      parse_case("v1 short_convolution form=packed lengths=4,0,6,3 kernel=cpu.short_convolution.scatter");
  const Resolved r(c);
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  const KernelRow& row = table().row_named(c.kernel);
  const std::vector<CaseTensor> inputs = system.inputs(r);
  const std::vector<CaseTensor> outputs = system.outputs(r, inputs, {&row, &row, &row}, {});
  const auto judge = [&](const std::vector<CaseTensor>& of) {
    return judge_tensors(r, system, system.calls(r, row.form), inputs, by_sequence(of), kGatePolicy);
  };
  EXPECT_EQ(judge(outputs).verdict, Verdict::pass) << judge(outputs).reason;
  const std::vector<Index> begins = offsets_of(c);
  for (const Index n : {0, 2, 3}) {
    std::vector<CaseTensor> wrong = outputs;
    const auto y = std::ranges::find(wrong, "y", [](const CaseTensor& x) { return x.spec.name; });
    const Index channels = y->spec.columns();
    y->data[static_cast<std::size_t>((begins[static_cast<std::size_t>(n)] + 1) * channels)] += 1.0F;
    const Judgement judgement = judge(wrong);
    EXPECT_EQ(judgement.verdict, Verdict::fail);
    EXPECT_EQ(judgement.worst.sequence, n);
    EXPECT_EQ(judgement.worst.token, 1);
  }
}

TEST(PackedTensors, ALongSequenceIsHeldAtSomeOfItsTokensAndWrongOnesAreAmongThem) {
  const Case c = parse_case(
      "v1 softmax_attention form=packed chunk=16 lengths=20,700 H=1 Hkv=1 d=4 dv=4 "
      "kernel=cpu.softmax_attention.online");
  const Resolved r(c);
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  const KernelRow& row = table().row_named(c.kernel);
  const std::vector<CaseTensor> inputs = system.inputs(r);
  const std::vector<CaseTensor> outputs = system.outputs(r, inputs, {&row, &row, &row}, {});
  const auto judge = [&](const std::vector<CaseTensor>& of) {
    return judge_tensors(r, system, system.calls(r, row.form), inputs, by_sequence(of), kGatePolicy);
  };
  const Judgement right = judge(outputs);
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_TRUE(right.held_which.starts_with("of sequence 1 tokens 0-")) << right.held_which;
  EXPECT_LT(2 * right.held, right.held_of);
  for (const std::size_t token : {std::size_t{20}, std::size_t{333}, std::size_t{719}}) {
    std::vector<CaseTensor> wrong = outputs;
    wrong.front().data[token * 4] += 1.0F;
    const Judgement judgement = judge(wrong);
    EXPECT_EQ(judgement.verdict, Verdict::fail) << token;
    EXPECT_EQ(judgement.worst.sequence, 1);
    EXPECT_EQ(judgement.worst.token, static_cast<Index>(token) - 20);
  }
}

/// A sequence is drawn as sequence n of any batch with its length.
TEST(PackedTensors, ASequenceHasTheDataOfItsNumber) {
  const Resolved packed(parse_case("v1 selective_scan form=packed lengths=4,0,6 chunk=4 seed=0x5"));
  const Resolved dense(parse_case("v1 selective_scan form=chunked B=3 T=6 chunk=4 seed=0x5"));
  const Tensors<double> a = sequence_of(packed.system->inputs(packed), 2),
                        b = sequence_of(dense.system->inputs(dense), 2);
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) EXPECT_EQ(x, get(b, name)) << name;
}

TEST(PackedTensors, AFileHasItsOffsetsAndIsJudged) {
  const Case c =
      parse_case("v1 short_convolution form=packed lengths=4,0,6 kernel=cpu.short_convolution.scatter");
  Trace trace;
  const Record record = run_case(c, table(), 1, &trace);
  RunFile file = run_file_of(record, trace);
  EXPECT_EQ(judge_run_file(file, nullptr).judgement.verdict, Verdict::pass);
  file.tensors.at("cu_seqlens").values[1] = 5.0;
  EXPECT_THROW((void)judge_run_file(file, nullptr), Error);
}

TEST(PackedTensors, AKernelThatDoesNotSayThatItTakesThemIsAskedForNone) {
  OperatorKernel row =
      *std::ranges::find(operator_kernels(), "cpu.short_convolution.scatter", &OperatorKernel::name);
  EXPECT_TRUE(within_limits(adapted(row), packed_case(adapted(row), "lengths=4,6")));
  row.packed = false;
  EXPECT_FALSE(within_limits(adapted(row), packed_case(adapted(row), "lengths=4,6")));
  row.name = "mine.short_convolution.scatter";
  KernelTable mine({}, operator_kernels());
  mine.add(std::array{row});
  EXPECT_EQ(run_case(packed_case(mine.row_named(row.name), "lengths=4,6"), mine).judgement.verdict,
            Verdict::unsupported);
}

}  // namespace
}  // namespace samestate
