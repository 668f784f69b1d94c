// Tests what repro says about a law that fails, with a planted fault for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/explain/explain.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::adds_where;
using faulty::after;
using faulty::Copy;
using faulty::Fault;
using faulty::planted_table;
using faulty::says;

constexpr const char* kLawCase =
    "v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 state=random "
    "kernel=planted.gated_delta_rule.chunked law=";

/// A fault, the law that finds it, and what the explanation must say of it.
struct KnownLaw {
  const char* law;
  const char* first;      ///< the first side of the comparison, in words
  const char* second;     ///< the same
  const char* equations;  ///< which side is wrong; empty if that is not said
  const char* pattern;
  Fault chunked;
  Fault recurrent = faulty::undamaged;
};

const KnownLaw kKnownLaws[] = {
    {"path_equivalence", "in chunks of 8", "token by token", "the first is wrong and the second is right",
     "only the last, partial chunk", adds_where([](const Arguments& a, const auto& at) {
       return at[1] >= a.q.shape[1] / a.chunk * a.chunk;
     })},
    {"split", "all tokens in one call", "cut before token", "the first is right and the second is wrong",
     "the second: the state is lost at the resume",
     [](const Kernel& base, Arguments a, const Contract& c) {
       // The second call of a split is the one that works in place.
       if (a.initial_state.data == a.final_state.data) a.initial_state = {};
       return base.run(a, c);
     }},
    {"causality", "the tokens as they are", "v, g and beta of the tokens from", "",
     "a token sees the one after it, none beyond", after([](const Arguments& a) {
       faulty::each(a.o, [&](float& x, const auto& at) {
         if (at[1] + 1 < a.o.shape[1]) x += a.v(at[0], at[1] + 1, at[2], at[3]);
       });
     })},
    {"batch_permutation", "the rows of the batch in their order", "each row moved one place down", "",
     "every sequence is given the first one's result", after([](const Arguments& a) {
       faulty::each(a.o, [&](float& x, const auto& at) { x = a.o(0, at[1], at[2], at[3]); });
       faulty::each(a.final_state,
                    [&](float& x, const auto& at) { x = a.final_state(0, at[1], at[2], at[3]); });
     })},
    {"head_permutation", "the heads in their order", "each key head moved one place down", "",
     "only head 0 of 4", adds_where([](const Arguments&, const auto& at) { return at[2] == 0; })},
    {"linearity", "v and the initial state whole", "the sum of the runs on two parts", "",
     "only o: the final state is right",
     after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x += 0.5F * x * x; }); })},
    {"no_op", "o is zero and the state stays", "what the run on them returned", "", "only the final state",
     after(
         [](const Arguments& a) { faulty::each(a.final_state, [](float& x, const auto&) { x *= 0.75F; }); })},
    {"packing", "each sequence as a row of a dense batch", "packed end to end",
     "the first is right and the second is wrong", "only sequence 1 of 2",
     adds_where([](const Arguments& a, const auto& at) { return a.cu_seqlens.present() && at[1] >= 27; })},
    {"serving", "the whole history of slot", "what its calls returned, and its state after call", "",
     "that call started from a zero state instead of the slot's", faulty::undamaged,
     [](const Kernel& base, Arguments a, const Contract& c) {
       if (a.q.shape[1] == 1) a.initial_state = {};
       return base.run(a, c);
     }},
    {"reset", "all tokens, alpha = 0 at token", "alone, from a zero state",
     "the first is wrong and the second is right", "alpha = 0 is ignored",
     [](const Kernel& base, Arguments a, const Contract& c) {
       Copy<3> g(a.g, [](float x, const auto&) { return x < -1e20F ? 0.0F : x; });
       a.g = g.view();
       return base.run(a, c);
     }},
    {"norm_bounds", "the most that the inputs allow", "the norm of a row of o", "",
     "the second: the wrong rows of o are the right ones times 100",
     after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x *= 100.0F; }); })},
    {"recall", "scale (||k||^2 v + (1 - ||k||^2) S^T k)", "o of the last token", "",
     "the second: the last token is left out",
     [](const Kernel& base, Arguments a, const Contract& c) {
       Copy<3> beta(a.beta, [&](float x, const auto& at) { return at[1] + 1 == a.o.shape[1] ? 0.0F : x; });
       a.beta = beta.view();
       return base.run(a, c);
     }},
};

Explanation explained(const KernelTable& table, const std::string& line, Verdict verdict) {
  const Case c = parse_case(line);
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  EXPECT_EQ(record.judgement.verdict, verdict) << line << ": " << record.judgement.reason;
  // A trace changes neither what is run nor what is judged.
  const Judgement alone = run_case(c, table).judgement;
  EXPECT_EQ(alone.ratio, record.judgement.ratio) << line;
  EXPECT_EQ(alone.reason, record.judgement.reason) << line;
  return explain(Resolved(c), trace);
}

class ExplainLaw : public testing::TestWithParam<KnownLaw> {};

TEST_P(ExplainLaw, SaysWhatWasComparedAndWhereItParts) {
  const KnownLaw& known = GetParam();
  const Explanation why = explained(planted_table(known.chunked, known.recurrent),
                                    std::string(kLawCase) + known.law, Verdict::fail);
  ASSERT_GE(why.compared.size(), 2U);
  EXPECT_NE(why.compared[0].find(known.first), std::string::npos) << why.compared[0];
  EXPECT_NE(why.compared[1].find(known.second), std::string::npos) << why.compared[1];
  EXPECT_TRUE(says(why.compared, known.equations)) << testing::PrintToString(why.compared);
  EXPECT_TRUE(says(why.patterns, known.pattern)) << testing::PrintToString(why.patterns);
  EXPECT_LE(why.patterns.size(), 8U) << testing::PrintToString(why.patterns);
  EXPECT_FALSE(why.differs.empty());
  EXPECT_FALSE(why.values.empty());
  EXPECT_EQ(why.expected, "first");
  ASSERT_EQ(why.terms.size(), 4U);
  EXPECT_DOUBLE_EQ(why.terms[1].value + why.terms[2].value, why.terms[3].value);
  EXPECT_GT(why.terms[0].value, why.terms[3].value);
  EXPECT_EQ(why.program.empty(), std::string(known.law) != "serving");
}

// A limit on the sums of g would account for it as well, but any limit would, so that its value says nothing.
TEST(ExplainLawReset, GatesThatAreLostNextToAVastSumAreNoLimit) {
  const Fault loses = [](const Kernel& base, Arguments a, const Contract& c) {
    Copy<3> g(a.g, [&](float x, const auto& at) {
      for (std::int64_t t = at[1] / a.chunk * a.chunk; a.chunk > 0 && t < at[1]; ++t) {
        if (a.g(at[0], t, at[2]) < -1e20F) return 0.0F;
      }
      return x;
    });
    a.g = g.view();
    return base.run(a, c);
  };
  const Explanation why =
      explained(planted_table(loses, faulty::undamaged), std::string(kLawCase) + "reset", Verdict::fail);
  EXPECT_TRUE(says(why.patterns, "after alpha = 0 the other gates of its chunk are lost"))
      << testing::PrintToString(why.patterns);
  EXPECT_FALSE(says(why.patterns, "clipped")) << testing::PrintToString(why.patterns);
}

INSTANTIATE_TEST_SUITE_P(OfEach, ExplainLaw, testing::ValuesIn(kKnownLaws),
                         [](const auto& info) { return std::string(info.param.law); });

TEST(ExplainLaws, EveryLawHasItsFaultHere) {
  for (const Law* law : system_named("gated_delta_rule").laws) {
    EXPECT_TRUE(std::any_of(std::begin(kKnownLaws), std::end(kKnownLaws), [&](const KnownLaw& k) {
      return k.law == law->name;
    })) << law->name;
  }
}

TEST(ExplainLaws, ARightKernelLeavesNothingToExplain) {
  for (const Law* law : system_named("gated_delta_rule").laws) {
    const Explanation why = explained(planted_table(faulty::undamaged),
                                      std::string(kLawCase) + std::string(law->name), Verdict::pass);
    EXPECT_TRUE(why.compared.empty()) << law->name;
    EXPECT_TRUE(why.differs.empty()) << law->name;
  }
}

TEST(ExplainLaws, AnEmptySequence) {
  const Fault forgets = after([](const Arguments& a) {
    if (a.cu_seqlens.present() && a.cu_seqlens(0) == a.cu_seqlens(1)) a.final_state(0, 1, 2, 3) += 1.0F;
  });
  const Explanation empty =
      explained(planted_table(forgets), std::string(kLawCase) + "packing", Verdict::fail);
  ASSERT_FALSE(empty.compared.empty());
  EXPECT_NE(empty.compared[1].find("its final state"), std::string::npos) << empty.compared[1];
}

// The program ends with the call that went wrong: what comes after it is of no interest.
TEST(ExplainLaws, TheProgramOfAServerEndsWhereItWentWrong) {
  const Fault third = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    if (a.cu_seqlens.present()) faulty::each(a.final_state, [](float& x, const auto&) { x += 1.0F; });
    return outcome;
  };
  int seen = 0;
  for (int seed = 1; seed <= 8; ++seed) {
    const Case c = parse_case(
        "v1 gated_delta_rule chunk=8 B=3 T=24 Hv=2 dk=8 dv=4 state=random law=serving "
        "kernel=planted.gated_delta_rule.chunked seed=" +
        std::to_string(seed));
    Trace trace;
    const KernelTable table = planted_table(third);
    if (run_case(c, table, 1, &trace).judgement.verdict != Verdict::fail) continue;
    ++seen;
    const Explanation why = explain(Resolved(c), trace);
    ASSERT_FALSE(why.program.empty());
    EXPECT_TRUE(why.program.back().starts_with("one packed call")) << why.program.back();
    EXPECT_EQ(std::count_if(why.program.begin(), why.program.end(),
                            [](const std::string& s) { return s.starts_with("one packed call"); }),
              1);
    EXPECT_TRUE(says(why.patterns, "the state that the last call left is not"))
        << testing::PrintToString(why.patterns);
  }
  EXPECT_GE(seen, 3);
}

}  // namespace
}  // namespace samestate
