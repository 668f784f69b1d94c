#include "harness/run/run_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <span>
#include <stdexcept>

#include "fuzz/plan/plan.h"
#include "reference/error.h"
#include "tests/harness/operator_row.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::each;
using faulty::Fault;
using faulty::planted_table;

using At4 = std::array<std::int64_t, 4>;

TEST(RunCase, UndamagedWrapperPasses300Cases) {
  const KernelTable table = planted_table(faulty::undamaged);
  std::int64_t passed = 0;
  for (const char* form : {"chunked", "recurrent"}) {
    PlanOptions options;
    options.kernel = std::string("planted.gated_delta_rule.") + form;
    options.max_cases = 165;
    options.effort = 0.02;  // the whole plan is of larger calls, which show nothing more of the wrapper
    for (const Case& c : plan_cases(table, options)) {
      const Record record = run_case(c, table);
      const Verdict verdict = record.judgement.verdict;
      ASSERT_TRUE(verdict == Verdict::pass || verdict == Verdict::vacuous)
          << name_of(verdict) << ": " << record.line << ": " << record.judgement.reason;
      passed += verdict == Verdict::pass;
    }
  }
  EXPECT_GE(passed, 300);
}

// One unit in the last place of one element: found where data make the answer exact, free where they do not.
TEST(RunCase, ExactRegimeSeesOneUlp) {
  const Fault one_ulp = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    bool done = false;
    each(a.o, [&](float& x, const At4&) {
      if (x == 0 || done) return;
      x = std::nextafter(x, 100.0F);
      done = true;
    });
    return outcome;
  };
  const std::string line =
      "v1 gated_delta_rule chunk=16 T=65 dk=8 dv=8 state=random kernel=planted.gated_delta_rule.chunked";
  const KernelTable table = planted_table(one_ulp);
  for (const char* regime : {" regime=exact", " regime=exact_reset"}) {
    const Judgement exact = run_case(parse_case(line + regime), table).judgement;
    EXPECT_EQ(exact.verdict, Verdict::fail);
    EXPECT_EQ(exact.gate, "exact");
    EXPECT_EQ(std::nextafter(static_cast<float>(exact.expected), 100.0F), static_cast<float>(exact.actual));
  }
  EXPECT_EQ(run_case(parse_case(line), table).judgement.verdict, Verdict::pass);
}

bool same_bits(const Judgement& a, const Judgement& b) {
  const auto same = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  bool equal = a.verdict == b.verdict && a.gate == b.gate && a.reason == b.reason && a.rows == b.rows &&
               a.worst.sequence == b.worst.sequence && a.worst.head == b.worst.head &&
               a.worst.token == b.worst.token && a.worst.channel == b.worst.channel;
  for (double Judgement::*field :
       {&Judgement::ratio, &Judgement::error, &Judgement::bound, &Judgement::expected, &Judgement::actual,
        &Judgement::row_ratio, &Judgement::head_ratio, &Judgement::state_ratio, &Judgement::hard_ratio,
        &Judgement::twin_ratio, &Judgement::median_ratio, &Judgement::relative_rms,
        &Judgement::sampled_ratio}) {
    equal = equal && same(a.*field, b.*field);
  }
  return equal;
}

TEST(RunCase, SameCaseSameRecordOnAnyNumberOfThreads) {
  const KernelTable table(kernels());
  PlanOptions options;
  options.max_cases = 40;
  for (const Case& c : plan_cases(table, options)) {
    const Record once = run_case(c, table, 1);
    EXPECT_TRUE(same_bits(once.judgement, run_case(c, table, 1).judgement)) << once.line;
    EXPECT_TRUE(same_bits(once.judgement, run_case(c, table, 2).judgement)) << once.line;
    EXPECT_TRUE(same_bits(once.judgement, run_case(parse_case(once.line), table).judgement)) << once.line;
    Case other = c;
    ++other.seed;
    if (once.judgement.verdict == Verdict::pass && once.judgement.ratio > 0) {
      EXPECT_FALSE(same_bits(once.judgement, run_case(other, table).judgement)) << once.line;
    }
  }
}

// A kernel that is wrong as soon as it may use two threads, or three.
TEST(RunCase, TheSeedSaysHowManyThreadsAKernelMayUse) {
  for (const int wrong : {2, 3}) {
    const Fault fault = [wrong](const Kernel& base, const Arguments& a, const Contract& c) {
      const Outcome outcome = base.run(a, c);
      if (a.threads == wrong) a.o(0, 0, 0, 0) += 1.0F;
      return outcome;
    };
    const KernelTable table = planted_table(fault);
    for (int seed = 0; seed < 6; ++seed) {
      const Case c = parse_case("v1 gated_delta_rule T=9 dk=8 kernel=planted.gated_delta_rule.chunked seed=" +
                                std::to_string(seed));
      EXPECT_EQ(run_case(c, table).judgement.verdict, 1 + seed % 3 == wrong ? Verdict::fail : Verdict::pass)
          << seed;
    }
  }
}

// A scale of 0 makes o zero, and leaves the state, which is judged.
// If only a part of a value leaves the range of fp16, a correct kernel's sum of the parts may be NaN.
TEST(RunCase, LinearityKnowsTheRangeOfTheParts) {
  const char* line =
      "v1 retention form=recurrent T=2 Hv=6 dk=2 dv=1 scale=16 contract=fp16 regime=huge_v state=random "
      "law=linearity "
      "seed=0xb5bc23e19e9e980b";
  const Judgement j = run_case(parse_case(line), KernelTable(kernels())).judgement;
  EXPECT_EQ(j.verdict, Verdict::vacuous) << j.reason;
  EXPECT_EQ(j.gate, "range");
}

TEST(RunCase, AScaleOfZeroIsNoVacuousCase) {
  const char* line = "v1 gated_delta_rule T=20 dk=8 Hv=2 scale=0 kernel=planted.gated_delta_rule.chunked";
  const auto verdict = [&](const Fault& fault) {
    return run_case(parse_case(line), planted_table(fault)).judgement.verdict;
  };
  EXPECT_EQ(verdict(faulty::undamaged), Verdict::pass);
  EXPECT_EQ(verdict([](const Kernel& base, Arguments a, const Contract& c) {
              a.scale = 1.0F;
              return base.run(a, c);
            }),
            Verdict::fail);
  EXPECT_EQ(verdict([](const Kernel& base, const Arguments& a, const Contract& c) {
              const Outcome outcome = base.run(a, c);
              each(a.final_state, [](float& x, const At4&) { x *= 1.001F; });
              return outcome;
            }),
            Verdict::fail);
  EXPECT_EQ(verdict([](const Kernel&, const Arguments& a, const Contract&) {
              each(a.o, [](float& x, const At4&) { x = 0; });
              each(a.final_state, [](float& x, const At4&) { x = 0; });
              return Outcome{};
            }),
            Verdict::fail);
}

TEST(RunCase, NoTokensHandTheStateOn) {
  const KernelTable table(kernels());
  for (const Kernel& kernel : table.rows()) {
    if (kernel.device != "cpu") continue;
    for (const char* keys : {" state=random", "", " form=decode state=random", " form=packed lengths=0,0",
                             " B=2 Hv=2 layout=padded state=random"}) {
      std::string line = "v1 " + kernel.system + " dk=8 kernel=" + kernel.name + keys;
      if (line.find("packed") == line.npos) line += " T=0";
      if (line.find("form=") == line.npos) {
        line += " form=" + kernel.form;
      } else if (kernel.form == "recurrent") {
        line += " chunk=0";
      }
      const Judgement j = run_case(parse_case(line), table).judgement;
      // Without a state a kernel that computes nothing is as right as any.
      const bool state = line.find("state=random") != line.npos;
      EXPECT_EQ(j.verdict, state ? Verdict::pass : Verdict::vacuous) << line << ": " << j.reason;
    }
  }
  const Fault zeroes = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    each(a.final_state, [](float& x, const At4&) { x = 0; });
    return outcome;
  };
  const Case c =
      parse_case("v1 gated_delta_rule T=0 dk=8 state=random kernel=planted.gated_delta_rule.chunked");
  EXPECT_EQ(run_case(c, planted_table(zeroes)).judgement.verdict, Verdict::fail);
}

TEST(RunCase, TableRefusesRowsThatNoCaseCanName) {
  const auto refusal = [](auto&& change) -> std::string {
    Kernel row = KernelTable(kernels()).rows().front();
    row.name = "mine.gated_delta_rule.recurrent";
    change(row);
    try {
      KernelTable table(kernels());
      table.add(std::span(&row, 1));
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal([](Kernel&) {}), "");
  EXPECT_NE(refusal([](Kernel& k) { k.run = nullptr; }).find("no function"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.name = "cpu.retention.chunked"; }).find("taken"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.name = "my kernel"; }).find("my kernel"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.name = ""; }).find("name"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.system = "mamba"; }).find("mamba"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.form = "parallel"; }).find("parallel"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.device = "tpu"; }).find("tpu"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.contracts = {}; }).find("no contract"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.contracts = {"fp8"}; }).find("fp8"), std::string::npos);
  EXPECT_NE(refusal([](Kernel& k) { k.limits = {"width <= 8"}; }).find("width"), std::string::npos);
}

/// The kernel of EQ-06 as one of its normal equations, whose elimination in drawn roundings need not end.
KernelTable normal_equations(Outcome (*run)(const OperatorArguments&)) {
  OperatorKernel row = operator_row("cpu.proximal_step.delta_rule");
  row.name = "planted.proximal_step.normal_equations";
  row.form = "normal_equations";
  const auto right = row.run;
  row.run = [right, run](const OperatorArguments& a, const Contract& c) {
    (void)run(a);
    return right(a, c);
  };
  return KernelTable({}, std::span(&row, 1));
}

// A case that the reference cannot evaluate says nothing about a kernel, and an exception of a kernel is not
// the judge's fault.
TEST(RunCase, NoKernelIsBlamedForWhatTheReferenceThrows) {
  const KernelTable right = normal_equations([](const OperatorArguments&) { return Outcome{}; });
  const KernelTable throws =
      normal_equations([](const OperatorArguments&) -> Outcome { throw std::runtime_error("mine"); });
  const std::string line =
      "v1 proximal_step form=normal_equations B=2 T=2 dk=2 dv=1 regime=extremes "
      "kernel=planted.proximal_step.normal_equations";
  bool met = false;
  for (int seed = 1; seed < 100 && !met; ++seed) {
    const Case c = parse_case(fmt::format("{} seed={}", line, seed));
    const Judgement j = run_case(c, right).judgement;
    ASSERT_NE(j.verdict, Verdict::crash) << j.reason;
    if (j.gate != "reference") continue;
    met = true;
    EXPECT_EQ(j.verdict, Verdict::vacuous);
    EXPECT_NE(j.reason.find("pivot"), std::string::npos) << j.reason;
    const Judgement thrown = run_case(c, throws).judgement;
    EXPECT_EQ(thrown.verdict, Verdict::crash);
    EXPECT_EQ(thrown.gate, "exception");
    EXPECT_EQ(thrown.reason, "the kernel threw: mine");
  }
  EXPECT_TRUE(met) << "no seed of " << line << " had a pivot that is not positive";
}

// Damage that a kernel in another process does to memory is found inside the call, and is not a crash of the
// kernel.
TEST(RunCase, ATrespassWithinTheCallIsNoException) {
  const KernelTable table =
      normal_equations([](const OperatorArguments&) -> Outcome { throw Trespass("wrote beside o"); });
  const Judgement j = run_case(parse_case("v1 proximal_step form=normal_equations T=4 dk=8 "
                                          "kernel=planted.proximal_step.normal_equations"),
                               table)
                          .judgement;
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "memory");
  EXPECT_EQ(j.reason, "wrote beside o");
}

// A fault of the judge's own names itself.
TEST(RunCase, WhatTheJudgeThrowsHasAGateOfItsOwn) {
  Record record;
  record.device = "cpu";
  set_judgement(record, []() -> Judgement { throw Error("two shapes"); });
  EXPECT_EQ(record.judgement.verdict, Verdict::crash);
  EXPECT_EQ(record.judgement.gate, "judge");
  EXPECT_NE(record.judgement.reason.find("two shapes"), std::string::npos);
}

TEST(RunCase, RecordNamesTheKernelThatDecides) {
  const KernelTable table(kernels());
  const auto kernel_of = [&](const char* line) { return planned_record(parse_case(line), table).kernel; };
  EXPECT_EQ(kernel_of("v1 retention"), "cpu.retention.chunked");
  EXPECT_EQ(kernel_of("v1 retention form=recurrent"), "cpu.retention.recurrent");
  EXPECT_EQ(kernel_of("v1 retention form=decode"), "cpu.retention.chunked");
  EXPECT_EQ(kernel_of("v1 retention form=decode chunk=0"), "cpu.retention.recurrent");
  EXPECT_EQ(kernel_of("v1 retention form=packed lengths=3 chunk=0"), "cpu.retention.recurrent");
}

}  // namespace
}  // namespace samestate
