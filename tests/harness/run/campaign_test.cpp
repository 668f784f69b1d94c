#include "harness/run/campaign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>

#include "fuzz/plan.h"
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

// Wrong each time is a failure, wrong at times is flaky.
TEST(Campaign, AFailureThatDoesNotComeAgainIsFlaky) {
  static int calls = 0;
  static Kernel base;
  const KernelTable cpu(kernels());
  base = cpu.named("cpu.retention.chunked");
  Kernel rows[2] = {base, base};
  rows[0].name = "always.retention.chunked";
  rows[0].run = [](const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    a.o.data[0] += 3.0F;
    return outcome;
  };
  rows[1].name = "once.retention.chunked";
  rows[1].run = [](const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    if (calls++ == 0) a.o.data[0] += 3.0F;
    return outcome;
  };
  KernelTable table(kernels());
  table.add(rows);
  for (const auto& [name, verdict] :
       {std::pair{"always", Verdict::fail}, {"once", Verdict::flaky}, {"once", Verdict::pass}}) {
    std::vector<Case> cases = small_cases(1);
    cases[0].kernel = name + std::string(".retention.chunked");
    CampaignObserver observer;
    observer.finished = [&, wanted = verdict](std::size_t, const Record& r) {
      EXPECT_EQ(r.judgement.verdict, wanted) << r.kernel << ": " << r.judgement.reason;
    };
    EXPECT_EQ(run_campaign(cases, table, {1, 0.0}, observer).run, 1);
  }
}

}  // namespace
}  // namespace samestate
