#include "fuzz/search/shrink.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/plan/plan.h"
#include "fuzz/search/search.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::Fault;
using faulty::planted_table;

constexpr const char* kLarge =
    "v1 gated_delta_rule chunk=16 B=2 T=77 Hk=2 Hv=6 dk=24 dv=16 contract=bf16 regime=slow state=random "
    "layout=padded "
    "l2norm=1 kernel=planted.gated_delta_rule.chunked seed=0x1234";

Shrunk shrunk(const Fault& fault, const std::string& line = kLarge) {
  const KernelTable table = planted_table(fault);
  const CaseRunner run = runner_of(table);
  return shrink(parse_case(line), run, {60.0, 3});
}

TEST(Shrink, AFaultEverywhereEndsAtTheSmallestCase) {
  const Shrunk s = shrunk([](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    faulty::each(a.o, [](float& x, const auto&) { x = x * 1.5F + 1.0F; });
    return outcome;
  });
  EXPECT_TRUE(s.complete);
  EXPECT_EQ(format_case(s.smallest),
            "v1 gated_delta_rule chunk=1 T=1 dk=1 contract=bf16 kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(s.finding.judgement.verdict, Verdict::fail);
}

TEST(Shrink, AFaultOfTheSecondChunkKeepsIt) {
  const Shrunk s = shrunk([](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    faulty::each(a.o, [&](float& x, const auto& at) {
      if (at[1] == a.chunk) x += 10.0F;  // the first token of the second chunk
    });
    return outcome;
  });
  EXPECT_EQ(s.smallest.T, s.smallest.chunk + 1);
  EXPECT_EQ(s.smallest.chunk, 1);
  EXPECT_EQ(s.smallest.B * s.smallest.Hv * s.smallest.dk * s.smallest.dv, 1);
}

TEST(Shrink, AFaultOfThreeValueHeadsKeepsTheRatio) {
  const Shrunk s = shrunk([](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    if (a.v.shape[2] >= 3 * a.q.shape[2]) faulty::each(a.o, [](float& x, const auto&) { x += 10.0F; });
    return outcome;
  });
  EXPECT_EQ(s.smallest.Hk, 1);
  EXPECT_EQ(s.smallest.Hv, 3);
  EXPECT_EQ(s.smallest.T, 1);
}

TEST(Shrink, AFaultOfTheLayoutKeepsIt) {
  const Shrunk s = shrunk([](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    // After the last row there may be no gap, but the end of the buffer.
    const bool gap = a.o.stride[2] > a.o.shape[3] && a.o.stride[1] > a.o.shape[3];
    if (gap && a.o.shape[1] * a.o.shape[2] > 1) a.o.data[a.o.shape[3]] = 1.0F;
    return outcome;
  });
  EXPECT_EQ(s.smallest.layout, "padded");
  EXPECT_EQ(kind_of(s.finding.judgement), "memory");
  EXPECT_LE(size_of_case(Resolved(s.smallest)), 14.0) << "two rows, so that one has a gap behind it";
}

// With a thousand sequences, whole parts are removed first, because removing them one by one would take the
// whole budget.
TEST(Shrink, ALongListOfLengthsIsHalvedFirst) {
  std::string lengths;
  for (int i = 0; i < 1000; ++i) lengths += (i > 0 ? "," : "") + std::to_string(i == 700 ? 9 : i % 4);
  const Case c = parse_case("v1 gated_delta_rule form=packed chunk=16 dk=8 lengths=" + lengths);
  std::int64_t runs = 0;
  const Shrunk s = shrink(c,
                          [&](const Case& smaller) {
                            ++runs;
                            CaseResult result;
                            result.judgement.verdict =
                                smaller.lengths.size() > 2 && std::ranges::count(smaller.lengths, 9) == 1
                                    ? Verdict::fail
                                    : Verdict::pass;
                            return result;
                          },
                          {120.0, 1});
  EXPECT_TRUE(s.complete);
  EXPECT_EQ(s.smallest.lengths.size(), 3U);
  EXPECT_LT(runs, 400);
}

TEST(Shrink, AStopEndsItWithTheSmallestSoFar) {
  std::int64_t runs = 0;
  ShrinkOptions how;
  how.stop = [&] { return runs >= 5; };
  CaseResult failing;
  failing.judgement.verdict = Verdict::fail;
  const Case c = parse_case("v1 gated_delta_rule T=200 B=3 dk=32");
  const Shrunk s = shrink(
      c,
      [&](const Case&) {
        ++runs;
        return failing;
      },
      how);
  EXPECT_EQ(runs, 5);
  EXPECT_FALSE(s.complete);
  EXPECT_EQ(s.finding.judgement.verdict, Verdict::fail);
  EXPECT_LT(size_of_case(Resolved(s.smallest)), size_of_case(Resolved(c)));
}

TEST(Shrink, DecodeAndPackedStayWhereTheyAreNeeded) {
  const Fault forgets = [](const Kernel& base, Arguments a, const Contract& c) {
    if (a.q.shape[1] == 1) a.initial_state = {};
    return base.run(a, c);
  };
  const KernelTable table = planted_table(faulty::undamaged, forgets);
  const CaseRunner run = runner_of(table);
  const Case decode = parse_case(
      "v1 gated_delta_rule form=decode chunk=16 prefill=40 T=60 Hv=2 dk=8 "
      "kernel=planted.gated_delta_rule.chunked");
  const Shrunk s = shrink(decode, run);
  EXPECT_EQ(s.smallest.form, "decode");
  EXPECT_LE(s.smallest.T, 2);
  const Shrunk packed = shrunk(
      [](const Kernel& base, const Arguments& a, const Contract& c) {
        const Outcome outcome = base.run(a, c);
        if (a.cu_seqlens.present() && a.sequences() > 1) a.o.data[0] += 10.0F;
        return outcome;
      },
      "v1 gated_delta_rule form=packed chunk=16 lengths=0,17,40,3 dk=8 "
      "kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(packed.smallest.form, "packed");
  EXPECT_EQ(packed.smallest.lengths.size(), 2U);
  EXPECT_LE(packed.smallest.T, 1);
}

TEST(Shrink, KeepsContractAndLaw) {
  const Shrunk s = shrunk(
      [](const Kernel& base, const Arguments& a, const Contract& c) {
        const Outcome outcome = base.run(a, c);
        faulty::each(a.o, [&](float& x, const auto& at) {
          if (at[1] == 0) x += 0.5F * static_cast<float>(a.q.shape[1]);  // depends on the length
        });
        return outcome;
      },
      "v1 gated_delta_rule chunk=16 B=2 T=35 Hk=2 Hv=4 dk=16 dv=8 contract=bf16 law=split "
      "kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(s.smallest.law, "split");
  EXPECT_EQ(s.smallest.contract, "bf16");
}

// The line that is printed for a law's failure must fail by the same law in a run of its own, and explain
// itself.
TEST(Shrink, AShrunkLawFailsByTheSameLaw) {
  const auto last_call = [](const Kernel& base, Arguments a, const Contract& c) {
    if (a.q.shape[1] == 1) a.initial_state = {};
    return base.run(a, c);
  };
  const auto future = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    faulty::each(a.o, [&](float& x, const auto& at) {
      if (at[1] + 1 < a.o.shape[1]) x += a.v(at[0], at[1] + 1, at[2], at[3]);
    });
    return outcome;
  };
  const auto packed = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    if (a.cu_seqlens.present() && a.o.shape[1] > 3) a.o(0, 3, 0, 0) += 10.0F;
    return outcome;
  };
  const struct {
    const char* law;
    Fault chunked, recurrent;
    double largest;  // elements of the shrunk case
  } cases[] = {{"serving", faulty::undamaged, last_call, 40.0},
               {"split", last_call, faulty::undamaged, 40.0},
               {"causality", future, faulty::undamaged, 40.0},
               {"packing", packed, faulty::undamaged, 60.0}};
  for (const auto& [law, chunked, recurrent, largest] : cases) {
    const KernelTable table = planted_table(chunked, recurrent);
    const CaseRunner run = runner_of(table);
    const Case found = parse_case(
        "v1 gated_delta_rule chunk=8 B=3 T=25 Hk=2 Hv=4 dk=12 dv=8 state=random regime=slow seed=0x77 "
        "kernel=planted.gated_delta_rule.chunked law=" +
        std::string(law));
    const Shrunk s = shrink(found, run, {60.0, 3});
    EXPECT_TRUE(s.complete) << law;
    EXPECT_EQ(s.smallest.law, law);
    EXPECT_LE(size_of_case(Resolved(s.smallest)), largest) << format_case(s.smallest);
    const Record again = run_case(parse_case(format_case(s.smallest)), table);
    EXPECT_EQ(again.judgement.verdict, Verdict::fail) << law;
    EXPECT_EQ(kind_of(again.judgement), kind_of(s.finding.judgement)) << law;
    EXPECT_EQ(again.judgement.ratio, s.finding.judgement.ratio) << law;
  }
}

TEST(Shrink, RunsThatDisagreeAreFlaky) {
  int calls = 0;
  const auto run = [&](const Case&) {
    CaseResult f;
    f.judgement.verdict = ++calls % 2 == 1 ? Verdict::fail : Verdict::pass;
    f.judgement.gate = "row";
    return f;
  };
  const Shrunk s = shrink(parse_case("v1 retention T=4"), run);
  EXPECT_EQ(s.finding.judgement.verdict, Verdict::flaky);
  EXPECT_NE(s.finding.judgement.reason.find("fail (bound), then pass"), std::string::npos)
      << s.finding.judgement.reason;
  EXPECT_EQ(s.smallest, parse_case("v1 retention T=4"));
}

// A kernel that keeps something from call to call fails after others what it passes alone.
TEST(Shrink, WhatItFindsFailsInAProcessOfItsOwn) {
  const auto finding = [](bool fails, Verdict other) {
    CaseResult f;
    f.judgement.verdict = fails ? Verdict::fail : other;
    f.judgement.gate = "row";
    return f;
  };
  for (const Verdict other : {Verdict::pass, Verdict::vacuous}) {
    const auto after_others = [&](const Case&) { return finding(true, other); };
    ShrinkOptions options;
    options.fresh = [&](const Case& c) { return finding(c.B > 1 && c.T > 2, other); };
    const Shrunk s = shrink(parse_case("v1 retention B=3 T=9 Hk=2"), after_others, options);
    EXPECT_EQ(s.finding.judgement.verdict, Verdict::fail);
    EXPECT_TRUE(s.complete);
    EXPECT_GT(s.smallest.B, 1);
    EXPECT_EQ(s.smallest.T, 3);
    EXPECT_EQ(s.smallest.Hk, 1);
  }
  ShrinkOptions never;
  never.fresh = [&](const Case&) { return finding(false, Verdict::pass); };
  const auto after_others = [&](const Case&) { return finding(true, Verdict::pass); };
  EXPECT_EQ(shrink(parse_case("v1 retention T=4"), after_others, never).finding.judgement.verdict,
            Verdict::flaky);
}

TEST(Shrink, StopsAtItsBudgetAndRefusesWhatPasses) {
  const auto slow = [](const Case&) {
    CaseResult f;
    f.judgement.verdict = Verdict::fail;
    f.judgement.gate = "row";
    return f;
  };
  const Shrunk s = shrink(parse_case("v1 retention T=4"), slow, {0.0, 3});
  EXPECT_FALSE(s.complete);
  EXPECT_EQ(s.smallest.T, 4);
  const auto passes = [](const Case&) {
    CaseResult f;
    f.judgement.verdict = Verdict::pass;
    return f;
  };
  EXPECT_THROW((void)shrink(parse_case("v1 retention T=4"), passes), NothingToShrink);
}

TEST(Shrink, OperatorsShrinkTheirParameters) {
  const auto run = [](const Case& c) {
    CaseResult f;
    f.judgement.verdict = c.parameters.at("D") >= 5 && c.T >= 3 ? Verdict::fail : Verdict::pass;
    f.judgement.gate = "element";
    return f;
  };
  const Shrunk s = shrink(parse_case("v1 l2norm T=21 B=3 D=64 regime=spiky seed=0x99"), run);
  EXPECT_EQ(format_case(s.smallest), "v1 l2norm T=3 H=1 D=5") << "or the standard H";
}

// A real kernel with a real fault: the second head from the second chunk on.
Outcome second_head_of_a_late_chunk(const OperatorArguments& call, const Contract& contract) {
  const Outcome outcome =
      mutants::right_operator("cpu.linear_attention_normalised.chunked").run(call, contract);
  const auto& o = call.output("o");
  const std::int64_t width = call.parameter("H") * call.parameter("dv");
  for (std::int64_t b = 0; b < call.batch; ++b) {
    for (std::int64_t t = call.chunk; t < call.tokens && call.parameter("H") > 1; ++t)
      o.data[(b * call.tokens + t) * width + call.parameter("dv")] += 10.0F;
  }
  return outcome;
}

TEST(Shrink, ARealOperatorEndsAtWhatTheFaultNeeds) {
  OperatorKernel row = mutants::right_operator("cpu.linear_attention_normalised.chunked");
  row.run = second_head_of_a_late_chunk;
  const KernelTable table(kernels(), std::vector<OperatorKernel>{row});
  const CaseRunner run = runner_of(table);
  const Shrunk s =
      shrink(parse_case("v1 linear_attention_normalised form=chunked chunk=16 T=77 B=3 H=5 dk=24 "
                        "dv=16 contract=bf16 regime=spiky seed=0x1234"),
             run, {60.0, 3});
  EXPECT_TRUE(s.complete);
  // H = 2 is the standard, which the line leaves out.
  EXPECT_EQ(format_case(s.smallest),
            "v1 linear_attention_normalised form=chunked chunk=1 T=2 dk=1 dv=1 contract=bf16");
  const Record again = run_case(parse_case(format_case(s.smallest)), table);
  EXPECT_EQ(again.judgement.verdict, Verdict::fail);
  EXPECT_EQ(again.judgement.ratio, s.finding.judgement.ratio);
}

/// The row with a fault on top: every output element, or of several tokens the last one alone.
OperatorKernel faulty(const OperatorKernel& right, bool everywhere) {
  OperatorKernel row = right;
  row.name = "faulty." + right.system + "." + right.form;
  row.run = [right, everywhere](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    for (const NamedTensor<float>& x : call.outputs) {
      std::int64_t size = 1;
      for (const std::int64_t extent : x.shape) size *= extent;
      const bool faults = everywhere || call.tokens > 1;
      for (std::int64_t i = everywhere ? 0 : size - 1; faults && i < size; ++i)
        x.data[i] = 1.5F * x.data[i] + 3.0F;
    }
    return outcome;
  };
  row.strided = false;  // its faults are those of dense outputs
  return row;
}

// For every operator, a failure in a plan shrinks to a case that fails in the same way each time, and none of
// it is flaky.
TEST(Shrink, FaultsOfEveryOperatorShrink) {
  for (const OperatorKernel& right : operator_kernels()) {
    if (right.device != "cpu") continue;
    std::vector<Case> planned;  // a plan depends on what the kernel declares, and not on its fault
    for (const bool everywhere : {true, false}) {
      const KernelTable table(kernels(), std::vector<OperatorKernel>{faulty(right, everywhere)});
      const CaseRunner run = runner_of(table);
      PlanOptions plan;
      plan.kernel = table.all()[kernels().size()].name;
      plan.max_cases = 24;
      if (planned.empty()) planned = plan_cases(table, plan);
      int shrunk = 0;
      for (const Case& c : planned) {
        if (shrunk == 2) break;
        if (size_of_case(Resolved(c)) > 5e4 || run(c).judgement.verdict != Verdict::fail) continue;
        const Shrunk s = shrink(c, run, {20.0, 2});
        ++shrunk;
        EXPECT_EQ(s.finding.judgement.verdict, Verdict::fail)
            << format_case(c) << ": " << s.finding.judgement.reason;
        EXPECT_TRUE(s.complete) << format_case(c);
        EXPECT_LE(size_of_case(Resolved(s.smallest)), size_of_case(Resolved(c)));
        const CaseResult again = run(parse_case(format_case(s.smallest)));
        EXPECT_EQ(again.judgement.verdict, Verdict::fail) << format_case(s.smallest);
        EXPECT_EQ(kind_of(again.judgement), kind_of(s.finding.judgement)) << format_case(s.smallest);
      }
      EXPECT_GT(shrunk, 0) << plan.kernel << ": no case of the plan shows the fault";
    }
  }
}

}  // namespace
}  // namespace samestate
