// Tests what repro says about an operator that fails, with a planted fault for each pattern.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "fuzz/mutants/operators/changed_call.h"
#include "harness/explain/explain.h"

namespace samestate {
namespace {

using mutants::CallFault;
using mutants::Change;
using mutants::ChangedCall;
using mutants::misread;
using mutants::miswritten;

constexpr const char* kPlantedOperator = "cpu.linear_attention_normalised.chunked";
constexpr const char* kOperatorLine =
    "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=2 H=4 dk=8 dv=8";
constexpr std::int64_t kWidth = 32;  // of a token of o: 4 heads of 8

/// An output [B, T, width] of a fault, value by value: x(b, t, j) <- f(old, b, t, j).
template <class Function>
Change each_of(const char* name, std::int64_t width, Function f) {
  return [=](ChangedCall& call) {
    const std::span<float> now = call.output(name);
    const std::vector<float> old(now.begin(), now.end());
    const std::int64_t T = call.call.tokens;
    for (std::size_t i = 0; i < now.size(); ++i) {
      const auto flat = static_cast<std::int64_t>(i);
      now[i] = f([&](std::int64_t b, std::int64_t t,
                     std::int64_t j) { return old[static_cast<std::size_t>((b * T + t) * width + j)]; },
                 flat / width / T, flat / width % T, flat % width);
    }
  };
}
template <class Function>
Change each_o(Function f) {
  return each_of("o", kWidth, f);
}

struct KnownOperator {
  const char* name;
  const char* line;
  const char* says;
  const char* kernel;
  CallFault fault;
};

constexpr const char* kStep = "cpu.gated_delta_step.expanded";
constexpr const char* kSteps = "v1 gated_delta_step form=expanded T=2 B=6 Hk=2 Hv=4 dk=4 dv=4 seed=3";

/// Head 2 alone is off.
void third_head_off(ChangedCall& call) {
  const std::span<float> o = call.output("o");
  for (std::size_t i = 0; i < o.size(); ++i) o[i] *= i / 4 % 4 == 2 ? 1.5F : 1.0F;
}

/// Something for a request without a slot.
void null_slot_answers(ChangedCall& call) {
  const std::span<float> o = call.output("o");
  for (std::size_t i = 0; i < o.size(); ++i) o[i] += call.input("slot")[i / 32] < 0.0F ? 1.0F : 0.0F;
}

/// The first row of every slot of sequence 0 changes.
void first_rows_off(ChangedCall& call) {
  const std::span<float> pool = call.output("pool");
  for (std::size_t slot = 0; slot < 3; ++slot) pool[slot * 64] += 1.0F;
}

const KnownOperator kKnownOperators[] = {
    {"OneHead", kSteps, "o: only head(s) 2 of 4", kStep, miswritten(third_head_off)},
    {"NullSlot", kSteps, "has no slot (slot is -1): its outputs are zero and no row is written", kStep,
     miswritten(null_slot_answers)},
    {"OthersRows", kSteps, "they must stay as they were given", kStep, miswritten(first_rows_off)},
    {"HeadOfGates", "v1 activation_gates form=branchless T=64 H=4", "beta: only head(s) 2",
     "cpu.activation_gates.branchless", miswritten([](ChangedCall& call) {
       const std::span<float> beta = call.output("beta");
       for (std::size_t i = 2; i < beta.size(); i += 4) beta[i] += 0.25F + 0.125F * static_cast<float>(i % 3);
     })},
    {"Factor", kOperatorLine, "o: the right values times 2", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) { return 2 * o(b, t, j); }))},
    {"Zero", kOperatorLine, "o: all zero", kPlantedOperator,
     miswritten(each_o([](auto&&, auto, auto, auto) { return 0.0F; }))},
    {"NotFinite", kOperatorLine, "NaN, infinite or were never written", kPlantedOperator,
     miswritten([](ChangedCall& call) { call.output("o")[7] = NAN; })},
    {"Heads", kOperatorLine,
     "of the 4 blocks of a token, 0 holds that of 1, 1 holds that of 2, 2 holds that of 3", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) { return o(b, t, (j + 8) % kWidth); }))},
    {"TwoHeads", kOperatorLine, "of the 4 blocks of a token, 1 holds that of 3, 3 holds that of 1",
     kPlantedOperator, miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j / 8 % 2 == 1 ? (j + 16) % kWidth : j);
     }))},
    {"Interleaved", kOperatorLine, "the 4 blocks of 8 of a token are interleaved", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) { return o(b, t, j % 4 * 8 + j / 4); }))},
    {"Rows", "v1 rms_norm form=fused T=9 H=3 D=16", "of the 3 rows (heads) of a token, 0 holds that of 2",
     "cpu.rms_norm.fused",
     miswritten(each_of("y", 48, [](auto&& y, auto b, auto t, auto j) { return y(b, t, (j + 32) % 48); }))},
    {"Late", kOperatorLine, "shifted: token t holds the value of token t - 1", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) { return t > 0 ? o(b, t - 1, j) : 0.0F; }))},
    {"Early", kOperatorLine, "shifted: token t holds the value of token t + 1", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) { return t < 20 ? o(b, t + 1, j) : 0.0F; }))},
    {"FirstOfChunk", kOperatorLine, "only the first token of a chunk", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j) + (t % 8 == 0 ? 1.0F + static_cast<float>(j) : 0.0F);
     }))},
    {"PartialChunk", kOperatorLine, "only the last, partial chunk", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j) + (t >= 16 ? 1.0F + static_cast<float>(j % 3) : 0.0F);
     }))},
    {"SecondChunk", kOperatorLine, "errors begin at token 8, the first of the second chunk", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j) + (t >= 8 ? 1.0F + static_cast<float>(j % 3) : 0.0F);
     }))},
    {"LastToken", kOperatorLine, "only the last token", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j) + (t == 20 ? 1.0F + static_cast<float>(j % 3) : 0.0F);
     }))},
    {"OneOutput", kOperatorLine, "only S: the other output(s) are right", kPlantedOperator,
     miswritten([](ChangedCall& call) { call.output("S")[5] += 3.0F; })},
    {"OneSequence", kOperatorLine, "only sequence 1 of 2", kPlantedOperator,
     miswritten(each_o([](auto&& o, auto b, auto t, auto j) {
       return o(b, t, j) + (b == 1 ? 1.0F + static_cast<float>(j % 3) : 0.0F);
     }))},
    {"OneColumn", kOperatorLine, "o: only channel(s) 5 of the 8 of a head", kPlantedOperator,
     miswritten(
         each_o([](auto&& o, auto b, auto t, auto j) { return o(b, t, j) + (j % 8 == 5 ? 1.0F : 0.0F); }))},
    {"FactorOfAColumn", kOperatorLine,
     "o: only channel(s) 5 of the 8 of a head: the right values there times 1.02", kPlantedOperator,
     miswritten(
         each_o([](auto&& o, auto b, auto t, auto j) { return (j % 8 == 5 ? 1.02F : 1.0F) * o(b, t, j); }))},
    {"HeadOfTheLastAxis", kOperatorLine, "o: only head(s) 2 of 4", kPlantedOperator,
     miswritten(
         each_o([](auto&& o, auto b, auto t, auto j) { return o(b, t, j) + (j / 8 == 2 ? 1.0F : 0.0F); }))},
    {"Resume", "v1 linear_attention_normalised form=decode chunk=8 prefill=9 T=14 H=2 dk=8 dv=8",
     "only after the resume: the 9 token(s) before a state was carried are right", kPlantedOperator,
     misread([](ChangedCall& call) {
       if (call.call.tokens == 1) call.fill("S", 0.0F), call.fill("z", 0.0F);
     })},
    {"ResumeWithoutPrefill", "v1 linear_attention_normalised form=decode chunk=8 T=6 H=2 dk=8 dv=8",
     "only after the resume: the 1 token(s) before a state was carried are right", kPlantedOperator,
     misread([](ChangedCall& call) { call.fill("S", 0.0F), call.fill("z", 0.0F); })},
};

class ExplainOperator : public testing::TestWithParam<KnownOperator> {};

TEST_P(ExplainOperator, KnowsThePattern) {
  const KnownOperator& known = GetParam();
  std::vector<Mutant> planted;
  mutants::add_faults(planted, known.kernel, {{"F", "planted", "planted", known.fault}});
  const KernelTable table = planted.front().table();
  const Case c = parse_case(known.line);
  Trace trace;
  EXPECT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  const Explanation why = explain(Resolved(c), trace);
  std::vector<std::string> says = why.patterns;
  for (const ContractHint& hint : why.contracts) says.push_back(hint.text);
  EXPECT_TRUE(std::any_of(says.begin(), says.end(), [&](const std::string& p) {
    return p.find(known.says) != p.npos;
  })) << testing::PrintToString(says);
  EXPECT_LE(why.patterns.size(), 6U) << testing::PrintToString(why.patterns);
  EXPECT_FALSE(why.differs.empty());
  EXPECT_FALSE(why.values.empty());
  EXPECT_EQ(why.terms.size(), 2U);
}

// If everything is off by about as much, some element is the farthest: the first elements beyond their bound,
// with an error that grows, are not a place, and neither are all tokens.
TEST(ExplainTensors, TheFarthestOfManyIsNoPlace) {
  const Case c = parse_case("v1 rms_norm form=fused T=64 H=2 D=32");
  std::string first, all;
  for (double off = 1e-8; first.empty() || all.empty(); off *= 1.05) {
    ASSERT_LT(off, 1.0);
    const CallFault fault = miswritten([off](ChangedCall& call) {
      for (float& x : call.output("y")) x = static_cast<float>(x * (1.0 + off));
    });
    std::vector<Mutant> planted;
    mutants::add_faults(planted, "cpu.rms_norm.fused", {{"F", "planted", "planted", fault}});
    Trace trace;
    if (run_case(c, planted.front().table(), 1, &trace).judgement.verdict != Verdict::fail) continue;
    const Explanation why = explain(Resolved(c), trace);
    ASSERT_FALSE(why.differs.empty());
    const std::string patterns = testing::PrintToString(why.patterns) + ".";
    if (first.empty()) first = patterns + why.differs.front();
    if (off > 0.1) all = patterns;
  }
  for (const std::string& said : {first, all}) {
    for (const char* place : {"from token", "only head", "only channel", "only element"})
      EXPECT_EQ(said.find(place), std::string::npos) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, ExplainOperator, testing::ValuesIn(kKnownOperators),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace samestate
