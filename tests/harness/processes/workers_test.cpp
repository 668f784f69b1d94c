#include "harness/processes/workers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <fstream>
#include <functional>
#include <iterator>

#include <csignal>
#include <cstdlib>
#include <map>
#include <new>
#include <thread>
#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

Case case_of_seed(std::int64_t seed) {
  Case c = parse_case("v1 retention T=4 dk=2");
  c.seed = static_cast<std::uint64_t>(seed);
  return c;
}

/// The damage that a kernel leaves behind in its process: the state of a device that every later call finds.
bool device_broken = false;

/// Seed 15 breaks the device, which its case reports as a crash; where it is broken, every case fails.
CaseResult on_device(const Case& c) {
  CaseResult f;
  f.judgement.verdict = device_broken ? Verdict::fail : Verdict::pass;
  f.judgement.ratio = static_cast<double>(c.seed);
  if (c.seed == 15) {
    device_broken = true;
    f.judgement.verdict = Verdict::crash;
    f.judgement.reason = "the kernel threw: cudaMemcpy: an illegal memory access was encountered";
  }
  return f;
}

/// Seeds 10 and 11 die, 12 exits, 13 hangs; the others pass with their seed as ratio.
CaseResult deadly(const Case& c) {
  if (c.seed == 10) std::raise(SIGSEGV);
  if (c.seed == 11) std::abort();
  if (c.seed == 12) ::_exit(7);
  while (c.seed == 13) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (c.seed == 14) throw Error("no such\nthing");
  CaseResult f;
  f.judgement.verdict = Verdict::pass;
  f.judgement.ratio = static_cast<double>(c.seed);
  return f;
}

std::map<std::int64_t, Judgement> run_all(int workers, std::int64_t last) {
  // The dying children write no core and no sanitizer report.
  Workers pool(
      [](const Case& c) {
        std::signal(SIGSEGV, SIG_DFL);
        std::signal(SIGABRT, SIG_DFL);
        return deadly(c);
      },
      {workers, 0.5});
  std::map<std::int64_t, Judgement> out;
  std::int64_t next = 0;
  std::map<std::int64_t, int> started;
  pool.run(
      [&](std::int64_t) -> std::optional<Task> {
        if (next > last) return std::nullopt;
        const std::int64_t i = next++;
        return Task{i, case_of_seed(i)};
      },
      {[&](const Task& task) { ++started[task.index]; },
       [&](const Task& task, const CaseResult& f) {
         EXPECT_EQ(started[task.index], 1);
         EXPECT_TRUE(out.emplace(task.index, f.judgement).second);
       }});
  return out;
}

TEST(Workers, ACrashOrAHangIsTheVerdictOfItsCaseAlone) {
  for (const int workers : {1, 3}) {
    const auto out = run_all(workers, 13);
    ASSERT_EQ(out.size(), 14U);
    for (std::int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(out.at(i).verdict, Verdict::pass) << i;
      EXPECT_EQ(out.at(i).ratio, static_cast<double>(i));
    }
    for (const std::int64_t i : {10, 11, 12}) EXPECT_EQ(out.at(i).verdict, Verdict::crash) << i;
    EXPECT_NE(out.at(10).reason.find("signal 11"), std::string::npos) << out.at(10).reason;
    EXPECT_NE(out.at(11).reason.find("signal 6"), std::string::npos) << out.at(11).reason;
    EXPECT_NE(out.at(12).reason.find("code 7"), std::string::npos) << out.at(12).reason;
    EXPECT_EQ(out.at(10).gate, "signal");
    EXPECT_EQ(out.at(12).gate, "exit");
    EXPECT_EQ(out.at(13).verdict, Verdict::timeout);
    EXPECT_NE(out.at(13).reason.find("0.5 s"), std::string::npos) << out.at(13).reason;
  }
}

TEST(Workers, GoOnAfterACrash) {
  Workers pool(deadly, {1, 5.0});
  EXPECT_EQ(pool.run_one(case_of_seed(3)).judgement.verdict, Verdict::pass);
  EXPECT_EQ(pool.run_one(case_of_seed(12)).judgement.verdict, Verdict::crash);
  EXPECT_EQ(pool.run_one(case_of_seed(4)).judgement.ratio, 4.0);
}

// The runner counts its calls: the remains of a subject are gone for the next one.
TEST(Workers, GiveEachSubjectAProcess) {
  int calls = 0;
  Workers pool(
      [&](std::int64_t subject, const Case&) {
        CaseResult f;
        f.judgement.ratio = static_cast<double>(100 * subject + ++calls);
        return f;
      },
      {1, 5.0});
  std::vector<std::int64_t> served;
  std::vector<double> ratios;
  const std::vector<std::int64_t> subjects{3, 3, 4, 3};
  pool.run(
      [&](std::int64_t last) -> std::optional<Task> {
        const std::size_t i = served.size();
        if (i == subjects.size()) return std::nullopt;
        served.push_back(last);
        return Task{static_cast<std::int64_t>(i), case_of_seed(0), subjects[i]};
      },
      {{}, [&](const Task&, const CaseResult& f) { ratios.push_back(f.judgement.ratio); }});
  EXPECT_EQ(served, (std::vector<std::int64_t>{Workers::kNoSubject, 3, 3, 4}));
  EXPECT_EQ(ratios, (std::vector<double>{301, 302, 401, 301}));
  EXPECT_EQ(calls, 0);
}

TEST(Workers, HoldNoMoreMemoryThanTheyMay) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's shadow counts as data, so there is no limit";
#endif
  const auto allocates = [](const Case& c) {
    CaseResult f;
    try {
      f.judgement.ratio = static_cast<double>(std::vector<char>(c.seed << 20).size());
    } catch (const std::bad_alloc&) {
      f.judgement.verdict = Verdict::crash;
    }
    return f;
  };
  Workers pool(allocates, {1, 5.0, std::uint64_t{192} << 20});
  EXPECT_NE(pool.run_one(case_of_seed(16)).judgement.verdict, Verdict::crash);
  EXPECT_EQ(pool.run_one(case_of_seed(256)).judgement.verdict, Verdict::crash);
  Workers free(allocates, {1, 5.0});
  EXPECT_NE(free.run_one(case_of_seed(256)).judgement.verdict, Verdict::crash);
}

// One crash, not a cascade of failures: the next case finds a process of its own.
TEST(Workers, AWorkerWhoseCaseCrashedIsReplaced) {
  for (const int workers : {1, 2}) {
    Workers pool(on_device, {workers, 5.0});
    std::map<std::int64_t, Judgement> out;
    std::int64_t next = 10;
    pool.run(
        [&](std::int64_t) -> std::optional<Task> {
          if (next == 40) return std::nullopt;
          const std::int64_t i = next++;
          return Task{i, case_of_seed(i % 10 == 5 ? 15 : i)};
        },
        {{}, [&](const Task& task, const CaseResult& f) { out[task.index] = f.judgement; }});
    ASSERT_EQ(out.size(), 30U);
    for (const auto& [index, j] : out) {
      EXPECT_EQ(j.verdict, index % 10 == 5 ? Verdict::crash : Verdict::pass) << index << ": " << j.reason;
      if (index % 10 == 5) {
        EXPECT_NE(j.reason.find("illegal memory access"), std::string::npos) << j.reason;
      }
    }
  }
  EXPECT_FALSE(device_broken) << "a case ran in the caller's process";
}

TEST(Workers, WhatIsNoCaseIsAnErrorOfTheSearch) {
  Workers pool(deadly, {1, 5.0});
  EXPECT_THROW((void)pool.run_one(case_of_seed(14)), Error);
  EXPECT_EQ(pool.run_one(case_of_seed(5)).judgement.ratio, 5.0);
  EXPECT_THROW(Workers(deadly, {0, 5.0}), Error);
}

TEST(Workers, DoNotOutliveTheirOwner) {
  // A worker owns no descriptor of its owner's, so that it says who it is in memory that both share.
  void* const shared =
      ::mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const worker = new (shared) std::atomic<pid_t>(0);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    Workers pool(
        [&](const Case&) -> CaseResult {
          worker->store(::getpid());
          while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
        },
        {1, 60.0});
    (void)pool.run_one(case_of_seed(0));
    ::_exit(0);
  }
  const auto within = [](const std::function<bool()>& holds) {
    for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  };
  ASSERT_TRUE(within([&] { return worker->load() != 0; }));
  ::kill(owner, SIGKILL);
  ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
  // The process is gone, or is a zombie for which no parent has waited.
  EXPECT_TRUE(within([&] {
    std::ifstream status(fmt::format("/proc/{}/stat", worker->load()));
    std::string text((std::istreambuf_iterator<char>(status)), {});
    return text.empty() || text.find(") Z ") != std::string::npos;
  }));
  ::munmap(shared, sizeof(std::atomic<pid_t>));
}

}  // namespace
}  // namespace samestate
