// Tests what repro says about a law of named tensors that fails, with planted faults for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "harness/explain/explain.h"
#include "oracles/reasons.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::says;
using mutants::CallFault;
using mutants::ChangedCall;
using mutants::misread;
using mutants::miswritten;

constexpr const char* kLawKernel = "cpu.linear_attention_normalised.chunked";
constexpr const char* kLawLine =
    "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=3 H=2 dk=8 dv=8 law=";
constexpr std::int64_t kLawWidth = 16;  // of a token of o or of v: 2 heads of 8

/// o(b, t, j) += of(v, b, t, j), where v(b, t, j) is what the call read.
template <class Function>
CallFault adds(Function of) {
  return miswritten([=](ChangedCall& call) {
    const std::span<float> o = call.output("o");
    const std::span<float> given = call.input("v");
    const std::int64_t T = call.call.tokens;
    const auto v = [&](std::int64_t b, std::int64_t t, std::int64_t j) {
      return given[static_cast<std::size_t>((b * T + t) * kLawWidth + j)];
    };
    for (std::size_t i = 0; i < o.size(); ++i) {
      const auto flat = static_cast<std::int64_t>(i);
      o[i] += of(v, flat / kLawWidth / T, flat / kLawWidth % T, flat % kLawWidth, T);
    }
  });
}

struct KnownTensorLaw {
  const char* name;
  const char* law;
  const char* first;      ///< the first side of the comparison, in words
  const char* second;     ///< the same
  const char* equations;  ///< which side is wrong
  const char* differs;    ///< where they part
  const char* says;       ///< the kind of fault that does that
  CallFault fault;
};

const KnownTensorLaw kKnownTensorLaws[] = {
    {"OneStateIsLost", "split", "all tokens in one call", "cut before token",
     "the first is right and the second is wrong", "they part at token 20, head 0, channel 0",
     "the second call starts from a fresh z: what the first left is lost at the resume",
     misread([](ChangedCall& call) { call.fill("z", 0.0F); })},
    {"AllStatesAreLost", "split", "all tokens in one call", "cut before token",
     "the first is right and the second is wrong", "", "the second call starts from a fresh S, z",
     misread([](ChangedCall& call) { call.fill("S", 0.0F), call.fill("z", 0.0F); })},
    {"OneTokenCalls", "split", "all tokens in one call", "cut before token",
     "the first is right and the second is wrong", "", "only where a call has one token",
     adds([](auto&&, auto, auto, auto, auto T) { return T == 1 ? 3.0F : 0.0F; })},
    {"BeforeTheCut", "split", "all tokens in one call", "cut before token 7, the states carried",
     "the first is right and the second is wrong", "they part at token 6, head 0, channel 0",
     "token(s) before the cut differ, from 6 on",
     adds([](auto&&, auto, auto t, auto, auto T) { return T == 7 && t == 6 ? 3.0F : 0.0F; })},
    {"Window", "split", "all tokens in one call", "cut before token 10",
     "the first is right and the second is wrong", "they part at token 10, head 0, channel 0",
     "only the 3 token(s) after the cut, none later: a window that is not carried",
     adds([](auto&&, auto, auto t, auto, auto T) { return T == 11 && t < 3 ? 3.0F : 0.0F; })},
    {"StateLeft", "split", "all tokens in one call", "cut before token",
     "the first is right and the second is wrong", "S of sequence 0",
     "the rows by token agree: only what the last call leaves differs", miswritten([](ChangedCall& call) {
       if (call.call.tokens == 11) call.output("S")[0] += 9.0F;
     })},
    {"NextToken", "causality", "the tokens as they are", "q, k, v of the tokens from", "the first is wrong",
     "they part at token", "a token sees the one after it, none beyond",
     adds([](auto&& v, auto b, auto t, auto j, auto T) { return t + 1 < T ? v(b, t + 1, j) : 0.0F; })},
    {"MaskInAChunk", "causality", "the tokens as they are", "q, k, v of the tokens from",
     "the first is wrong", "they part at token",
     "a token sees others of its chunk alone: the mask inside a chunk",
     adds([](auto&& v, auto b, auto t, auto j, auto T) {
       return v(b, std::min<std::int64_t>(t / 8 * 8 + 7, T - 1), j);
     })},
    {"WholeSequence", "causality", "the tokens as they are", "q, k, v of the tokens from",
     "the first is wrong", "they part at token 0, head 0, channel",
     "every earlier token sees the change: something is taken over the whole sequence",
     adds([](auto&& v, auto b, auto, auto j, auto T) { return v(b, T - 1, j); })},
    {"FirstRowForAll", "batch_permutation", "the rows of the batch in their order", "in reverse order",
     "the first is wrong and the second is wrong", "o of sequence 1",
     "every row of the batch is given row 0's result", miswritten([](ChangedCall& call) {
       for (const char* name : {"o", "S", "z"}) {
         const std::span<float> x = call.output(name);
         const std::size_t size = x.size() / static_cast<std::size_t>(call.call.batch);
         for (std::size_t i = size; i < x.size(); ++i) x[i] = x[i % size];
       }
     })},
    {"AnotherRow", "batch_permutation", "the rows of the batch in their order", "in reverse order",
     "the first is wrong and the second is wrong", "they part at token 0, head 0, channel 0",
     "row(s) 1 of the batch are wrong whichever sequence stands there",
     adds([](auto&& v, auto b, auto t, auto j, auto) { return b == 1 ? v(0, t, j) : 0.0F; })},
};

class ExplainTensorLaw : public testing::TestWithParam<KnownTensorLaw> {};

TEST_P(ExplainTensorLaw, SaysWhatWasComparedAndWhereItParts) {
  const KnownTensorLaw& known = GetParam();
  std::vector<Mutant> planted;
  mutants::add_faults(planted, kLawKernel, {{"F", "planted", "planted", known.fault}});
  const KernelTable table = planted.front().table();
  const Case c = parse_case(std::string(kLawLine) + known.law);
  Trace trace;
  const Judgement judgement = run_case(c, table, 1, &trace).judgement;
  ASSERT_EQ(judgement.verdict, Verdict::fail) << judgement.reason;
  // A trace changes neither what is run nor what is judged.
  const Judgement alone = run_case(c, table).judgement;
  EXPECT_EQ(alone.ratio, judgement.ratio);
  EXPECT_EQ(alone.reason, judgement.reason);

  const Explanation why = explain(Resolved(c), trace);
  ASSERT_GE(why.compared.size(), 3U);
  EXPECT_NE(why.compared[0].find(known.first), std::string::npos) << why.compared[0];
  EXPECT_NE(why.compared[1].find(known.second), std::string::npos) << why.compared[1];
  EXPECT_TRUE(says(why.compared, known.equations)) << testing::PrintToString(why.compared);
  EXPECT_TRUE(says(why.differs, known.differs)) << testing::PrintToString(why.differs);
  EXPECT_TRUE(says(why.patterns, known.says)) << testing::PrintToString(why.patterns);
  EXPECT_LE(why.patterns.size(), 6U) << testing::PrintToString(why.patterns);
  EXPECT_FALSE(why.values.empty());
  EXPECT_EQ(why.expected, "first");
  ASSERT_EQ(why.terms.size(), 4U);
  EXPECT_DOUBLE_EQ(why.terms[1].value + why.terms[2].value, why.terms[3].value);
  EXPECT_GT(why.terms[0].value, why.terms[3].value);
}

INSTANTIATE_TEST_SUITE_P(Faults, ExplainTensorLaw, testing::ValuesIn(kKnownTensorLaws),
                         [](const auto& info) { return std::string(info.param.name); });

// Elements that are finite in neither run do not violate any law, and are not explained as a violation.
TEST(ExplainTensorLaws, WhatIsFiniteInNeitherRunIsSaidAsSuch) {
  std::vector<Mutant> planted;
  mutants::add_faults(planted, kLawKernel, {{"F", "planted", "planted", miswritten([](ChangedCall& call) {
                                               for (float& x : call.output("o")) x = std::nanf("");
                                             })}});
  const KernelTable table = planted.front().table();
  for (const char* law : {"causality", "reset", "split", "batch_permutation"}) {
    SCOPED_TRACE(law);
    const Case c = parse_case(std::string(kLawLine) + law);
    Trace trace;
    const Judgement judgement = run_case(c, table, 1, &trace).judgement;
    EXPECT_EQ(judgement.verdict, Verdict::fail);
    EXPECT_NE(judgement.reason.find(kBothNotFinite), std::string::npos) << judgement.reason;
    const Explanation why = explain(Resolved(c), trace);
    EXPECT_TRUE(why.patterns.empty()) << testing::PrintToString(why.patterns);
    ASSERT_EQ(why.differs.size(), 1U);
    EXPECT_NE(why.differs.front().find("the law says nothing"), std::string::npos) << why.differs.front();
    for (const std::string& line : why.compared) EXPECT_EQ(line.find("-1"), std::string::npos) << line;
  }
}

// If runs differ in nothing that belongs to a token, no token is named.
TEST(ExplainTensorLaws, NoTokenIsNamedWhereNoneIsMeant) {
  std::vector<Mutant> planted;
  mutants::add_faults(planted, kLawKernel,
                      {{"F", "planted", "planted", adds([](auto&&, auto, auto, auto, auto T) {
                          static int call = 0;
                          return static_cast<float>(T > 0 ? ++call : 0);
                        })}});
  const KernelTable table = planted.front().table();
  const Case c = parse_case(std::string(kLawLine) + "reset");
  Trace trace;
  ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  for (const std::string& line : explain(Resolved(c), trace).compared)
    EXPECT_EQ(line.find("-1"), std::string::npos) << line;
}

// The last axis of gates is of heads.
TEST(ExplainTensorLaws, AnElementIsNamedByTheAxisOfItsTensor) {
  std::vector<Mutant> planted;
  mutants::add_faults(planted, "cpu.activation_gates.branchless",
                      {{"F", "planted", "planted", miswritten([](ChangedCall& call) {
                          const std::span<float> beta = call.output("beta");
                          for (std::size_t i = 2; i < beta.size() / 2; i += 4) beta[i] += 0.25F;
                        })}});
  const KernelTable table = planted.front().table();
  const Case c = parse_case("v1 activation_gates form=branchless B=2 T=8 H=4 law=batch_permutation");
  Trace trace;
  ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  const Explanation why = explain(Resolved(c), trace);
  EXPECT_TRUE(says(why.differs, "they part at token 0, head 2")) << testing::PrintToString(why.differs);
}

TEST(ExplainTensorLaws, ARightKernelHasNothingToExplain) {
  for (const char* law : {"split", "causality", "batch_permutation"}) {
    const Case c = parse_case(std::string(kLawLine) + law);
    Trace trace;
    EXPECT_EQ(run_case(c, KernelTable({}, operator_kernels()), 1, &trace).judgement.verdict, Verdict::pass);
    EXPECT_FALSE(trace.tensor_law.empty());
    const Explanation why = explain(Resolved(c), trace);
    EXPECT_TRUE(why.differs.empty() && why.patterns.empty()) << law;
  }
}

}  // namespace
}  // namespace samestate
