#include "fuzz/mutants/likeness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/trial.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

/// Names of the mutants that the run of `kernel` on `line` looks like; the run must fail.
std::vector<std::string> alike(const std::string& line, KernelTable table, const std::string& kernel) {
  Case c = parse_case(line);
  c.kernel = kernel;
  Trace trace;
  EXPECT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail) << line;
  std::vector<std::string> names;
  for (const Mutant* m : mutants_like(Resolved(c), trace, 60.0).mutants) names.push_back(m->name);
  return names;
}

bool names_itself(const std::string& line, const std::string& name) {
  const Mutant& m = mutant_named(name);
  const std::vector<std::string> names = alike(line, m.table(), m.kernel());
  return std::ranges::find(names, name) != names.end();
}

TEST(Likeness, AMutantIsNamedOnACaseOfTheFamily) {
  const std::string line = "v1 gated_delta_rule B=2 T=27 Hk=2 Hv=4 dk=8 dv=6 state=random l2norm=1 ";
  for (const char* fault : {"no_scale", "no_decay", "gate_of_the_token_before", "no_delta_term",
                            "initial_state_ignored", "other_head_map", "q_and_k_exchanged"}) {
    const std::string stem = std::string(fault) + ".gated_delta_rule.";
    EXPECT_TRUE(names_itself(line + "chunk=8", stem + "chunked")) << fault;
    EXPECT_TRUE(names_itself(line + "form=recurrent", stem + "recurrent")) << fault;
  }
  EXPECT_TRUE(names_itself(line + "chunk=8", "lost_between_chunks.gated_delta_rule.chunked"));
  EXPECT_TRUE(names_itself(line + "form=decode chunk=0 prefill=9", "no_beta.gated_delta_rule.recurrent"));
  EXPECT_TRUE(names_itself("v1 gated_delta_rule form=packed chunk=8 lengths=9,12 T=21 dk=8 contract=bf16",
                           "leaks_into_next_sequence.gated_delta_rule.chunked"));
}

// A law judges two runs, and the one that does not follow the equations is like the mutant.
TEST(Likeness, AMutantIsNamedWhereALawFails) {
  const std::string line = "v1 gated_delta_rule chunk=8 B=2 T=27 Hk=2 Hv=4 dk=8 dv=8 state=random law=";
  for (const auto& [law, fault] : {std::pair{"reset", "hard_reset_unclamped"},
                                   {"reset", "no_decay"},
                                   {"reset", "exclusive_sum"},
                                   {"reset", "state_not_decayed"}}) {
    const Mutant& m = mutant_named(std::string(fault) + ".gated_delta_rule.chunked");
    EXPECT_EQ(alike(line + law, m.table(), m.kernel()).at(0), m.name) << law;
  }
}

// Where gates forget almost all, two mistakes about the last token account for nearly all of each other's difference.
TEST(Likeness, OnlyWhatExplainsAsMuchAsTheBestIsNamed) {
  const std::string line =
      "v1 gated_delta_rule form=recurrent T=27 Hv=2 dk=8 dv=8 state=random regime=strong";
  for (const char* fault : {"last_token_left_out", "state_before_tail"}) {
    const Mutant& m = mutant_named(std::string(fault) + ".gated_delta_rule.recurrent");
    EXPECT_EQ(alike(line, m.table(), m.kernel()), std::vector<std::string>{m.name});
  }
  // These give the same values there, and the reader is told of both.
  const Mutant& same = mutant_named("no_beta.gated_delta_rule.recurrent");
  const std::vector<std::string> names = alike(line, same.table(), same.kernel());
  EXPECT_NE(std::ranges::find(names, same.name), names.end());
  EXPECT_GE(names.size(), 2U);
}

KernelTable table_of(const char* system, const char* base,
                     const std::function<void(const Arguments&, const Kernel&, const Contract&)>& run) {
  KernelTable table(kernels());
  const Kernel right = table.named(base);
  Kernel row = right;
  row.name = std::string("my.") + system + ".chunked";
  row.form = "chunked";
  row.run = [right, run](const Arguments& a, const Contract& c) {
    run(a, right, c);
    return Outcome{};
  };
  table.add(std::array{row});
  return table;
}

// Token by token in place of chunks: what mutants of the recurrent form do on a case in which they do nothing.
TEST(Likeness, AMutantThatDoesNothingInTheCaseExplainsNothing) {
  const KernelTable table = table_of(
      "delta_rule", "cpu.delta_rule.recurrent", [](Arguments a, const Kernel& right, const Contract& c) {
        (void)right.run(a, c);
        faulty::each(a.final_state, [](float& x, const auto&) { x *= 1.0001F; });
      });
  EXPECT_EQ(alike("v1 delta_rule chunk=40 B=2 T=33 Hk=9 Hv=72 dk=1 dv=8 heads=tiled regime=beta_zero "
                  "state=random seed=0x1000000c3",
                  table, "my.delta_rule.chunked"),
            std::vector<std::string>{});
}

TEST(Likeness, NothingButNanIsLikeNoMutant) {
  const KernelTable table = table_of("gated_delta_rule", "cpu.gated_delta_rule.chunked",
                                     [](const Arguments& a, const Kernel& right, const Contract& c) {
                                       (void)right.run(a, c);
                                       const auto nan = [](float& x, const auto&) { x = NAN; };
                                       faulty::each(a.o, nan);
                                       faulty::each(a.final_state, nan);
                                     });
  EXPECT_EQ(
      alike("v1 gated_delta_rule B=2 T=27 dk=8 chunk=8 state=random", table, "my.gated_delta_rule.chunked"),
      std::vector<std::string>{});
}

TEST(Likeness, AMutantIsNamedOnACaseOfAnOperator) {
  EXPECT_TRUE(names_itself("v1 rms_norm form=fused T=9 H=3 D=16 regime=tiny", "no_epsilon.rms_norm.fused"));
  EXPECT_TRUE(names_itself("v1 rotary_embedding form=full_width T=9",
                           "turned_the_other_way.rotary_embedding.full_width"));
  EXPECT_TRUE(names_itself("v1 softmax_attention form=decode T=9 prefill=4",
                           "cache_forgotten.softmax_attention.online"));
  EXPECT_TRUE(names_itself("v1 mamba2_mixer form=chunked chunk=4 T=9", "no_skip.mamba2_mixer.chunked"));
}

// A kernel of another form, and a fault that no mutant has.
TEST(Likeness, ByTheValuesAlone) {
  std::vector<Mutant> planted;
  mutants::add_faults(planted, "cpu.softmax_attention.grouped",
                      {{"F", "none", "nothing", mutants::miswritten([](mutants::ChangedCall& call) {
                          for (float& x : call.output("o")) x += 1.0F;
                        })}});
  const Mutant& m = planted.front();
  EXPECT_TRUE(alike("v1 softmax_attention form=grouped T=9", m.table(), m.kernel()).empty());

  const Case passes = parse_case("v1 rms_norm form=fused T=9");
  Trace trace;
  EXPECT_EQ(run_case(passes, KernelTable({}, operator_kernels()), 1, &trace).judgement.verdict,
            Verdict::pass);
  const Likeness like = mutants_like(Resolved(passes), trace);
  EXPECT_TRUE(like.mutants.empty());
  EXPECT_GT(like.all, 4);
  EXPECT_EQ(like.tried, like.all);
  EXPECT_EQ(mutants_like(Resolved(passes), trace, -1.0).tried, 0);
  EXPECT_EQ(mutants_like(Resolved(passes), Trace{}).all, 0);
}

// Nothing is left where a state was to be carried on.
TEST(Likeness, ZerosAreLikeWhatLeavesZeros) {
  EXPECT_TRUE(names_itself("v1 state_space_duality form=chunked chunk=8 T=0",
                           "state_not_read.state_space_duality.chunked"));
  EXPECT_TRUE(names_itself("v1 linear_attention_bidirectional form=state_first T=1",
                           "last_token_unseen.linear_attention_bidirectional.state_first"));
}

bool fails_alone(const MutantResult& r) {
  Case c = parse_case(r.line);
  c.kernel = r.mutant->kernel();
  return run_case(c, r.mutant->table()).judgement.verdict == Verdict::fail;
}

// Each on the case that kills it, unless four others give the same values there. What fails only after other calls has
// no values of its own to be known by.
TEST(Likeness, LongMutantsOfOperatorsAreNamedOnTheirKillingCase) {
  std::vector<const Mutant*> list;
  for (const Mutant& m : all_mutants()) {
    // One that no gate can tell from the right kernel has no killing case, and likeness names it nowhere.
    if (!m.operators.empty() && m.equivalent.empty()) list.push_back(&m);
  }
  std::int64_t named = 0, tried = 0;
  for (const MutantResult& r : try_mutants(list, {}, 2, nullptr)) {
    if (r.killed && !fails_alone(r)) continue;
    ++tried;
    const bool itself = r.killed && names_itself(r.line, r.mutant->name);
    named += itself ? 1 : 0;
    if (!itself) std::cout << r.mutant->name << ": not named on " << r.line << "\n";
  }
  EXPECT_GE(named * 100, 99 * tried);
  EXPECT_GE(tried * 100, 98 * std::ssize(list));
}

}  // namespace
}  // namespace samestate
