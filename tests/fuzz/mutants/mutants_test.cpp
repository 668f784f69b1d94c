#include "fuzz/mutants/mutant.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/trial.h"
#include "fuzz/plan/plan.h"
#include "harness/processes/campaign.h"
#include "reference/error.h"

namespace samestate {
namespace {

TEST(Mutants, NamesAreUniqueAndReadable) {
  std::set<std::string> names;
  const std::regex name("[a-z0-9_]+\\.[a-z0-9_]+(\\.backward)?\\.[a-z0-9_]+");
  const std::regex bug("M[0-9]{2}|F([0-9]{2})?|H1\\.7");
  for (const Mutant& m : all_mutants()) {
    EXPECT_TRUE(names.insert(m.name).second) << m.name;
    EXPECT_TRUE(std::regex_match(m.name, name)) << m.name;
    EXPECT_TRUE(std::regex_match(m.bug, bug)) << m.name;
    EXPECT_EQ(m.name, m.fault + "." + m.system + "." + m.form);
    EXPECT_FALSE(m.summary.empty());
    EXPECT_EQ(m.rows.empty(), !(m.operators.empty() && m.calls.empty())) << m.name;
    EXPECT_EQ(&mutant_named(m.name), &m);
  }
}

// A fault is the same in all systems and forms: so are its class and, in a kernel, its words.
TEST(Mutants, AFaultHasOneMeaning) {
  std::map<std::pair<std::string, std::string>, const Mutant*> first;
  for (const Mutant& m : all_mutants()) {
    if (m.rows.empty()) continue;
    const Mutant& other = *first.emplace(std::pair(m.fault, m.form), &m).first->second;
    EXPECT_EQ(m.bug, other.bug) << m.name << ", " << other.name;
    EXPECT_EQ(m.summary, other.summary) << m.name << ", " << other.name;
  }
}

// Every fault that any gate can see is planted once in what CI runs, and both forms of the rule have their share.
TEST(Mutants, SmokeHasEveryFaultOnce) {
  std::map<std::string, int> marked;
  std::map<std::string, int> of_form;
  for (const Mutant& m : all_mutants()) {
    int& count = marked[m.fault];
    if (!m.smoke) continue;
    EXPECT_TRUE(m.equivalent.empty()) << m.name;
    ++count;
    if (m.system == "gated_delta_rule") ++of_form[m.form];
  }
  const std::set<std::string> slow{"sleeps", "long_sequence_tail_lost", "grid_of_65535"};
  for (const auto& [fault, count] : marked) {
    const bool visible = std::ranges::any_of(
        all_mutants(), [&](const Mutant& m) { return m.fault == fault && m.equivalent.empty(); });
    if (!visible || slow.contains(fault))
      EXPECT_EQ(count, 0) << fault;
    else
      EXPECT_GE(count, 1) << fault;
  }
  EXPECT_GT(of_form["chunked"], 50);
  EXPECT_GT(of_form["recurrent"], 40);
}

// `samestate mutants` has no --devices, because no mutant runs on one.
TEST(Mutants, AllAreKernelsOfTheProcessor) {
  for (const Mutant& m : all_mutants()) {
    for (const Kernel& row : m.rows) EXPECT_EQ(row.device, "cpu") << m.name;
    for (const OperatorKernel& row : m.operators) EXPECT_EQ(row.device, "cpu") << m.name;
  }
}

// Every kernel of an operator that runs anywhere has one at least: a fault in it is seen.
TEST(Mutants, EveryOperatorKernelHasOne) {
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.device != "cpu") continue;
    EXPECT_TRUE(std::ranges::any_of(all_mutants(), [&](const Mutant& m) {
      return !m.operators.empty() && m.system == kernel.system && m.form == kernel.form;
    })) << kernel.name;
  }
}

TEST(Mutants, UnknownNamesAreRefusedWithTheNearest) {
  try {
    (void)mutant_named("no_decay");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no_decay.retention.recurrent"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW((void)mutant_named("nothing"), Error);
}

// The kernels from which mutants are made are correct: a mutant dies because of its fault and of nothing
// else.
void expect_clean(const KernelTable& table, double effort, std::int64_t max_cases) {
  PlanOptions options;
  options.effort = effort;
  options.max_cases = max_cases;
  options.device = "cpu";
  const std::vector<Case> cases = plan_cases(table, options);
  std::int64_t passed = 0;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record& record) {
    const Verdict v = record.judgement.verdict;
    EXPECT_TRUE(v == Verdict::pass || v == Verdict::vacuous)
        << record.line << ": " << record.judgement.reason;
    passed += v == Verdict::pass ? 1 : 0;
  };
  run_campaign(cases, table, {2, 0.0}, observer);
  EXPECT_GE(passed * 100, 95 * std::ssize(cases));
}

TEST(Mutants, UnmutatedEvaluatorPasses) { expect_clean(KernelTable(unmutated_kernels()), 0.05, 200); }
TEST(Mutants, LongUnmutatedEvaluatorPassesTheWholePlan) {
  expect_clean(KernelTable(unmutated_kernels()), 1.0, 0);
}
// The gate that CI runs in front of the tests has these cases too.
TEST(Mutants, LongKernelsOfOperatorsPassTheEdges) {
  expect_clean(KernelTable({}, operator_kernels()), 0.0, 0);
}

// A row that computes what the correct one computes is not a mutant. Its own killing case is the input on
// which they differ; equivalent mutants are those that the table marks as such.
TEST(Mutants, LongEveryMutantIsKilledUnlessItIsEquivalent) {
  std::vector<const Mutant*> list;
  for (const Mutant& m : all_mutants()) list.push_back(&m);
  for (const MutantResult& r : try_mutants(list, {}, 2, nullptr)) {
    EXPECT_EQ(r.killed, r.mutant->equivalent.empty()) << r.mutant->name << " after " << r.cases << " cases";
  }
}

MutantResult trial(std::string_view name) { return try_mutant(mutant_named(name)); }

TEST(Mutants, DieByTheGateThatIsThereForThem) {
  // Before anything else: the first edge cases are in fp32, with a state.
  const MutantResult no_delta = trial("no_delta_term.gated_delta_rule.chunked");
  EXPECT_TRUE(no_delta.killed);
  EXPECT_LE(no_delta.cases, 5);
  EXPECT_GT(no_delta.ratio, 100.0);
  // alpha + 1e-10 is the same as alpha in fp32: only exact arithmetic shows it.
  const MutantResult soft_reset = trial("soft_reset.retention.recurrent");
  EXPECT_TRUE(soft_reset.killed);
  EXPECT_TRUE(soft_reset.gate.starts_with("exact")) << soft_reset.line;
  // The state of Hk = Hv = 1 is invisible to a wrong head map.
  const MutantResult heads = trial("other_head_map.linear_attention.chunked");
  EXPECT_TRUE(heads.killed);
  EXPECT_NE(heads.line.find("Hv="), std::string::npos) << heads.line;
  // A rounding that the contract does not declare hides below bf16's, and not from the twin.
  const MutantResult beta = trial("bf16_beta_in_bf16.delta_rule.chunked");
  EXPECT_TRUE(beta.killed);
  EXPECT_TRUE(beta.gate.starts_with("twin")) << beta.line;
}

// The wrapper of the operators' mutants does not kill anything by itself either.
TEST(Mutants, AnUnchangedCallSurvives) {
  std::vector<Mutant> unchanged;
  for (const char* kernel : {"cpu.softmax_attention.online", "cpu.load_balance.direct"}) {
    mutants::add_faults(unchanged, kernel,
                        {{"F", "none", "nothing", mutants::misread([](mutants::ChangedCall&) {})}});
  }
  for (const Mutant& m : unchanged) {
    const MutantResult r = try_mutant(m, {0.2, 1});
    EXPECT_FALSE(r.killed) << r.line << ": " << r.reason;
    EXPECT_EQ(r.cases, r.planned);
    EXPECT_GT(r.ratio, 0.0);
  }
}

/// A second is a thousand times what these cases take.
const MutantOptions kImpatient = [] {
  MutantOptions options;
  options.timeout = 1.0;
  return options;
}();

std::string gate_of(std::string_view fault, const MutantOptions& options = {}) {
  return try_mutant(mutant_named(std::string(fault) + ".gated_delta_rule.chunked"), options).gate;
}

TEST(Mutants, AdversariesAreCaughtByName) {
  for (const char* fault : {"edits_its_inputs", "writes_past_the_end", "changes_cu_seqlens"}) {
    EXPECT_EQ(gate_of(fault), "memory") << fault;
  }
  for (const char* fault : {"throws", "dereferences_null", "touches_a_guard_page", "aborts", "exits",
                            "allocates_without_bound"}) {
    EXPECT_EQ(gate_of(fault), "crash") << fault;
  }
  for (const char* fault : {"sleeps", "loops_forever"}) {
    EXPECT_EQ(gate_of(fault, kImpatient), "timeout") << fault;
  }
  for (const char* fault : {"adds_to_what_was_there", "keeps_the_larger"}) {
    EXPECT_TRUE(gate_of(fault).starts_with("range")) << fault;
  }
  for (const char* fault : {"replays_last_result", "writes_nothing", "writes_first_batch_only", "returns_nan",
                            "returns_zeros", "returns_before_it_is_done"}) {
    const std::string gate = gate_of(fault);
    EXPECT_TRUE(gate.starts_with("exact") || gate.starts_with("range") || gate == "row" || gate == "head")
        << fault << ": " << gate;
  }
}

// A process of its own for each: those that die or hang cost the others nothing, nor this process.
TEST(Mutants, ADeathIsTheMutantsOwn) {
  std::vector<const Mutant*> list;
  for (const char* fault : {"exits", "no_delta_term", "loops_forever", "aborts", "no_delta_term"}) {
    list.push_back(&mutant_named(std::string(fault) + ".gated_delta_rule.chunked"));
  }
  const MutantResult alone = try_mutant(*list[1], kImpatient);
  for (const int workers : {1, 2}) {
    std::vector<std::string> finished;
    const std::vector<MutantResult> results =
        try_mutants(list, kImpatient, workers, [&](const MutantResult& r) { finished.push_back(r.gate); });
    ASSERT_EQ(results.size(), list.size());
    EXPECT_EQ(finished.size(), list.size());
    for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(results[i].mutant, list[i]);
    EXPECT_EQ(results[0].gate, "crash");
    EXPECT_NE(results[0].reason.find("code 0"), std::string::npos) << results[0].reason;
    EXPECT_EQ(results[2].gate, "timeout");
    EXPECT_EQ(results[3].gate, "crash");
    for (const std::size_t i : {1, 4}) {
      EXPECT_EQ(results[i].line, alone.line);
      EXPECT_EQ(results[i].cases, alone.cases);
      EXPECT_EQ(results[i].ratio, alone.ratio);
    }
  }
}

// As on a machine so busy that the first case takes too long: what is wrong with the kernel the next one shows.
TEST(Mutants, ATimeoutKillsNoneThatReturns) {
  Mutant slow = mutant_named("no_delta_term.gated_delta_rule.chunked");
  void* const shared =
      mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const calls = new (shared) std::atomic<int>(0);
  slow.rows.front().run = [calls, run = slow.rows.front().run](const Arguments& a, const Contract& contract) {
    if (calls->fetch_add(1) == 0) std::this_thread::sleep_for(std::chrono::hours(1));
    return run(a, contract);
  };
  const MutantResult r = try_mutant(slow, kImpatient);
  EXPECT_TRUE(r.killed);
  EXPECT_NE(r.gate, "timeout");
  EXPECT_EQ(r.cases, 1 + try_mutant(mutant_named(slow.name), kImpatient).cases);
  (void)munmap(shared, sizeof(std::atomic<int>));
}

TEST(Mutants, WrappedOffsetsDieWhereRowsLieFarApart) {
  for (const char* fault : {"head_offset_of_32_bits", "token_offset_of_32_bits", "state_offset_of_32_bits"}) {
    const MutantResult r = trial(std::string(fault) + ".retention.recurrent");
    EXPECT_TRUE(r.killed);
    EXPECT_NE(r.line.find("layout=far"), std::string::npos) << r.line;
  }
}

TEST(Mutants, AnExceptionOfARowStopsTheTrialAndIsReported) {
  Mutant broken = mutant_named("no_decay.retention.chunked");
  broken.rows.front().contracts = {"no_such_contract"};
  const Mutant* list[] = {&broken};
  EXPECT_THROW((void)try_mutants(list, {}, 1, nullptr), Error);
}

}  // namespace
}  // namespace samestate
