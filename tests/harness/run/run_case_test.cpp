#include "harness/run/run_case.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iostream>

#include "fuzz/plan.h"
#include "oracles/rounding.h"
#include "reference/error.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using planted::Copy;
using planted::each;
using planted::Fault;
using planted::GatedDeltaRule;
using planted::planted_table;

bool sixteen_bit(const Contract& c) { return c.input == Format::bf16 || c.input == Format::fp16; }

using At3 = std::array<std::int64_t, 3>;
using At4 = std::array<std::int64_t, 4>;

/// The arguments restricted to the tokens [begin, end), dense or within one packed sequence.
Arguments tokens(Arguments a, std::int64_t begin, std::int64_t end) {
  a.q = a.q.slice(1, begin, end);
  a.k = a.k.slice(1, begin, end);
  a.v = a.v.slice(1, begin, end);
  if (a.g.present()) a.g = a.g.slice(1, begin, end);
  if (a.beta.present()) a.beta = a.beta.slice(1, begin, end);
  a.o = a.o.slice(1, begin, end);
  return a;
}

void set_row(const View<float, 4>& o, std::int64_t t, float value) {
  for (std::int64_t h = 0; h < o.shape[2]; ++h) {
    for (std::int64_t c = 0; c < o.shape[3]; ++c) o(0, t, h, c) = value;
  }
}

Outcome with_g(const Kernel& base, Arguments a, const Contract& c, auto&& change) {
  Copy<3> g(a.g, change);
  a.g = g.view();
  return base.run(a, c);
}
Outcome with_beta(const Kernel& base, Arguments a, const Contract& c, auto&& change) {
  Copy<3> beta(a.beta, change);
  a.beta = beta.view();
  return base.run(a, c);
}
Outcome with_initial_state(const Kernel& base, Arguments a, const Contract& c, auto&& change) {
  Copy<4> state(a.initial_state, change);
  a.initial_state = state.view();
  return base.run(a, c);
}

Outcome replay(const Kernel& base, const Arguments& a, const Contract& c) {
  static std::vector<float> o, state;
  const bool same = std::ssize(o) == a.o.size() && std::ssize(state) == a.final_state.size() && !o.empty();
  if (!same) {
    const Outcome outcome = base.run(a, c);
    o.clear(), state.clear();
    each(a.o, [](float& x, const At4&) { o.push_back(x); });
    each(a.final_state, [](float& x, const At4&) { state.push_back(x); });
    return outcome;
  }
  std::size_t from = 0;
  each(a.o, [&](float& x, const At4&) { x = o[from++]; });
  from = 0;
  each(a.final_state, [&](float& x, const At4&) { x = state[from++]; });
  return {};
}

Outcome without_last_chunk(const Kernel& base, const Arguments& a, const Contract& c) {
  const std::int64_t T = a.q.shape[1];
  if (a.chunk == 0 || a.cu_seqlens.present() || T % a.chunk == 0) return base.run(a, c);
  const std::int64_t full = T - T % a.chunk;
  for (std::int64_t t = full; t < T; ++t) {
    for (std::int64_t b = 0; b < a.o.shape[0]; ++b) set_row(a.o.slice(0, b, b + 1), t, 0.0F);
  }
  return base.run(tokens(a, 0, full), c);
}

Outcome state_before_last_token(const Kernel& base, const Arguments& a, const Contract& c) {
  const std::int64_t T = a.q.shape[1];
  if (a.cu_seqlens.present() || T == 0) return base.run(a, c);
  Copy<4> initial(a.initial_state);  // may be the memory of the final state
  const Outcome outcome = base.run(a, c);
  Copy<4> scratch(a.o);
  Arguments again = tokens(a, 0, T - 1);
  again.initial_state = initial.view();
  again.o = scratch.view().slice(1, 0, T - 1);
  (void)base.run(again, c);
  return outcome;
}

Outcome leaks_between_sequences(const Kernel& base, const Arguments& a, const Contract& c) {
  if (!a.cu_seqlens.present()) return base.run(a, c);
  Outcome outcome;
  for (std::int64_t n = 0; n < a.sequences(); ++n) {
    Arguments one = tokens(a, a.cu_seqlens(n), a.cu_seqlens(n + 1));
    one.cu_seqlens = {};
    one.final_state = a.final_state.slice(0, n, n + 1);
    if (n > 0) {
      one.initial_state = a.final_state.slice(0, n - 1, n);
    } else if (a.initial_state.present()) {
      one.initial_state = a.initial_state.slice(0, 0, 1);
    }
    outcome = base.run(one, c);
  }
  return outcome;
}

Outcome normalises_without_epsilon(const Kernel& base, Arguments a, const Contract& c) {
  if (!a.l2norm) return base.run(a, c);
  const auto normalised = [](const View<const float, 4>& x) {
    return [&x](float element, const At4& at) {
      double sum = 0;
      for (std::int64_t i = 0; i < x.shape[3]; ++i) {
        const double e = static_cast<double>(x(at[0], at[1], at[2], i));
        sum += e * e;
      }
      return sum == 0 ? 0.0F : static_cast<float>(static_cast<double>(element) / std::sqrt(sum));
    };
  };
  Copy<4> q(a.q, normalised(a.q)), k(a.k, normalised(a.k));
  a.q = q.view(), a.k = k.view();
  a.l2norm = false;
  return base.run(a, c);
}

struct Planted {
  const char* name;
  Fault fault;
  bool chunked_only = false;
};

const std::vector<Planted>& faults() {
  static const std::vector<Planted> all = {
      {"ScaleIgnored",
       [](const Kernel& base, Arguments a, const Contract& c) { return a.scale = 1.0F, base.run(a, c); }},
      {"ScaleTwice",
       [](const Kernel& base, Arguments a, const Contract& c) { return a.scale *= a.scale, base.run(a, c); }},
      {"GateOfThePreviousToken",
       [](const Kernel& base, Arguments a, const Contract& c) {
         return with_g(base, a, c,
                       [&](float x, const At3& at) { return at[1] == 0 ? x : a.g(at[0], at[1] - 1, at[2]); });
       }},
      {"DecayOmitted",
       [](const Kernel& base, Arguments a, const Contract& c) { return a.g = {}, base.run(a, c); }},
      {"DecayClampedAtMinus20",
       [](const Kernel& base, Arguments a, const Contract& c) {
         return with_g(base, a, c, [](float x, const At3&) { return std::max(x, -20.0F); });
       }},
      {"BetaIgnored",
       [](const Kernel& base, Arguments a, const Contract& c) { return a.beta = {}, base.run(a, c); }},
      {"BetaClampedAtOne",
       [](const Kernel& base, Arguments a, const Contract& c) {
         return with_beta(base, a, c, [](float x, const At3&) { return std::min(x, 1.0F); });
       }},
      {"BetaRoundedToBf16UnderBf16",
       [](const Kernel& base, Arguments a, const Contract& c) {
         if (c.input != Format::bf16) return base.run(a, c);
         return with_beta(base, a, c, [](float x, const At3&) { return round_to(x, Format::bf16); });
       }},
      {"StateTransposed",
       [](const Kernel& base, Arguments a, const Contract& c) {
         const Outcome outcome = base.run(a, c);
         if (a.final_state.shape[2] != a.final_state.shape[3]) return outcome;
         Copy<4> state(a.final_state);
         each(a.final_state, [&](float& x, const At4& at) { x = state.view()(at[0], at[1], at[3], at[2]); });
         return outcome;
       }},
      {"InitialStateTransposed",
       [](const Kernel& base, Arguments a, const Contract& c) {
         if (!a.initial_state.present() || a.q.shape[3] != a.v.shape[3]) return base.run(a, c);
         const View<const float, 4> state = a.initial_state;
         return with_initial_state(base, a, c,
                                   [&](float, const At4& at) { return state(at[0], at[1], at[3], at[2]); });
       }},
      {"HeadMapTiled", [](const Kernel& base, Arguments a,
                          const Contract& c) { return a.head_map = HeadMap::tiled, base.run(a, c); }},
      {"HeadMapInterleaved",
       [](const Kernel& base, Arguments a, const Contract& c) {
         return a.head_map = HeadMap::interleaved, base.run(a, c);
       }},
      {"StateBeforeTheLastToken", state_before_last_token},
      {"InitialStateIgnored", [](const Kernel& base, Arguments a,
                                 const Contract& c) { return a.initial_state = {}, base.run(a, c); }},
      {"OneRowZeroed",
       [](const Kernel& base, Arguments a, const Contract& c) {
         const Outcome outcome = base.run(a, c);
         if (a.o.shape[1] > 1) set_row(a.o, a.o.shape[1] / 2, 0.0F);
         return outcome;
       }},
      {"OneElementOffBy1e-3",
       [](const Kernel& base, Arguments a, const Contract& c) {
         const Outcome outcome = base.run(a, c);
         if (a.o.size() > 0) a.o(a.o.shape[0] - 1, a.o.shape[1] - 1, a.o.shape[2] - 1, 0) *= 1.001F;
         return outcome;
       }},
      {"LastPartialChunkDropped", without_last_chunk, true},
      {"StateLeaksBetweenSequences", leaks_between_sequences},
      {"LastResultReplayed", replay},
      {"BatchRow0ForAllRows",
       [](const Kernel& base, Arguments a, const Contract& c) {
         const Outcome outcome = base.run(a, c);
         each(a.o, [&](float& x, const At4& at) { x = a.o(0, at[1], at[2], at[3]); });
         return outcome;
       }},
      {"InputsRoundedToTf32UnderFp32",
       [](const Kernel& base, Arguments a, const Contract& c) {
         if (c.name != "fp32") return base.run(a, c);
         const auto round = [](float x, const At4&) { return round_to(x, Format::tf32); };
         Copy<4> q(a.q, round), k(a.k, round), v(a.v, round);
         a.q = q.view(), a.k = k.view(), a.v = v.view();
         return base.run(a, c);
       }},
      {"StateRoundedToBf16BetweenCallsUnderFp32",
       [](const Kernel& base, Arguments a, const Contract& c) {
         if (c.state != Format::fp32 || !a.initial_state.present()) return base.run(a, c);
         return with_initial_state(base, a, c, [](float x, const At4&) { return round_to(x, Format::bf16); });
       }},
      {"L2normIgnored",
       [](const Kernel& base, Arguments a, const Contract& c) { return a.l2norm = false, base.run(a, c); }},
      {"L2normWithoutEpsilon", normalises_without_epsilon},
      {"StridesIgnored",
       [](const Kernel& base, Arguments a, const Contract& c) {
         a.q = row_major(a.q.data, a.q.shape);
         return base.run(a, c);
       }},
      {"OutputRoundedToTheOther16BitFormat",
       [](const Kernel& base, Arguments a, const Contract& c) {
         Contract other = c;
         if (sixteen_bit(c)) other.P = other.output = c.input == Format::bf16 ? Format::fp16 : Format::bf16;
         return base.run(a, other);
       }},
  };
  return all;
}

struct Death {
  std::int64_t cases = 0;
  Record record;
};

/// Runs the default plan of a kernel until the first failure.
Death first_failure(const KernelTable& table, const std::string& kernel) {
  PlanOptions options;
  options.kernel = kernel;
  Death death;
  for (const Case& c : plan_cases(table, options)) {
    ++death.cases;
    death.record = run_case(c, table);
    if (death.record.judgement.verdict == Verdict::fail) break;
  }
  return death;
}

class PlantedFault : public testing::TestWithParam<std::tuple<std::string, std::size_t>> {};

TEST_P(PlantedFault, IsKilledByTheDefaultPlan) {
  const auto& [form, number] = GetParam();
  const Planted& planted = faults()[number];
  if (form == "recurrent" && planted.chunked_only) return;
  const KernelTable table = form == "chunked"
                                ? planted_table<GatedDeltaRule>(planted.fault)
                                : planted_table<GatedDeltaRule>(planted::undamaged, planted.fault);
  const Death death = first_failure(table, "planted.gated_delta_rule." + form);
  const Judgement& j = death.record.judgement;
  ASSERT_EQ(j.verdict, Verdict::fail) << "alive after " << death.cases << " cases";
  std::cout << fmt::format("{} {}: killed by case {}, gate {}, ratio {:.3g}: {}\n", form, planted.name,
                           death.cases, j.gate, j.ratio, death.record.line);
  EXPECT_LE(death.cases, 600);
}

INSTANTIATE_TEST_SUITE_P(RunCase, PlantedFault,
                         testing::Combine(testing::Values("chunked", "recurrent"),
                                          testing::Range(std::size_t{0}, faults().size())),
                         [](const auto& parameter) {
                           std::string name = std::get<0>(parameter.param) + "_" +
                                              faults()[std::get<1>(parameter.param)].name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(RunCase, UndamagedWrapperPasses300Cases) {
  const KernelTable table = planted_table<GatedDeltaRule>(planted::undamaged);
  std::int64_t passed = 0;
  for (const char* form : {"chunked", "recurrent"}) {
    PlanOptions options;
    options.kernel = std::string("planted.gated_delta_rule.") + form;
    options.max_cases = 155;
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
  const KernelTable table = planted_table<GatedDeltaRule>(one_ulp);
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
        &Judgement::twin_ratio, &Judgement::median_ratio, &Judgement::relative_rms}) {
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

TEST(RunCase, NoTokensHandTheStateOn) {
  const KernelTable table(kernels());
  for (const Kernel& kernel : table.rows()) {
    if (kernel.device != "cpu") continue;
    for (const char* keys : {" state=random", "", " form=decode state=random", " form=packed lengths=0,0",
                             " B=2 Hv=2 layout=padded state=random"}) {
      std::string line = "v1 " + kernel.system + " dk=8 kernel=" + kernel.name + keys;
      if (line.find("packed") == line.npos) line += " T=0";
      if (line.find("form=") == line.npos) line += " form=" + kernel.form;
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
  EXPECT_EQ(run_case(c, planted_table<GatedDeltaRule>(zeroes)).judgement.verdict, Verdict::fail);
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
