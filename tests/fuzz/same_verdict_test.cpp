#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "fuzz/plan.h"
#include "harness/processes/campaign.h"
#include "harness/run/looks.h"
#include "oracles/reasons.h"

/// The same line gets the same verdict from the gate, whose worker processes keep no trace, and from repro, which keeps all tensors
/// and what they were held against.
namespace samestate {
namespace {

/// A line and what the gate said of it.
struct Said {
  Case c;
  Record gate;
};

/// The judgement as repro prints it first, bit for bit.
std::string text_of(const Judgement& j) {
  const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
  return fmt::format("{} {} ratio {:x} error {:x} bound {:x} at {} {} {} {} held {} of {}: {}",
                     name_of(j.verdict), j.gate, bits(j.ratio), bits(j.error), bits(j.bound),
                     j.worst.sequence, j.worst.head, j.worst.token, j.worst.channel, j.held, j.held_of,
                     j.reason);
}

/// The path of the gate: worker processes, and a failure is confirmed by others.
std::vector<Said> gate_of(const std::vector<Case>& cases, const KernelTable& table) {
  std::vector<Said> out(cases.size());
  CampaignObserver observer;
  observer.finished = [&](std::size_t i, const Record& record) { out[i] = {cases[i], record}; };
  const CampaignResult result = run_campaign(cases, table, {.threads = 2}, observer);
  EXPECT_EQ(result.run, std::ssize(cases));
  return out;
}

using Look = Record (*)(const Case&, const KernelTable&, Trace*);

/// How many of the lines a look judges otherwise than the gate did.
int differences(const std::vector<Said>& lines, const KernelTable& table, Look look, bool say) {
  int count = 0;
  for (const Said& line : lines) {
    Trace trace;
    const Record again = look(parse_case(line.gate.line), table, &trace);
    const std::string first = text_of(line.gate.judgement), second = text_of(again.judgement);
    if (first == second && line.gate.policy == "gate") continue;
    ++count;
    if (say)
      ADD_FAILURE() << line.gate.line << "\n  gate  (" << line.gate.policy << ") " << first << "\n  repro ("
                    << again.policy << ") " << second;
  }
  return count;
}

/// What a look with the deep policy in the place of the gate's would say first.
Record deep_first(const Case& c, const KernelTable& table, Trace* trace) {
  return run_case(c, table, 1, trace, kDeepPolicy);
}

std::vector<Case> lines_of_a_gate(const KernelTable& table, std::int64_t count) {
  PlanOptions options;
  options.device = "cpu";
  options.effort = 0.02;
  options.max_cases = count;
  return plan_cases(table, options);
}

/// Cases that are vacuous for want of work: the last is the one of which the gate said vacuous and repro pass.
std::vector<Case> dear_cases() {
  std::vector<Case> out;
  for (const char* line :
       {"v1 gated_delta_net form=chunked chunk=128 T=257 D=3 dk=3 dv=3 W=3 regime=wide_rates",
        "v1 latent_attention form=absorbed B=2 T=78 D=72 dn=72 dr=72 dv=72 dc=72 q_lora=72 contract=bf16"})
    out.push_back(parse_case(line));
  return out;
}

struct Totals {
  std::map<Verdict, int> verdicts;
  std::set<std::string> systems;
  std::int64_t lines = 0;

  void add(const std::vector<Said>& said) {
    for (const Said& one : said) {
      ++verdicts[one.gate.judgement.verdict];
      systems.insert(one.c.system);
      ++lines;
    }
  }
};

/// One mutant of each system and form, on the lines of right kernels of that form.
void repeat_mutants(const std::vector<Case>& right, std::size_t of_each, Totals& totals) {
  std::set<std::string> done;
  for (const Mutant& mutant : all_mutants()) {
    if (mutant.hostile || !mutant.equivalent.empty() || !done.insert(mutant.system + mutant.form).second)
      continue;
    const KernelTable table = mutant.table();
    const std::vector<std::string>& contracts =
        mutant.rows.empty() ? mutant.operators.front().contracts : mutant.rows.front().contracts;
    std::vector<Case> cases;
    for (Case c : right) {
      if (cases.size() == of_each) break;
      if (c.system != mutant.system || c.form != mutant.form ||
          std::ranges::find(contracts, c.contract) == contracts.end())
        continue;
      c.kernel = mutant.kernel();
      cases.push_back(std::move(c));
    }
    if (cases.empty()) continue;
    const std::vector<Said> said = gate_of(cases, table);
    EXPECT_EQ(differences(said, table, first_look, true), 0);
    totals.add(said);
  }
}

void repeat(std::int64_t right_lines, std::size_t of_each_mutant, Totals& totals) {
  const KernelTable table({kernels().begin(), kernels().end()}, operator_kernels());
  std::vector<Case> cases = lines_of_a_gate(table, right_lines);
  for (Case& c : dear_cases()) cases.push_back(std::move(c));
  const std::vector<Said> said = gate_of(cases, table);
  EXPECT_EQ(differences(said, table, first_look, true), 0);
  totals.add(said);
  // The comparison bites: a policy that is not passed through shows in what is vacuous for want of work.
  EXPECT_GT(differences({said.end() - 2, said.end()}, table, deep_first, false), 1);
  repeat_mutants(cases, of_each_mutant, totals);
  EXPECT_EQ(totals.systems.size(), systems().size());
  for (const Verdict verdict : {Verdict::pass, Verdict::fail, Verdict::vacuous})
    EXPECT_GT(totals.verdicts[verdict], 2) << name_of(verdict);
  for (const auto& [verdict, count] : totals.verdicts) fmt::print("{} {}, ", count, name_of(verdict));
  fmt::print("{} lines of {} systems\n", totals.lines, totals.systems.size());
}

TEST(SameVerdict, OfRightKernelsAndMutantsFromGateAndRepro) {
  Totals totals;
  repeat(240, 2, totals);
  EXPECT_GE(totals.lines, 300);
}

TEST(SameVerdict, LongOfTwoThousandLines) {
  Totals totals;
  repeat(1700, 10, totals);
  EXPECT_GE(totals.lines, 2000);
}

/// What the gate leaves open, and more work shows.
TEST(SameVerdict, ADeeperLookJudgesWhatTheGateLeavesOpen) {
  const KernelTable table({kernels().begin(), kernels().end()}, operator_kernels());
  const Case c = dear_cases().back();
  Trace trace;
  const Record first = first_look(c, table, &trace);
  EXPECT_EQ(first.judgement.verdict, Verdict::vacuous);
  EXPECT_EQ(first.policy, "gate");
  EXPECT_TRUE(leaves_open(first.judgement, false));
  const Record deeper = deeper_look(c, table);
  EXPECT_EQ(deeper.judgement.verdict, Verdict::pass) << deeper.judgement.reason;
  EXPECT_EQ(deeper.policy, "deep");
  EXPECT_GT(deeper.judgement.ratio, 0.0);
  EXPECT_FALSE(leaves_open(deeper.judgement, false));
  EXPECT_TRUE(leaves_open(deeper.judgement, true));
  Judgement zeros;
  zeros.gate = kZeroGate;
  EXPECT_FALSE(leaves_open(zeros, true)) << "more work shows nothing of zeros";
}

}  // namespace
}  // namespace samestate
