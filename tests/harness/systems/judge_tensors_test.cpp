#include "harness/systems/judge_tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/run/chosen_tokens.h"
#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "oracles/numbers.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

/// A case of many tokens and its kernel's outputs, to be changed.
struct Long {
  Long(const std::string& line, std::string_view kernel)
      : row(adapted(operator_row(kernel))),
        r(parse_case(line)),
        system(dynamic_cast<const TensorSystem&>(*r.system)),
        inputs(system.inputs(r)),
        outputs(system.outputs(r, inputs, {&row, &row, &row}, {r.layout, 1})) {}

  [[nodiscard]] Judgement judge() const {
    return judge_tensors(r, system, system.calls(r, row.form), inputs, by_sequence(outputs), kGatePolicy);
  }
  /// Element of a token of the first output.
  float& at(Index token, Index column, Index b = 0) {
    std::vector<float>& data = outputs.front().data;
    const auto all = static_cast<Index>(data.size()) / r.c.B;
    return data[static_cast<std::size_t>(b * all + token * (all / r.c.T) + column)];
  }

  KernelRow row;
  Resolved r;
  const TensorSystem& system;
  std::vector<CaseTensor> inputs, outputs;
};

void expect_every_wrong_token_fails(Long& of, const std::vector<Index>& tokens) {
  const Judgement right = of.judge();
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_EQ(right.held_of, of.r.c.T);
  EXPECT_LT(2 * right.held, of.r.c.T);
  EXPECT_TRUE(right.held_which.starts_with("tokens 0-")) << right.held_which;
  for (const Index token : tokens) {
    float& x = of.at(token, 1);
    const float was = x;
    x = 1.01F * x + 1e-2F;
    const Judgement wrong = of.judge();
    EXPECT_EQ(wrong.verdict, Verdict::fail) << token;
    EXPECT_EQ(wrong.worst.token, token);
    x = kNaN;
    EXPECT_EQ(of.judge().verdict, Verdict::fail) << token;
    x = was;
  }
}

TEST(JudgeTensors, OneWrongTokenOfManyThatDoNotMeet) {
  Long of("v1 rms_norm form=fused T=66000 H=1 D=5", "cpu.rms_norm.fused");
  expect_every_wrong_token_fails(of, {0, 40, 333, 4096, 12345, 65999});
}

TEST(JudgeTensors, OneWrongTokenOfManyThatMeetThoseBefore) {
  Long of("v1 softmax_attention form=online chunk=16 T=700 H=1 Hkv=1 d=4 dv=3",
          "cpu.softmax_attention.online");
  expect_every_wrong_token_fails(of, {0, 40, 333, 512, 699});
}

TEST(JudgeTensors, OneWrongTokenOfManyThatComeAlone) {
  Long of("v1 latent_attention form=decode prefill=595 T=600 D=2 H=1 dn=2 dr=2 dv=2 dc=3 q_lora=0",
          "cpu.latent_attention.absorbed");
  expect_every_wrong_token_fails(of, {0, 40, 333, 594, 596, 599});
}

// The bound of a token is the same whether it is held with all others or with a few.
TEST(JudgeTensors, HeldTokensHaveTheBoundsOfTheWhole) {
  for (const char* contract : {"fp32", "bf16"}) {
    Long of(std::string("v1 softmax_attention form=online chunk=16 T=700 H=2 Hkv=1 d=4 dv=3 contract=") +
                contract,
            "cpu.softmax_attention.online");
    float& x = of.at(300, 2);
    x += 0.25F;
    const Judgement wrong = of.judge();
    ASSERT_EQ(wrong.worst.token, 300);
    std::vector<OperatorOracle> whole;
    (void)judge_tensors(of.r, of.system, of.system.calls(of.r, of.row.form), of.inputs,
                        by_sequence(of.outputs), kGatePolicy, &whole);
    ASSERT_EQ(whole.size(), 1U);
    const double bound = get(whole.front().tolerance, "o")(300, 2);
    EXPECT_NEAR(wrong.ratio, std::abs(x - get(whole.front().exact, "o")(300, 2)) / bound, 1e-6 * wrong.ratio)
        << contract;
  }
}

// Tokens that come alone, and those before them, have the oracle that they have by themselves.
TEST(JudgeTensors, CallsThatEndWithinASpan) {
  for (const char* line : {"v1 softmax_attention form=decode chunk=255 prefill=464 T=470 H=3 Hkv=3 d=1 dv=1 "
                           "contract=bf16 regime=spiky",
                           "v1 softmax_attention form=decode chunk=16 prefill=1 T=400 H=1 Hkv=1 d=2 dv=2"}) {
    Long of(line, "cpu.softmax_attention.merged");
    const Judgement right = of.judge();
    EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
    EXPECT_LT(right.ratio, 1.0);
    std::vector<OperatorOracle> whole;
    (void)judge_tensors(of.r, of.system, of.system.calls(of.r, of.row.form), of.inputs,
                        by_sequence(of.outputs), kGatePolicy, &whole);
    const Index last = of.r.c.T - 1;
    of.at(last, 0) += 0.5F;
    const Judgement wrong = of.judge();
    EXPECT_EQ(wrong.worst.token, last);
    const double bound = get(whole.front().tolerance, "o")(last, 0);
    EXPECT_NEAR(wrong.bound, bound, 1e-6 * bound);
  }
}

// The tokens that are compared in all sequences of a batch are reported after the sequences that are
// compared.
TEST(JudgeTensors, ManySequencesOfManyTokens) {
  Long of("v1 l2norm form=fused B=30 T=500 H=1 D=3", "cpu.l2norm.fused");
  const Judgement right = of.judge();
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_EQ(right.held_of, 30);
  EXPECT_NE(right.held_which.find("; tokens 0-"), std::string::npos) << right.held_which;
  of.at(444, 1, 17) += 0.5F;
  const Judgement wrong = of.judge();
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_EQ(wrong.worst.sequence, 17);
  EXPECT_EQ(wrong.worst.token, 444);
}

TEST(JudgeTensors, LayersAreHeldWhole) {
  for (const char* line :
       {"v1 gated_attention form=online chunk=8 T=400", "v1 mamba_mixer form=chunked chunk=8 T=400",
        "v1 selective_scan form=chunked chunk=8 T=400", "v1 load_balance form=direct T=400"}) {
    const Resolved r(parse_case(line));
    const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
    EXPECT_FALSE(held_by_token(system.row, system.signature(r.c))) << line;
  }
}

// The gate said vacuous and repro, which asks for the oracles, pass: it drew ten times as long.
TEST(JudgeTensors, WhoAsksForTheOraclesGetsTheSameVerdict) {
  Long of("v1 latent_attention form=absorbed B=2 T=78 D=72 dn=72 dr=72 dv=72 dc=72 q_lora=72 contract=bf16",
          "cpu.latent_attention.absorbed");
  std::vector<OperatorOracle> oracles;
  const Judgement asked = judge_tensors(of.r, of.system, of.system.calls(of.r, of.row.form), of.inputs,
                                        by_sequence(of.outputs), kGatePolicy, &oracles);
  const Judgement gate = of.judge();
  EXPECT_EQ(oracles.size(), 2U);
  EXPECT_EQ(gate.verdict, asked.verdict) << asked.reason;
  EXPECT_EQ(gate.gate, asked.gate);
  EXPECT_EQ(gate.ratio, asked.ratio);
  EXPECT_EQ(gate.reason, asked.reason);
}

// Sequences that take a quarter of a second each: one is held, the farthest from float64.
TEST(JudgeTensors, OfADearBatchTheWrongSequenceIsHeld) {
  Long of("v1 selective_scan form=chunked B=3 T=128 D=1536 N=16 seed=0x9", "cpu.selective_scan.chunked");
  const Judgement right = of.judge();
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_EQ(right.held, 1);
  EXPECT_EQ(right.held_of, 3);
  for (Index b = 0; b < 3; ++b) {
    float& x = of.at(100, 1000, b);
    const float was = std::exchange(x, 1.01F * x + 1e-2F);
    const Judgement wrong = of.judge();
    EXPECT_EQ(wrong.verdict, Verdict::fail) << b;
    EXPECT_EQ(wrong.worst.sequence, b);
    EXPECT_EQ(wrong.held_which, std::to_string(b));
    x = was;
  }
}

// Where nothing is far from float64, the first sequence is held rather than none.
TEST(JudgeTensors, OfADearBatchWithoutErrorsOneIsHeld) {
  Long of("v1 selective_scan form=chunked B=3 T=128 D=1536 N=16", "cpu.selective_scan.chunked");
  for (CaseTensor& input : of.inputs) std::ranges::fill(input.data, 0.0F);
  for (CaseTensor& output : of.outputs) std::ranges::fill(output.data, 0.0F);
  const Judgement judgement = of.judge();
  EXPECT_EQ(judgement.held, 1);
  EXPECT_EQ(judgement.held_which, "0");
}

}  // namespace
}  // namespace samestate
