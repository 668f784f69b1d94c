#include "harness/run/companion.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "fuzz/plan/plan.h"
#include "fuzz/plan/plan_coverage.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

/// Returns this build's kernel of the form, without one of the other form.
KernelTable alone(const std::string& form, std::vector<std::string> contracts = {"fp32"}) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule." + form);
  row.name = "alone." + form + ".gated_delta_rule." + form;
  row.contracts = std::move(contracts);
  return KernelTable(std::span<const Kernel>(&row, 1));
}

const std::vector<std::string> kFormsOfKernels = {"chunked", "recurrent", "sequence_parallel",
                                                  "head_parallel"};

// The message before a run agrees with what the run does.
TEST(Companion, ACaseThatTakesTheOtherKernelIsUnsupportedWithoutIt) {
  for (const std::string& form : kFormsOfKernels) {
    const KernelTable table = alone(form);
    const KernelRow& row = table.all().front();
    std::vector<std::string> parts = {"T=20", "form=packed lengths=3,20", "form=decode T=20 prefill=17",
                                      "form=decode T=20 prefill=20", "form=decode T=20"};
    for (const Law* law : row.system->laws)
      parts.push_back("T=20 B=2 Hk=2 Hv=4 state=random law=" + std::string(law->name));
    std::int64_t without = 0;
    for (const std::string& part : parts) {
      const bool own = part.find("form=") == part.npos;
      const bool chunked = row.system->form(form)->chunked;
      const Case c =
          parse_case("v1 gated_delta_rule dk=4 dv=4 chunk=" + std::string(chunked || own ? "8" : "0") + " " +
                     part + (own ? " form=" + form : "") + " kernel=" + row.name);
      const Verdict verdict = run_case(c, table).judgement.verdict;
      const bool there = has_kernels(row, c);
      without += !there;
      if (there) {
        EXPECT_EQ(verdict, Verdict::pass) << format_case(c);
      } else if (c.law != "serving") {  // whose program may happen to decode nothing
        EXPECT_EQ(verdict, Verdict::unsupported) << format_case(c);
      }
    }
    EXPECT_EQ(without, form == "recurrent" ? 1 : 4) << form;
  }
}

TEST(Companion, APlanHasNoCaseThatItsKernelCannotMake) {
  for (const std::string& form : kFormsOfKernels) {
    const KernelTable table = alone(form);
    const Plan plan = plan_of(table, {});
    EXPECT_GT(plan.cases.size(), 100U);
    for (const Case& c : plan.cases) {
      const KernelChoice choice = table.choose(Resolved(c));
      EXPECT_TRUE(has_kernels(*choice.named, c)) << format_case(c);
    }
    // The plan does not look for the pairs that only such cases have either.
    PlanCoverage judged(plan);
    for (const Case& c : plan.cases) judged.add(c, plan.kernels.front().kernel->name);
    EXPECT_TRUE(judged.missing(10).empty()) << form << " " << judged.missing(10).front();
    EXPECT_NE(not_planned(table.all().front()).find("law=path_equivalence"), std::string::npos);
  }
}

// The plan leaves out no kernel from which the gate's score is made.
TEST(Companion, NoMutantOrKernelOfTheProcessorStandsAlone) {
  for (const Mutant& m : all_mutants()) {
    const KernelTable table = m.table();
    EXPECT_EQ(not_planned(table.row_named(m.kernel())), "") << m.name;
  }
  const KernelTable all(kernels(), operator_kernels());
  for (const KernelRow& row : all.all()) {
    if (row.device != "cpu") continue;
    EXPECT_EQ(not_planned(row), "");
  }
}

TEST(Companion, ItIsAskedForContractsThatItKeeps) {
  const KernelTable all(kernels(), operator_kernels());
  EXPECT_EQ(not_planned(all.row_named("cpu.gated_delta_rule.chunked")), "");
  EXPECT_EQ(not_planned(all.row_named("cpu.rms_norm.fused")), "");
  EXPECT_TRUE(has_kernels(all.row_named("cpu.latent_attention.absorbed"),
                          parse_case("v1 latent_attention form=decode T=4")));
  std::vector<Kernel> rows;
  for (const char* form : {"chunked", "recurrent"}) {
    rows.push_back(KernelTable(kernels()).named(std::string("cpu.retention.") + form));
    rows.back().name = std::string("mine.retention.") + form;
    rows.back().contracts = {"fp32"};
  }
  rows.front().contracts = {"fp32", "bf16"};
  const KernelTable two(rows);
  EXPECT_EQ(
      not_planned(two.row_named("mine.retention.chunked")),
      "mine.retention.chunked: cases that call with chunks and without (form=decode, law=path_equivalence, "
      "law=serving) are not planned under bf16: they take mine.retention.recurrent too.");
  EXPECT_EQ(not_planned(two.row_named("mine.retention.recurrent")), "");
}

}  // namespace
}  // namespace samestate
