#include "harness/processes/campaign.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fuzz/plan/plan.h"
#include "harness/processes/losses.h"
#include "harness/run/collect_spent.h"
#include "reference/error.h"

namespace samestate {
namespace {

std::vector<Case> small_cases(std::int64_t count) {
  std::vector<Case> cases;
  for (std::int64_t i = 0; i < count; ++i) {
    cases.push_back(parse_case("v1 retention chunk=4 T=9 dk=4 dv=4 state=random seed=" + std::to_string(i)));
  }
  return cases;
}

TEST(Campaign, RecordsDoNotDependOnThreads) {
  const KernelTable table(kernels());
  PlanOptions options;
  options.max_cases = 40;
  options.device = "cpu";
  const std::vector<Case> cases = plan_cases(table, options);
  const auto records = [&](int threads) {
    std::map<std::size_t, std::string> found;
    std::vector<std::size_t> order;
    CampaignObserver observer;
    observer.started = [&](std::size_t i, const Case& c) {
      order.push_back(i);
      EXPECT_EQ(c, cases[i]);
    };
    observer.finished = [&](std::size_t i, const Record& r) {
      EXPECT_TRUE(found
                      .emplace(i, r.line + " " + std::string(name_of(r.judgement.verdict)) + " " +
                                      testing::PrintToString(r.judgement.ratio))
                      .second);
      EXPECT_EQ(r.line, format_case(cases[i]));
    };
    const CampaignResult result = run_campaign(cases, table, {threads, 0.0}, observer);
    EXPECT_EQ(result.run, std::ssize(cases));
    EXPECT_EQ(result.not_started, 0);
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), cases.size());
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()) || threads > 1);
    return found;
  };
  const auto alone = records(1);
  EXPECT_EQ(alone, records(2));
  EXPECT_EQ(alone, records(5));
}

// The worker hands a kernel the threads that the line says, however many cases run at a time.
TEST(Campaign, AKernelMayUseTheThreadsOfItsLine) {
  std::vector<Kernel> rows{KernelTable(kernels()).named("cpu.retention.chunked")};
  rows[0].name = "threads.retention.chunked";
  KernelTable table(kernels());
  rows[0].run = [right = rows[0].run](const Arguments& a, const Contract& c) {
    const Outcome outcome = right(a, c);
    if (a.threads > 1) a.o(0, 0, 0, 0) += static_cast<float>(a.threads);
    return outcome;
  };
  table.add(rows);
  std::vector<Case> cases = small_cases(6);
  for (Case& c : cases) c.kernel = rows[0].name;
  for (const int at_a_time : {1, 3}) {
    CampaignObserver observer;
    observer.finished = [&](std::size_t, const Record& r) {
      const bool one = parse_case(r.line).seed % 3 == 0;
      EXPECT_EQ(r.judgement.verdict, one ? Verdict::pass : Verdict::fail) << r.line;
    };
    EXPECT_EQ(run_campaign(cases, table, {at_a_time, 0.0}, observer).run, std::ssize(cases));
  }
}

TEST(Campaign, BudgetStopsAndSaysHowMuchIsLeft) {
  const KernelTable table(kernels());
  const std::vector<Case> cases = small_cases(2000);
  for (int threads : {1, 2}) {
    std::int64_t finished = 0;
    CampaignObserver observer;
    observer.finished = [&](std::size_t, const Record&) {
      ++finished;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    };
    const CampaignResult result = run_campaign(cases, table, {threads, 0.1}, observer);
    EXPECT_GT(result.run, 0);
    EXPECT_LT(result.run, 100);
    EXPECT_EQ(result.run, finished);
    EXPECT_EQ(result.run + result.not_started, 2000);
  }
  const CampaignResult none = run_campaign(cases, table, {1, 1e-9}, {});
  EXPECT_EQ(none.run, 0);
  EXPECT_EQ(none.not_started, 2000);
}

TEST(Campaign, NoCasesIsNoRun) {
  const CampaignResult result = run_campaign({}, KernelTable(kernels()), {2, 0.0}, {});
  EXPECT_EQ(result.run, 0);
  EXPECT_EQ(result.not_started, 0);
}

TEST(Campaign, ErrorsReachTheCaller) {
  const KernelTable table(kernels());
  std::vector<Case> cases = small_cases(20);
  cases[7].system = "nope";
  std::int64_t finished = 0;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record&) { ++finished; };
  for (int threads : {1, 3}) EXPECT_THROW((void)run_campaign(cases, table, {threads, 0.0}, observer), Error);
  EXPECT_LT(finished, 40);
  observer.finished = [](std::size_t, const Record&) { throw std::runtime_error("disk full"); };
  for (int threads : {1, 3}) {
    EXPECT_THROW((void)run_campaign(small_cases(20), table, {threads, 0.0}, observer), std::runtime_error);
  }
  observer = {};
  observer.started = [](std::size_t i, const Case&) {
    if (i == 3) throw std::runtime_error("disk full");
  };
  EXPECT_THROW((void)run_campaign(small_cases(20), table, {2, 0.0}, observer), std::runtime_error);
}

// A kernel that throws is a record among others, not the end of the campaign.
TEST(Campaign, CrashingKernelDoesNotEndIt) {
  const KernelTable cpu(kernels());
  Kernel row = cpu.named("cpu.retention.chunked");
  row.name = "mine.retention.chunked";
  row.run = [](const Arguments&, const Contract&) -> Outcome { throw std::runtime_error("boom"); };
  KernelTable table(kernels());
  table.add(std::span(&row, 1));
  std::vector<Case> cases = small_cases(10);
  for (std::size_t i = 0; i < cases.size(); i += 2) cases[i].kernel = row.name;
  std::map<Verdict, int> count;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record& r) { ++count[r.judgement.verdict]; };
  EXPECT_EQ(run_campaign(cases, table, {2, 0.0}, observer).run, 10);
  EXPECT_EQ(count[Verdict::crash], 5);
  EXPECT_EQ(count[Verdict::pass], 5);
}

/// A chunked kernel of retention under another name, which `wrong` damages.
Kernel damaged(const std::string& name, std::function<bool(const Arguments&)> wrong) {
  Kernel row = KernelTable(kernels()).named("cpu.retention.chunked");
  row.name = name + ".retention.chunked";
  row.run = [base = row.run, wrong = std::move(wrong)](const Arguments& a, const Contract& c) {
    const bool now = wrong(a);
    const Outcome outcome = base(a, c);
    if (now && a.o.size() > 0) a.o.data[0] += 3.0F;
    return outcome;
  };
  return row;
}

std::vector<Record> records_of(const Kernel& row, std::vector<Case> cases, int threads = 1) {
  KernelTable table(kernels());
  table.add(std::span(&row, 1));
  for (Case& c : cases) c.kernel = row.name;
  std::vector<Record> records(cases.size());
  CampaignObserver observer;
  observer.finished = [&](std::size_t i, const Record& r) { records[i] = r; };
  EXPECT_EQ(run_campaign(cases, table, {threads, 0.0}, observer).run, std::ssize(cases));
  return records;
}

// Wrong in each process of its own is a failure, since its line repeats it; wrong at times is flaky.
TEST(Campaign, AFailureThatDoesNotComeAgainIsFlaky) {
  EXPECT_EQ(records_of(damaged("always", [](const Arguments&) { return true; }), small_cases(1))[0]
                .judgement.verdict,
            Verdict::fail);
  static int calls = 0;
  EXPECT_EQ(records_of(damaged("first", [](const Arguments&) { return calls++ == 0; }), small_cases(1))[0]
                .judgement.verdict,
            Verdict::fail);
  // Memory that all processes share, as the state of a device: the first call of all of them.
  static auto* all = static_cast<int*>(
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const Record once =
      records_of(damaged("once", [](const Arguments&) { return (*all)++ == 0; }), small_cases(1))[0];
  EXPECT_EQ(once.judgement.verdict, Verdict::flaky);
  EXPECT_NE(once.judgement.reason.find("fail, then pass in a process of its own"), std::string::npos)
      << once.judgement.reason;
  EXPECT_TRUE(once.after.empty());
}

// If a call leaves something behind that breaks a later one, the record has the cases that cause it, and they
// do.
TEST(Campaign, AFailureThatComesAfterOthersHoldsThem) {
  static std::int64_t kept = -1;
  static int calls = 0;
  const auto by_shape = [](const Arguments& a) {
    const std::int64_t before = std::exchange(kept, a.v.shape[3]);
    return before == 5 && a.v.shape[3] == 6;  // a workspace of the other shape
  };
  const auto by_count = [](const Arguments&) { return ++calls == 12; };
  std::vector<Case> cases = small_cases(30);
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].dv = i == 20 ? 5 : i == 21 ? 6 : 4;
  const std::vector<Record> shape = records_of(damaged("shape", by_shape), cases);
  const std::vector<Record> count = records_of(damaged("count", by_count), cases);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(shape[i].judgement.verdict, i == 21 ? Verdict::fail : Verdict::pass) << i;
    EXPECT_EQ(count[i].judgement.verdict, i == 11 ? Verdict::fail : Verdict::pass) << i;
  }
  ASSERT_EQ(shape[21].after.size(), 1U);
  EXPECT_EQ(shape[21].after[0], shape[20].line);
  EXPECT_NE(shape[21].judgement.reason.find("only after 1 other case(s)"), std::string::npos)
      << shape[21].judgement.reason;
  EXPECT_EQ(count[11].after.size(), 11U) << "each of them counts";
}

// A kernel that is wrong throughout is not run again for ever; what stands as it was seen says so.
TEST(Campaign, AFailureThatWasNotRunAgainSaysSo) {
  const Kernel wrong = damaged("wrong", [](const Arguments&) { return true; });
  const std::vector<Record> records = records_of(wrong, small_cases(203));
  EXPECT_EQ(records[199].judgement.reason.find("not run again"), std::string::npos);
  EXPECT_TRUE(records[202].judgement.reason.ends_with(
      "seen in a process that had run 202 case(s) before it; not run again"))
      << records[202].judgement.reason;
}

/// A kernel whose tuner takes a block of 128 under first and of 64 under full, and which is wrong with blocks of `wrong`.
Kernel tuned(int wrong, bool tells = true) {
  Kernel row = KernelTable(kernels()).named("cpu.retention.chunked");
  row.name = "tuned.retention.chunked";
  row.run = [base = row.run, wrong, tells](const Arguments& a, const Contract& c) {
    const char* said = std::getenv(kAutotuneVariable);
    const std::string setting = said != nullptr ? said : "first";
    const int block = setting == "full" ? 64 : 128;
    if (tells) CollectSpent::note_tuned(setting, "scan: BLOCK=" + std::to_string(block));
    const Outcome outcome = base(a, c);
    if (block == wrong && a.o.size() > 0) a.o.data[0] += 3.0F;
    return outcome;
  };
  return row;
}

// Which of two configurations is wrong shows in a process of its own, and the others keep their setting.
TEST(Campaign, AFailureIsRepeatedWithTheOtherSettingOfItsTuners) {
  for (const int threads : {1, 3}) {
    for (const Record& r : records_of(tuned(128), small_cases(4), threads)) {
      EXPECT_EQ(r.judgement.verdict, Verdict::fail);
      EXPECT_EQ(r.tuned, "first: scan: BLOCK=128");
      EXPECT_EQ(r.retuned, "full: pass: scan: BLOCK=64");
      EXPECT_NE(r.judgement.reason.find("with --autotune full it passes"), std::string::npos)
          << r.judgement.reason;
    }
  }
  EXPECT_EQ(std::getenv(kAutotuneVariable), nullptr);
  for (const Record& r : records_of(tuned(64), small_cases(2))) EXPECT_EQ(r.judgement.verdict, Verdict::pass);
  ::setenv(kAutotuneVariable, "full", 1);
  const std::vector<Record> best = records_of(tuned(64), small_cases(2));
  ::unsetenv(kAutotuneVariable);
  for (const Record& r : best) EXPECT_EQ(r.retuned, "first: pass: scan: BLOCK=128");
  // A kernel that tuned nothing is not repeated.
  for (const Record& r : records_of(tuned(128, false), small_cases(2))) {
    EXPECT_EQ(r.judgement.verdict, Verdict::fail);
    EXPECT_EQ(r.retuned, "");
    EXPECT_EQ(r.judgement.reason.find("autotune"), std::string::npos);
  }
}

// A signal to the group ends the campaign, not its cases.
TEST(Campaign, ASignalToTheGroupMakesNoCaseFlaky) {
  static volatile bool told = false;
  told = false;
  std::signal(SIGTERM, [](int) { told = true; });
  const Kernel slow = damaged("slow", [](const Arguments&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return false;
  });
  KernelTable table(kernels());
  table.add(std::span(&slow, 1));
  std::vector<Case> cases = small_cases(40);
  for (Case& c : cases) c.kernel = slow.name;
  std::int64_t finished = 0;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record& r) {
    EXPECT_EQ(r.judgement.verdict, Verdict::pass) << r.judgement.reason;
    if (++finished != 3) return;
    // To this process and its workers, as a shell or CI does.
    const pid_t self = ::getpid();
    std::ifstream children("/proc/self/task/" + std::to_string(self) + "/children");
    for (pid_t child = 0; children >> child;) ::kill(child, SIGTERM);
    ::kill(self, SIGTERM);
  };
  const CampaignResult result = run_campaign(cases, table, {2, 0.0}, observer, [] { return told; });
  std::signal(SIGTERM, SIG_DFL);
  EXPECT_EQ(result.run, finished);
  EXPECT_GT(result.not_started, 30);
}

/// Returns "deadly.retention.chunked" together with the CPU kernels: dv = 5 dies, 6 hangs, 7 exits, 8 throws.
KernelTable deadly_table() {
  static Kernel base;
  base = KernelTable(kernels()).named("cpu.retention.chunked");
  Kernel row = base;
  row.name = "deadly.retention.chunked";
  row.run = [](const Arguments& a, const Contract& c) {
    std::signal(SIGSEGV, SIG_DFL);
    const std::int64_t dv = a.v.shape[3];
    if (dv == 5) std::raise(SIGSEGV);
    while (dv == 6) std::this_thread::sleep_for(std::chrono::seconds(1));
    if (dv == 7) std::_Exit(0);
    if (dv == 8) throw std::runtime_error("boom");
    return base.run(a, c);
  };
  KernelTable table(kernels());
  table.add(std::span(&row, 1));
  return table;
}

TEST(Campaign, WhateverAKernelDoesIsTheVerdictOfItsCase) {
  const KernelTable table = deadly_table();
  std::vector<Case> cases = small_cases(48);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].kernel = "deadly.retention.chunked";
    if (i % 12 == 3) cases[i].dv = 5 + static_cast<std::int64_t>(i / 12);
  }
  for (const int threads : {1, 3}) {
    std::map<std::size_t, Judgement> out;
    CampaignObserver observer;
    observer.finished = [&](std::size_t i, const Record& r) {
      EXPECT_TRUE(out.emplace(i, r.judgement).second);
    };
    EXPECT_EQ(run_campaign(cases, table, {threads, 0.0, 1.0}, observer).run, 48);
    ASSERT_EQ(out.size(), 48U);
    for (const auto& [i, j] : out) {
      const Verdict wanted = cases[i].dv == 4   ? Verdict::pass
                             : cases[i].dv == 6 ? Verdict::timeout
                                                : Verdict::crash;
      EXPECT_EQ(j.verdict, wanted) << "dv=" << cases[i].dv << ": " << j.reason;
    }
    EXPECT_NE(out.at(3).reason.find("signal 11"), std::string::npos) << out.at(3).reason;
    EXPECT_NE(out.at(27).reason.find("code 0"), std::string::npos) << out.at(27).reason;
    EXPECT_EQ(out.at(39).gate, "exception");
  }
}

// One that dies each time does not take all day, and the other kernels are judged.
TEST(Campaign, AKernelThatCostsTooMuchIsRunNoFurther) {
  const KernelTable table = deadly_table();
  std::vector<Case> cases = small_cases(100);
  for (std::size_t i = 0; i < cases.size(); i += 2) {
    cases[i].kernel = "deadly.retention.chunked";
    cases[i].dv = 7;
  }
  for (const int threads : {1, 2}) {
    std::map<Verdict, std::int64_t> count;
    CampaignObserver observer;
    observer.finished = [&](std::size_t i, const Record& r) {
      ++count[r.judgement.verdict];
      EXPECT_EQ(r.judgement.verdict == Verdict::pass, i % 2 == 1) << i << ": " << r.judgement.reason;
      if (r.judgement.verdict == Verdict::skipped) {
        EXPECT_NE(r.judgement.reason.find("deadly.retention.chunked"), std::string::npos);
      }
    };
    EXPECT_EQ(run_campaign(cases, table, {threads, 0.0, 5.0}, observer).run, 100);
    EXPECT_GE(count[Verdict::crash], kMostLostProcesses);
    EXPECT_LE(count[Verdict::crash], kMostLostProcesses + threads);
    EXPECT_EQ(count[Verdict::crash] + count[Verdict::skipped], 50);
  }
}

TEST(Campaign, StopsWhenToldAndLosesNothing) {
  const KernelTable table(kernels());
  std::int64_t finished = 0;
  CampaignObserver observer;
  observer.finished = [&](std::size_t, const Record&) { ++finished; };
  const CampaignResult result =
      run_campaign(small_cases(500), table, {2, 0.0}, observer, [&] { return finished >= 10; });
  EXPECT_EQ(result.run, finished);
  EXPECT_GE(finished, 10);
  EXPECT_LE(finished, 12);
  EXPECT_EQ(result.not_started, 500 - finished);
}

Record record(Verdict verdict, std::string gate, std::string device = "cpu", double seconds = 0.0) {
  Record r;
  r.kernel = "mine";
  r.device = std::move(device);
  r.judgement.verdict = verdict;
  r.judgement.gate = std::move(gate);
  r.seconds = seconds;
  return r;
}

TEST(Losses, CountWhatCostsAProcess) {
  const auto skipped_after = [](std::int64_t count, const Record& lost) {
    Losses losses;
    for (std::int64_t i = 0; i < count; ++i) losses.add(lost);
    Record next = record(Verdict::pass, "row");
    Record other = next;
    other.kernel = "another";
    EXPECT_FALSE(losses.skip(other));
    return losses.skip(next);
  };
  for (const Record& lost :
       {record(Verdict::crash, "signal"), record(Verdict::crash, "exception", "cuda"),
        record(Verdict::crash, "device", "cuda"), record(Verdict::timeout, "", "cpu", 1.0),
        record(Verdict::flaky, "signal"), record(Verdict::flaky, "timeout")}) {
    EXPECT_FALSE(skipped_after(kMostLostProcesses - 1, lost)) << lost.judgement.gate;
    EXPECT_TRUE(skipped_after(kMostLostProcesses, lost)) << lost.judgement.gate;
  }
  for (const Record& kept : {record(Verdict::crash, "exception"), record(Verdict::flaky, "row"),
                             record(Verdict::fail, "signal"), record(Verdict::pass, "")}) {
    EXPECT_FALSE(skipped_after(1000, kept));
  }
  EXPECT_FALSE(skipped_after(5, record(Verdict::timeout, "", "cpu", 600.0)));
  EXPECT_TRUE(skipped_after(6, record(Verdict::timeout, "", "cpu", 600.0))) << "an hour is enough";
}

}  // namespace
}  // namespace samestate
