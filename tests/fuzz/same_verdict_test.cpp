#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fuzz/mutants/mutant.h"
#include "fuzz/plan/plan.h"
#include "harness/processes/campaign.h"
#include "harness/run/looks.h"
#include "optimized/call_kernel.h"
#include "oracles/reasons.h"

/// The same line gets the same verdict from the gate, whose worker processes keep no trace, and from repro,
/// which keeps all tensors and what they were compared with.
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

/// Counts the lines that a look judges otherwise than the gate did.
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

/// Judges as a first look would that took the deep policy in the place of the gate's.
Record deep_first(const Case& c, const KernelTable& table, Trace* trace) {
  return run_case(c, table, 1, trace, kDeepPolicy);
}

std::vector<Case> lines_of_a_gate(const KernelTable& table, std::int64_t count) {
  PlanOptions options;
  options.device = "cpu";
  options.effort = 0.02;
  options.max_cases = count;
  std::vector<Case> lines = plan_cases(table, options);
  // So few lines need not have every system.
  for (const KernelRow& row : table.all()) {
    if (row.device != "cpu" ||
        std::ranges::any_of(lines, [&](const Case& c) { return c.system == row.system->name; }))
      continue;
    lines.push_back(row.system->standard());
    lines.back().form = row.form;
    lines.back().kernel = row.name;
  }
  return lines;
}

/// Vacuous lines of a gate, by every gate that has some: few of a plan's lines are.
std::vector<Case> vacuous_lines() {
  std::vector<Case> out;
  for (const char* line :
       {"v1 rms_norm form=fused T=0", "v1 normalised_retention form=chunked T=70 dk=72 dv=72 regime=zeros",
        "v1 multi_scale_retention form=chunked chunk=80 T=80 regime=trained",
        "v1 softmax_attention form=online chunk=47 B=33 T=1 d=2 dv=2 regime=extremes seed=0x18000060a",
        "v1 mixture_of_experts form=sorted B=8 T=1 D=33 N=3 F=1 regime=large repeat=1 seed=0x1800009f8",
        "v1 gated_delta_step form=expanded B=2 T=5 P=1 dk=2 dv=2 regime=mixed_scales law=pool "
        "seed=0x18000058e",
        "v1 mamba_mixer form=chunked chunk=23 B=2 T=2 D=32 Di=2 N=2 W=2 regime=extremes law=reset "
        "seed=0x180000899",
        "v1 delta_rule chunk=39 B=2 T=33 dk=16 dv=8 scale=16 contract=fp16 regime=tiny_norms "
        "layout=page_end final=none repeat=1 seed=0x18000059e",
        "v1 linear_attention form=recurrent B=2 T=1 Hk=8 Hv=24 dk=16 dv=7 heads=tiled l2norm=1 "
        "scale=0.0001220703125 contract=bf16_state regime=identical final=none repeat=1 seed=0x180000502",
        "v1 gated_delta_rule form=packed chunk=0 lengths=17 Hv=7 dk=9 dv=8 heads=tiled l2norm=1 "
        "scale=0.0001220703125 contract=fp16_state regime=huge_state unowned=1,0 repeat=1 seed=0x1800005a1",
        "v1 retention form=packed chunk=0 lengths=6,1,2 Hk=27 Hv=54 dk=4 dv=1 heads=tiled l2norm=1 "
        "scale=-1 contract=fp16 regime=measured state=random final=in_place unowned=3,5 repeat=1 "
        "seed=0x1800004e5"})
    out.push_back(parse_case(line));
  return out;
}

/// Lines that are vacuous for want of work. Of the last the gate said vacuous once, and repro pass.
std::vector<Case> open_lines() {
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
    const std::vector<std::string>& contracts = mutant.contracts();
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
  const KernelTable table(call_kernels());
  std::vector<Case> cases = lines_of_a_gate(table, right_lines);
  std::ranges::copy(vacuous_lines(), std::back_inserter(cases));
  std::ranges::copy(open_lines(), std::back_inserter(cases));
  const std::vector<Said> said = gate_of(cases, table);
  EXPECT_EQ(differences(said, table, first_look, true), 0);
  totals.add(said);
  // The comparison bites: a policy that is not passed through shows in what is vacuous for want of work.
  EXPECT_GT(differences({said.end() - 2, said.end()}, table, deep_first, false), 1);
  repeat_mutants(cases, of_each_mutant, totals);
  EXPECT_EQ(totals.systems.size(), systems().size());
  for (const Verdict verdict : {Verdict::pass, Verdict::fail, Verdict::vacuous})
    EXPECT_GT(totals.verdicts[verdict], 10) << name_of(verdict);
  for (const auto& [verdict, count] : totals.verdicts) fmt::print("{} {}, ", count, name_of(verdict));
  fmt::print("{} lines of {} systems\n", totals.lines, totals.systems.size());
}

TEST(SameVerdict, OfRightKernelsAndMutantsFromGateAndRepro) {
  Totals totals;
  repeat(120, 2, totals);
  EXPECT_GE(totals.lines, 150);
}

TEST(SameVerdict, LongOfTwoThousandLines) {
  Totals totals;
  repeat(1700, 10, totals);
  EXPECT_GE(totals.lines, 2000);
}

/// These lines the gate leaves open, and more work decides them.
TEST(SameVerdict, ADeeperLookJudgesWhatTheGateLeavesOpen) {
  const KernelTable table(call_kernels());
  const Case c = open_lines().back();
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
