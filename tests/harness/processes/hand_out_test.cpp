/// The hand-out on ranks that a test has without MPI: the results of a pool, whatever the ranks and their processes do.
#include "harness/processes/hand_out.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "tests/facts.h"

#include "reference/error.h"
#include "tests/harness/processes/rank_hub.h"

namespace samestate {
namespace {

using Kind = JobResult::Kind;
using testing::RankHub;
using namespace std::chrono_literals;

const RankHello kHello{"build", "gate", "here", ""};

/// Jobs that ran, of all processes: made before the first of them.
std::atomic<int>& jobs_run = *static_cast<std::atomic<int>*>(
    ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));

Answer answer_to(const std::string& text) {
  ++jobs_run;
  if (text == "segv") std::raise(SIGSEGV);
  if (text == "error") throw Error("no such thing");
  if (text == "end the rank") {
    std::this_thread::sleep_for(150ms);  // its report is under way
    ::kill(::getppid(), SIGKILL);
    std::this_thread::sleep_for(10s);
  }
  if (text == "slow") std::this_thread::sleep_for(5ms);
  return {text + "!", {}};
}
const JobRunner kRun = [](std::int64_t, const std::string& text) { return answer_to(text); };

void serve(RankLink& link) { serve_rank(link, kHello, kRun); }

struct Outcome {
  std::map<std::int64_t, JobResult> results;
  std::map<std::int64_t, int> started, finished;
  std::set<std::uint64_t> ranks;  ///< ranks that finished something, by the numbers of their processes
};

/// Runs the jobs, in order; `each` is called after each result.
Outcome run_jobs(HandOut& hand_out, const std::vector<std::string>& texts, HandOutOptions options = {},
                 const std::function<void(Outcome&)>& each = {}) {
  jobs_run = 0;
  WorkerOptions workers;
  workers.timeout = 20.0;
  Pool pool(kRun, workers);
  Outcome out;
  std::size_t given = 0;
  JobObserver observer;
  observer.started = [&](const Job& job) { ++out.started[job.index]; };
  observer.finished = [&](const Job& job, JobResult result) {
    ++out.finished[job.index];
    out.ranks.insert(result.process >> 40);
    out.results[job.index] = std::move(result);
    if (each) each(out);
  };
  hand_out.run(
      pool,
      [&](std::int64_t) -> std::optional<Job> {
        if (given == texts.size() || (options.ending && options.ending())) return std::nullopt;
        const auto index = static_cast<std::int64_t>(given);
        return Job{index, texts[given++], 0};
      },
      observer, options);
  return out;
}

void expect_each_once(const Outcome& out, std::size_t count) {
  EXPECT_EQ(out.results.size(), count);
  for (const auto& [index, times] : out.started) EXPECT_EQ(times, 1) << index;
  for (const auto& [index, times] : out.finished) EXPECT_EQ(times, 1) << index;
}

TEST(HandOut, RunsEveryJobOnceAndOnAllRanks) {
  RankHub hub(3, serve);
  HandOut hand_out(hub.link(), kHello, [](const std::string& sentence) { ADD_FAILURE() << sentence; });
  const std::vector<std::string> texts(300, "slow");
  std::set<std::uint64_t> ranks;
  // Ranks serve one run after the other; on a busy machine one may come late to the first.
  for (int again = 0; again < 2 || (again < 10 && ranks.size() < 3); ++again) {
    const Outcome out = run_jobs(hand_out, texts);
    expect_each_once(out, texts.size());
    for (const auto& [index, result] : out.results) EXPECT_EQ(result.text, "slow!");
    EXPECT_EQ(jobs_run, 300);
    ranks.insert(out.ranks.begin(), out.ranks.end());
  }
  EXPECT_EQ(ranks, (std::set<std::uint64_t>{0, 1, 2}));
}

TEST(HandOut, WhereTheRanksAreManyRankZeroRunsNone) {
  RankHub hub(HandOut::kMostJudging + 1, serve);
  HandOut hand_out(hub.link(), kHello);
  const Outcome out = run_jobs(hand_out, std::vector<std::string>(200, "slow"));
  expect_each_once(out, 200);
  EXPECT_FALSE(out.ranks.contains(0));
}

TEST(HandOut, ACrashIsWhatCameOfItsJobOnItsRank) {
  RankHub hub(3, serve);
  HandOut hand_out(hub.link(), kHello);
  std::vector<std::string> texts(60, "slow");
  for (const std::size_t i : {3U, 17U, 40U}) texts[i] = "segv";
  const Outcome out = run_jobs(hand_out, texts);
  expect_each_once(out, texts.size());
  for (const auto& [index, result] : out.results) {
    const bool crashes = texts[static_cast<std::size_t>(index)] == "segv";
    EXPECT_EQ(result.kind, crashes ? Kind::died : Kind::answered) << index;
    if (crashes) {
      EXPECT_EQ(result.how, "signal");
    }
  }
}

TEST(HandOut, WhatALostRankHadIsHandedOutAgain) {
  RankHub hub(3, serve);
  std::vector<std::string> said;
  HandOut hand_out(hub.link(), kHello, [&](const std::string& sentence) { said.push_back(sentence); });
  const Outcome out = run_jobs(hand_out, std::vector<std::string>(200, "slow"), {}, [&](Outcome& so_far) {
    if (so_far.results.size() == 20) ::kill(hub.pid(1), SIGKILL);
  });
  expect_each_once(out, 200);
  for (const auto& [index, result] : out.results) EXPECT_EQ(result.kind, Kind::answered);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("rank 1 on here is lost (its process is gone)"), std::string::npos) << said[0];
}

TEST(HandOut, WithoutItsWireRankZeroGoesOnAlone) {
  RankHub hub(3, serve);
  HandOut hand_out(hub.link(), kHello);
  const Outcome out = run_jobs(hand_out, std::vector<std::string>(100, "slow"), {}, [&](Outcome& so_far) {
    if (so_far.results.size() == 20) ::kill(hub.hub(), SIGKILL);
  });
  expect_each_once(out, 100);
}

TEST(HandOut, AJobThatEndsItsRanksIsWhatDied) {
  RankHub hub(HandOut::kMostJudging + 1, serve);  // none of them is the test's process
  HandOut hand_out(hub.link(), kHello);
  std::vector<std::string> texts(40, "slow");
  texts[5] = "end the rank";
  const Outcome out = run_jobs(hand_out, texts);
  expect_each_once(out, texts.size());
  EXPECT_EQ(out.results.at(5).kind, Kind::died);
  EXPECT_EQ(out.results.at(5).how, "rank");
  EXPECT_EQ(out.results.at(5).reason.substr(0, 38), "3 ranks were lost while it ran on them");
}

TEST(HandOut, WhatWasNotBegunIsLeftWhereTheRunEnds) {
  RankHub hub(3, serve);
  HandOut hand_out(hub.link(), kHello);
  bool ending = false;
  HandOutOptions options;
  options.ending = [&] { return ending; };
  const Outcome out = run_jobs(hand_out, std::vector<std::string>(2000, "slow"), options,
                               [&](Outcome& so_far) { ending = so_far.results.size() >= 150; });
  EXPECT_LT(out.results.size(), 400U);
  EXPECT_EQ(out.started.size(), out.finished.size());
  EXPECT_EQ(jobs_run, static_cast<int>(out.results.size()));
}

TEST(HandOut, AfterALostProcessTheRunDecidesAboutTheRest) {
  RankHub hub(2, serve);
  HandOut hand_out(hub.link(), kHello);
  std::int64_t refused = 0;
  HandOutOptions options;
  options.again = [&](const Job& job) {
    if (job.text != "segv") return true;
    ++refused;
    return false;
  };
  // The first job of a piece ends a process; those that waited after it come back.
  std::vector<std::string> texts(100, "slow");
  for (std::size_t i = 60; i < texts.size(); ++i) texts[i] = "segv";
  const Outcome out = run_jobs(hand_out, texts, options);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(static_cast<std::int64_t>(out.results.size()) + refused, 100);
}

/// The message of the Error of a run whose ranks live so.
std::string error_of(const RankHub::Life& live, const std::string& text = "slow") {
  RankHub hub(HandOut::kMostJudging + 1, live);
  HandOut hand_out(hub.link(), kHello);
  try {
    (void)run_jobs(hand_out, std::vector<std::string>(500, text));
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(HandOut, RanksThatAreNotAlikeAreRefusedByNumber) {
  const auto as = [](RankHello hello) {
    return [hello](RankLink& link) { serve_rank(link, link.rank() == 2 ? hello : kHello, kRun); };
  };
  EXPECT_EQ(lacking(error_of(as({"build", "gate --seed 2", "there", ""})),
                    "rank 2 there: 'gate --seed 2', rank 0 'gate'"),
            "");
  EXPECT_EQ(lacking(error_of(as({"other", "gate", "there", ""})), "rank 2 there: other, rank 0 build"), "");
  EXPECT_EQ(error_of(as({"build", "gate", "there", "mine.so: not there"})),
            "rank 2 on there: mine.so: not there");
}

TEST(HandOut, AnErrorOfARunnerIsThatOfTheRun) {
  const std::string said = error_of(serve, "error");
  EXPECT_EQ(said.substr(0, 5), "rank ");
  EXPECT_NE(said.find(": no such thing"), std::string::npos) << said;
}

}  // namespace
}  // namespace samestate
