#include "harness/explain/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "harness/explain/explain_head.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "tests/harness/operator_row.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::adds_where;
using faulty::after;
using faulty::before;
using faulty::Copy;
using faulty::Fault;
using faulty::planted_table;

constexpr const char* kCase =
    "v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 state=random "
    "kernel=planted.gated_delta_rule.chunked";

struct Explained {
  Verdict verdict;
  Explanation why;
};

Explained explained(const KernelTable& table, const std::string& line) {
  const Case c = parse_case(line);
  Trace trace;
  const Record record = run_case(c, table, 1, &trace);
  return {record.judgement.verdict, explain(Resolved(c), trace)};
}

/// A fault of the chunked kernel and a pattern that it is to be recognised by.
struct Known {
  const char* name;
  const char* keys;
  const char* says;
  Fault fault;
};

/// g or beta through a copy with each element changed by its token.
template <class Change>
Fault gate(View<const float, 3> Arguments::*which, Change change) {
  return [which, change](const Kernel& base, Arguments a, const Contract& c) {
    const Copy<3> changed(a.*which, [&](float x, const auto& at) { return change(a, x, at); });
    Copy<3> kept = changed;
    a.*which = kept.view();
    return base.run(a, c);
  };
}

const Known kKnown[] = {
    {"FirstOfChunk", "", "only the first token of a chunk",
     adds_where([](const Arguments& a, const auto& at) { return at[1] % a.chunk == 0; })},
    {"LastOfChunk", "", "only the last token of a chunk",
     adds_where([](const Arguments& a, const auto& at) { return at[1] % a.chunk == a.chunk - 1; })},
    {"PartialChunk", "", "only the last, partial chunk",
     adds_where([](const Arguments&, const auto& at) { return at[1] >= 24; })},
    {"SecondChunkOn", "", "errors begin at token 8, the first of the second chunk",
     adds_where([](const Arguments& a, const auto& at) { return at[1] >= a.chunk; })},
    {"LastToken", "", "only the last token",
     adds_where([](const Arguments&, const auto& at) { return at[1] == 26; })},
    {"OneRow", "", "only sequence 1 of 2",
     adds_where([](const Arguments&, const auto& at) { return at[0] == 1; })},
    {"OneHead", "", "only head 2 of 4",
     adds_where([](const Arguments&, const auto& at) { return at[2] == 2; })},
    {"OneChannel", "", "only channel(s) 5..7 of 8",
     adds_where([](const Arguments&, const auto& at) { return at[3] >= 5; })},
    {"TwoHeads", "", "only heads 2, 3 of 4",
     adds_where([](const Arguments&, const auto& at) { return at[2] >= 2; })},
    {"FactorOfAChannel", "", "only channel(s) 5 of 8: the right values there times 1.02",
     after([](const Arguments& a) {
       faulty::each(a.o, [](float& x, const auto& at) { x *= at[3] == 5 ? 1.02F : 1.0F; });
     })},
    {"OnlyO", "", "only o: the final state is right",
     adds_where([](const Arguments&, const auto&) { return true; })},
    {"OnlyState", "", "only the final state",
     after([](const Arguments& a) { a.final_state(0, 0, 0, 0) += 1; })},
    {"Zero", "", "the wrong rows of o are all zero",
     after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x = 0; }); })},
    {"CutOff", "contract=bf16_io", "cut off to bf16, towards zero",
     [](const Kernel& base, const Arguments& a, const Contract& c) {
       Contract unrounded = c;
       unrounded.output = Format::fp32;
       const Outcome outcome = base.run(a, unrounded);
       faulty::each(a.o, [](float& x, const auto&) {
         x = std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xffff0000U);
       });
       return outcome;
     }},
    {"Factor", "", "the right ones times 1.25",
     after([](const Arguments& a) { faulty::each(a.o, [](float& x, const auto&) { x *= 1.25F; }); })},
    {"Nan", "", "NaN or infinite", after([](const Arguments& a) { a.o(0, 3, 1, 2) = INFINITY; })},
    {"Unwritten", "", "1 element(s) of o were never written",
     [](const Kernel& base, const Arguments& a, const Contract& c) {
       const float poison = a.o(1, 4, 0, 0);
       const Outcome outcome = base.run(a, c);
       a.o(1, 4, 0, 0) = poison;
       return outcome;
     }},
    {"Transposed", "", "the final state is the transpose", after([](const Arguments& a) {
       for (std::int64_t n = 0; n < 2; ++n) {
         for (std::int64_t h = 0; h < 4; ++h) {
           for (std::int64_t i = 0; i < 8; ++i) {
             for (std::int64_t j = 0; j < i; ++j)
               std::swap(a.final_state(n, h, i, j), a.final_state(n, h, j, i));
           }
         }
       }
     })},
    {"Bf16State", "", "every value of the final state is a bf16 one", after([](const Arguments& a) {
       faulty::each(a.final_state, [](float& x, const auto&) {
         x = static_cast<float>(round_to(static_cast<double>(x), Format::bf16));
       });
     })},
    {"FactorOfTheState", "", "the final state is the right one times 0.999", after([](const Arguments& a) {
       faulty::each(a.final_state, [](float& x, const auto&) { x *= 0.999F; });
     })},
    {"AnotherSumOfGates", "regime=strong", "is from another sum of g than that of its tokens",
     after([](const Arguments& a) {
       faulty::each(a.final_state,
                    [](float& x, const auto& at) { x *= 1.00006F + 1e-5F * static_cast<float>(at[1]); });
     })},
    {"HeadMap", "", "the map of heads is the other one than was asked for",
     before([](Arguments& a) { a.head_map = HeadMap::tiled; })},
    {"HeadMapPlaces", "", "exactly the heads whose key head differs",
     before([](Arguments& a) { a.head_map = HeadMap::tiled; })},
    {"NoScale", "", "there is no scale (1)", before([](Arguments& a) { a.scale = 1.0F; })},
    {"ScaleTwice", "", "the scale is applied twice", before([](Arguments& a) { a.scale *= a.scale; })},
    {"NoInitialState", "", "the initial state is ignored",
     before([](Arguments& a) { a.initial_state = {}; })},
    {"NoL2norm", "l2norm=1", "q and k are never normalised", before([](Arguments& a) { a.l2norm = false; })},
    {"NoDecay", "", "the decay is left out", before([](Arguments& a) { a.g = {}; })},
    {"NoBeta", "", "beta is left out", before([](Arguments& a) { a.beta = {}; })},
    {"ClippedGate", "regime=strong", "exponent of the decay clipped at about -3",
     gate(&Arguments::g, [](const Arguments&, float x, const auto&) { return std::max(x, -3.0F); })},
    {"ClippedSum", "regime=strong", "exponent, the sum of g from the chunk's begin on, clipped at about -30",
     gate(&Arguments::g,
          [](const Arguments& a, float x, const auto& at) {
            float sum = 0.0F;
            for (auto t = at[1] - at[1] % a.chunk; t < at[1]; ++t) sum += a.g(at[0], t, at[2]);
            return std::max(sum + x, -30.0F) - std::max(sum, -30.0F);
          })},
    {"Log2Gate", "", "g is a power of two",
     gate(&Arguments::g, [](const Arguments&, float x, const auto&) { return x * 0.69314718F; })},
    {"EarlierGate", "", "the decay is that of the token before",
     gate(&Arguments::g, [](const Arguments& a, float,
                            const auto& at) { return at[1] > 0 ? a.g(at[0], at[1] - 1, at[2]) : 0.0F; })},
    {"SquaredBeta", "", "beta is applied twice",
     gate(&Arguments::beta, [](const Arguments&, float x, const auto&) { return x * x; })},
    {"OtherContract", "", "the same outputs pass under contract tf32",
     [](const Kernel& base, const Arguments& a, const Contract&) {
       return base.run(a, contract_named("tf32"));
     }},
    {"ReadsOutside", "layout=padded", "come from memory around a tensor",
     after([](const Arguments& a) { a.o.data[0] = -2.0F * a.q.data[a.q.shape[3]]; })},
    {"ForgetsBetweenChunks", "", "the state is lost between chunks",
     gate(&Arguments::g, [](const Arguments& a, float x,
                            const auto& at) { return at[1] > 0 && at[1] % a.chunk == 0 ? -1e38F : x; })},
};

class Recognised : public testing::TestWithParam<Known> {};

TEST_P(Recognised, ByName) {
  const Known& known = GetParam();
  const Explained e = explained(planted_table(known.fault), std::string(kCase) + " " + known.keys);
  EXPECT_EQ(e.verdict, Verdict::fail);
  std::vector<std::string> says = e.why.patterns;
  for (const ContractHint& hint : e.why.contracts) says.push_back(hint.text);
  EXPECT_TRUE(std::any_of(says.begin(), says.end(), [&](const std::string& p) {
    return p.find(known.says) != p.npos;
  })) << testing::PrintToString(says);
  EXPECT_LE(e.why.patterns.size(), 6U) << testing::PrintToString(e.why.patterns);
  EXPECT_FALSE(e.why.differs.empty());
  EXPECT_FALSE(e.why.values.empty());
  EXPECT_FALSE(e.why.terms.empty());
}

INSTANTIATE_TEST_SUITE_P(Explain, Recognised, testing::ValuesIn(kKnown),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SequencesText, NamesWhichAreWrong) {
  const std::vector<Index> all{0, 1, 3, 4};
  EXPECT_EQ(sequences_text({3}, all), "only sequence 3 of 5");
  EXPECT_EQ(sequences_text({1, 3, 4}, all), "every sequence but the first");
  EXPECT_EQ(sequences_text({3, 4}, all), "only from sequence 3 on");
  EXPECT_EQ(sequences_text({0, 1, 4}, all), "every sequence but 3");
  EXPECT_EQ(sequences_text({0, 3}, all), "only sequences 0, 3 of 5");
  EXPECT_EQ(sequences_text(all, all), "");
  EXPECT_EQ(sequences_text({}, all), "");
}

// With 400 sequences whose roundings are all about as far off as the bound allows, one is the farthest. The
// one of 416 that is beyond the bound, by a fifth, and its only token say nothing about a place.
TEST(Explain, TheFarthestOfManyIsNoPlace) {
  const Resolved r(parse_case("v1 gated_delta_rule form=recurrent B=8 T=3 dk=8 dv=8"));
  std::vector<HeadDifference> heads(8);
  for (Index n = 0; n < 8; ++n) {
    HeadDifference& d = heads[static_cast<std::size_t>(n)];
    d.sequence = n;
    d.exact.o = Matrix<double>::Ones(3, 8);
    d.exact.state = Matrix<double>::Ones(8, 8);
    d.o = d.exact.o;
    d.state = d.exact.state;
    d.row = Vector<double>::Constant(3, 1.0);
    d.o.row(0).array() += (n == 5 ? 1.2 : 0.8) / std::sqrt(8.0);
    find_wrong(d, 1.0);
  }
  EXPECT_EQ(heads[5].tokens, std::vector<Index>{0});
  EXPECT_EQ(place_patterns(r, heads), std::vector<std::string>{});
  // Among eight errors of all sizes, some are small.
  heads[5].o.row(0) << 40, 1.02, 21, 3, 1.5, 14, 8, 2;
  heads[5].tokens.clear();
  find_wrong(heads[5], 1.0);
  EXPECT_EQ(testing::PrintToString(place_patterns(r, heads)).find("channel"), std::string::npos);
  heads[5].o.row(0) << 31, 31, 31, 31, 31, 31, 1, 1;
  heads[5].tokens.clear();
  find_wrong(heads[5], 1.0);
  const std::string all = testing::PrintToString(place_patterns(r, heads));
  EXPECT_NE(all.find("only sequence 5 of 8"), std::string::npos) << all;
  EXPECT_NE(all.find("only the first token"), std::string::npos) << all;
  EXPECT_NE(all.find("only channel(s) 0..5 of 8"), std::string::npos) << all;
}

// A place that could not be right elsewhere is not a place either: a sequence of one token among empty ones,
// decoded without a token after the resume, whose final state was not requested.
TEST(Explain, APlaceHasAnotherBesideIt) {
  const Fault all = adds_where([](const Arguments&, const auto&) { return true; });
  const Explained packed = explained(planted_table(all),
                                     "v1 gated_delta_rule form=packed chunk=8 lengths=0,0,1,0 dk=8 dv=8 "
                                     "final=none kernel=planted.gated_delta_rule.chunked");
  const Explained decoded = explained(planted_table(all),
                                      "v1 gated_delta_rule form=decode chunk=8 prefill=9 T=9 dk=8 dv=8 "
                                      "kernel=planted.gated_delta_rule.chunked");
  for (const Explained* e : {&packed, &decoded}) {
    EXPECT_EQ(e->verdict, Verdict::fail);
    const std::string text = testing::PrintToString(e->why.patterns);
    for (const char* none : {"only sequence", "only the first token", "only before the resume"})
      EXPECT_EQ(text.find(none), std::string::npos) << text;
  }
  EXPECT_EQ(testing::PrintToString(packed.why.patterns).find("the final state is right"), std::string::npos);
}

TEST(Explain, SaysWhereItBegins) {
  const Fault fault = adds_where([](const Arguments&, const auto& at) {
    return at[0] == 1 && at[2] == 3 && (at[1] == 17 || at[1] == 19);
  });
  const Explained e = explained(planted_table(fault), kCase);
  ASSERT_EQ(e.why.differs.size(), 1U);
  EXPECT_EQ(e.why.differs[0],
            "sequence 1, head 3: o from token 17 on (chunk 2, its token 1), 2 of 27 tokens: 17, 19");
  ASSERT_FALSE(e.why.values.empty());
  EXPECT_EQ(e.why.values[0].place.substr(0, 34), "o: sequence 1, head 3, token 17, c");
  EXPECT_NEAR(e.why.values[0].actual - e.why.values[0].expected, 3.0, 1e-3);
}

/// Goes token by token, and rounds the state to bf16 after each.
Outcome state_in_bf16(const Kernel& base, Arguments a, const Contract& c) {
  std::vector<float> held;
  for (std::int64_t t = 0; t < a.q.shape[1]; ++t) {
    Arguments one = a;
    const auto cut = [&](auto& view) {
      if (!view.present()) return;
      view.data += t * view.stride[1];
      view.shape[1] = 1;
    };
    cut(one.q), cut(one.k), cut(one.v), cut(one.g), cut(one.beta), cut(one.o);
    if (t > 0) one.initial_state = row_major<const float>(held.data(), a.final_state.shape);
    (void)base.run(one, c);
    held.clear();
    faulty::each(a.final_state, [&](float& x, const auto&) {
      held.push_back(x = static_cast<float>(round_to(static_cast<double>(x), Format::bf16)));
    });
  }
  return Outcome{};
}

TEST(Explain, AStateThatIsKeptInBf16) {
  for (const char* contract : {"fp32", "bf16"}) {
    const Explained e =
        explained(planted_table(faulty::undamaged, state_in_bf16),
                  std::string("v1 gated_delta_rule form=recurrent T=65 dk=16 dv=16 contract=") + contract +
                      " kernel=planted.gated_delta_rule.recurrent");
    EXPECT_EQ(e.verdict, Verdict::fail);
    const std::string all = testing::PrintToString(e.why.patterns);
    EXPECT_NE(all.find("state kept in bf16: "), std::string::npos) << contract << all;
  }
}

// bf16 roundings at the ends of other chunks are not those of the chunks that were asked for.
TEST(Explain, APartitionOfItsOwnIsNamed) {
  const Fault own = before([](Arguments& a) { a.chunk = 16; });
  const Explained e = explained(planted_table(own),
                                "v1 gated_delta_rule chunk=64 T=130 Hk=1 Hv=2 dk=16 dv=16 contract=bf16 "
                                "kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(e.verdict, Verdict::fail);
  const std::string all = testing::PrintToString(e.why.patterns);
  EXPECT_NE(all.find("the same outputs pass with chunk=16:"), std::string::npos) << all;
}

// The last of 17 tokens begins the third chunk of 8, and the first tokens of the two before it are right.
TEST(Explain, TheLastTokenIsNotCalledTheFirstOfAChunk) {
  const Fault last = after([](const Arguments& a) {
    faulty::each(a.o, [](float& x, const auto& at) { x += at[1] == 16 ? 3.0F : 0.0F; });
  });
  const Explained e =
      explained(planted_table(last),
                "v1 gated_delta_rule chunk=8 T=17 dk=8 dv=8 kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(e.verdict, Verdict::fail);
  const std::string all = testing::PrintToString(e.why.patterns);
  EXPECT_NE(all.find("only the last token"), std::string::npos) << all;
  EXPECT_EQ(all.find("only the first token"), std::string::npos) << all;
}

TEST(Explain, ARightRunHasNothingToExplain) {
  const Explained e = explained(planted_table(faulty::undamaged), kCase);
  EXPECT_EQ(e.verdict, Verdict::pass);
  EXPECT_TRUE(e.why.differs.empty());
  EXPECT_TRUE(e.why.patterns.empty());
}

// Integers and powers of two are bf16 values whatever the kernel rounds.
TEST(Explain, ExactDataShowNoRounding) {
  const Fault once = after([](const Arguments& a) { a.o(1, 4, 0, 0) *= 1.5F; });
  const Explained e = explained(planted_table(once), std::string(kCase) + " regime=exact");
  EXPECT_EQ(e.verdict, Verdict::fail);
  const std::string all = testing::PrintToString(e.why.patterns);
  EXPECT_EQ(all.find("bf16"), std::string::npos) << all;
}

TEST(Explain, AStateLostAtTheResume) {
  const Fault forgets = [](const Kernel& base, Arguments a, const Contract& c) {
    a.initial_state = {};
    return base.run(a, c);
  };
  const Explained e = explained(planted_table(faulty::undamaged, forgets),
                                "v1 gated_delta_rule form=decode chunk=8 prefill=17 T=20 dk=8 "
                                "kernel=planted.gated_delta_rule.chunked");
  const std::string all = testing::PrintToString(e.why.patterns);
  EXPECT_NE(all.find("only after the resume"), std::string::npos) << all;
  EXPECT_NE(all.find("the state is lost at every call"), std::string::npos) << all;
}

TEST(Explain, NothingOfALaw) {
  const Explained e = explained(planted_table(faulty::undamaged), std::string(kCase) + " law=split");
  EXPECT_TRUE(e.why.differs.empty());
}

Outcome doubled(const OperatorArguments& call, const Contract& contract) {
  const Outcome outcome = operator_row("cpu.linear_attention_normalised.chunked").run(call, contract);
  const auto& o = call.output("o");
  std::int64_t size = 1;
  for (const std::int64_t extent : o.shape) size *= extent;
  for (std::int64_t i = 0; i < size; ++i) o.data[i] *= 2.0F;
  return outcome;
}

TEST(Explain, TheWorstTensorOfAnOperator) {
  std::vector<OperatorKernel> rows;
  for (const OperatorKernel& row : operator_kernels()) {
    if (row.system == "linear_attention_normalised") rows.push_back(row);
  }
  ASSERT_FALSE(rows.empty());
  rows[0].run = doubled;
  const KernelTable table(kernels(), rows);
  const Explained e = explained(table, "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=2");
  EXPECT_EQ(e.verdict, Verdict::fail);
  const std::string all = testing::PrintToString(e.why.patterns);
  EXPECT_NE(all.find("o: the right values times 2"), std::string::npos) << all;
  EXPECT_FALSE(e.why.differs.empty());
  ASSERT_FALSE(e.why.values.empty());
  EXPECT_EQ(e.why.values[0].place.substr(0, 12), "o: sequence ");
  EXPECT_EQ(e.why.terms.size(), 2U);
}

}  // namespace
}  // namespace samestate
