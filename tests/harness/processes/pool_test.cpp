#include "harness/processes/pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "reference/error.h"

namespace samestate {
namespace {

using Kind = JobResult::Kind;
using namespace std::chrono_literals;

/// Numbers that all processes of a test see.
struct Shared {
  std::atomic<int> runs[100];
};
Shared& shared() {
  static auto* memory = static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *memory;
}

/// Jobs under way in this process.
std::atomic<int> under_way{0};
/// The damage that jobs leave behind in their process.
std::atomic<bool> process_damaged{false};

bool met_another() {
  for (int i = 0; i < 200 && under_way < 2; ++i) std::this_thread::sleep_for(5ms);
  return under_way >= 2;
}

/// Recursion without an end that the compiler sees.
__attribute__((noinline)) int deeper(volatile int* from) {
  volatile int here[1000] = {*from};
  return here[0] < 0 ? 0 : deeper(here) + here[999];
}

Answer act(const std::string& text) {
  if (text == "segv") std::raise(SIGSEGV);
  if (text == "abort") std::abort();
  if (text == "stop") std::raise(SIGSTOP);
  if (text == "write") (void)!::write(3, std::string(64, '\xff').data(), 64);
  if (text == "close") ::close_range(3, ~0U, 0);
  while (text == "close and hang") {
    ::close_range(3, ~0U, 0);
    std::this_thread::sleep_for(1s);
  }
  if (text == "exit") std::exit(0);
  if (text == "_exit") ::_exit(3);
  if (text == "stack") {
    volatile int none = 0;
    return {std::to_string(deeper(&none)), {}};
  }
  if (text == "heap") {
    // Past its end, over what the allocator keeps there and looks at when the block is given back.
    std::vector<char> block(5000);
    volatile char* at = block.data();
    for (int i = 5000; i < 5064; ++i) at[i] = 1;
  }
  while (text == "hang") std::this_thread::sleep_for(1s);
  if (text == "pair segv" && met_another()) std::raise(SIGSEGV);
  while (text == "pair hang" && met_another()) std::this_thread::sleep_for(1s);
  if (text == "meet") {
    static std::atomic<int> arrived{0};
    ++arrived;
    for (int i = 0; i < 200 && arrived < 2; ++i) std::this_thread::sleep_for(5ms);
    return {arrived < 2 ? "alone" : "met", {}};
  }
  if (text == "leaves a child" && ::fork() == 0) {
    ::setsid();
    for (const int signal : {SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
    if (const pid_t inner = ::fork(); inner > 0) {
      shared().runs[0] = inner;
      shared().runs[1] = ::getpid();
    }
    std::this_thread::sleep_for(60s);
    ::_exit(0);
  }
  while (text == "leaves a child" && shared().runs[1] == 0) std::this_thread::sleep_for(1ms);
  if (text == "pid") return {std::to_string(::getpid()), {}};
  if (text == "error") throw Error("no such\nthing");
  if (text == "internal") throw std::runtime_error("a defect");
  if (text == "damage") process_damaged = true;
  if (text == "frail" && process_damaged) ::_exit(9);
  if (text == "allocating" && process_damaged) throw std::length_error("vector::_M_default_append");
  if (text == "break") {
    process_damaged = true;
    return {text, "the device is gone"};
  }
  if (text == "device" && process_damaged) return {"dead", "the device is gone"};
  if (text == "time bomb") {
    std::thread([] {
      std::this_thread::sleep_for(20ms);
      ::_exit(1);
    }).detach();
  }
  std::this_thread::sleep_for(2ms);
  return {text, {}};
}

Answer run(std::int64_t, const std::string& text) {
  // The dying children write no sanitizer report.
  for (const int signal : {SIGSEGV, SIGABRT}) std::signal(signal, SIG_DFL);
  ++under_way;
  Answer answer = act(text);
  --under_way;
  return answer;
}

WorkerOptions options(int workers, int threads, double timeout = 10.0, bool confirm = false) {
  WorkerOptions o;
  o.workers = workers;
  o.threads = threads;
  o.timeout = timeout;
  o.confirm = confirm;
  return o;
}

/// Results by number, each of which comes once, as the start does.
std::vector<JobResult> run_all(Pool& pool, const std::vector<std::string>& texts) {
  std::vector<JobResult> out(texts.size());
  std::vector<int> started(texts.size()), finished(texts.size());
  std::size_t next = 0;
  pool.run(
      [&](std::int64_t) -> std::optional<Job> {
        if (next == texts.size()) return std::nullopt;
        const std::size_t i = next++;
        return Job{static_cast<std::int64_t>(i), texts[i]};
      },
      {[&](const Job& job) { ++started[static_cast<std::size_t>(job.index)]; },
       [&](const Job& job, JobResult result) {
         const auto i = static_cast<std::size_t>(job.index);
         EXPECT_EQ(job.text, texts[i]);
         ++finished[i];
         out[i] = std::move(result);
       }});
  EXPECT_EQ(started, std::vector<int>(texts.size(), 1));
  EXPECT_EQ(finished, std::vector<int>(texts.size(), 1));
  return out;
}

std::vector<JobResult> run_all(const WorkerOptions& options, const std::vector<std::string>& texts) {
  Pool pool(run, options);
  return run_all(pool, texts);
}

// Its timeout would be waited for else.
TEST(Pool, AStoppedProcessIsACrash) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<JobResult> results = run_all(options(1, 1, 100.0, true), {"a", "stop", "b"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(results[1].kind, Kind::died);
  EXPECT_EQ(results[1].how, "signal");
  EXPECT_NE(results[1].reason.find("was stopped by signal 19"), std::string::npos) << results[1].reason;
  EXPECT_EQ(results[2].text, "b");
}

// No code of the process is told as one that the kernel chose.
TEST(Pool, AClosedOrDamagedChannelIsNamed) {
  for (const std::string how : {"close", "close and hang", "write"}) {
    const JobResult lost = run_all(options(1, 1), {how})[0];
    EXPECT_EQ(lost.kind, Kind::died);
    const char* did = how == "write" ? "wrote into the channel" : "closed the channel";
    EXPECT_NE(lost.reason.find(did), std::string::npos) << lost.reason;
  }
}

// Whatever session it made: it would hold the caller's output open, and one a case would fill the machine.
TEST(Pool, WhatAProcessLeavesBehindEndsWithIt) {
  for (const int i : {0, 1}) shared().runs[i] = 0;
  Pool other(run, options(1, 1));
  const std::string goes_on = run_all(other, {"pid"})[0].text;
  EXPECT_EQ(run_all(options(1, 1), {"leaves a child"})[0].text, "leaves a child");
  for (const int i : {0, 1}) {
    ASSERT_GT(shared().runs[i], 0);
    EXPECT_EQ(::kill(shared().runs[i], 0), -1) << "process " << i << " goes on";
  }
  EXPECT_EQ(run_all(other, {"pid"})[0].text, goes_on) << "a process that still runs was ended too";
}

// Jobs that are running when the caller stops are abandoned at once, and the pool is as new.
TEST(Pool, AStopDoesNotWaitForWhatIsUnderWay) {
  Pool pool(run, options(1, 2, 30.0));
  std::size_t given = 0;
  int finished = 0;
  bool stop = false;
  const auto begin = std::chrono::steady_clock::now();
  pool.run(
      [&](std::int64_t) -> std::optional<Job> {
        if (stop || given == 2) return std::nullopt;
        return Job{0, given++ == 0 ? "well" : "hang"};
      },
      {{},
       [&](const Job& job, const JobResult&) {
         EXPECT_EQ(job.text, "well");
         ++finished;
         stop = true;
       },
       [&] { return stop; }});
  EXPECT_EQ(finished, 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(run_all(pool, {"well"}).front().text, "well");
}

TEST(Pool, AnswersComeBackByteForByte) {
  std::string odd("line\nend\0tab\t!", 14);
  const std::string large(3 << 20, 'x');
  const auto out = run_all(options(1, 2), {odd, large, ""});
  EXPECT_EQ(out[0].text, odd);
  EXPECT_EQ(out[1].text, large);
  EXPECT_EQ(out[2].text, "");
}

TEST(Pool, ThreadsOfAProcessMeet) {
  for (const JobResult& r : run_all(options(1, 2), {"meet", "meet"})) EXPECT_EQ(r.text, "met");
  for (const JobResult& r : run_all(options(2, 1), {"meet", "meet"})) EXPECT_EQ(r.text, "alone");
}

TEST(Pool, ALossIsOfTheJobThatItComesFrom) {
  const std::map<std::string, std::string> deadly = {{"segv", "signal 11"},
                                                     {"abort", "signal 6"},
                                                     {"exit", "code 0"},
                                                     {"_exit", "code 3"},
                                                     {"stack", "signal 11"},
#ifndef __SANITIZE_ADDRESS__
                                                     {"heap", "signal 6"},
#endif
                                                     {"hang", "no answer after 0.6 s"}};
  std::vector<std::string> texts;
  for (const auto& [text, reason] : deadly) {
    for (int i = 0; i < 9; ++i) texts.push_back("well");
    texts.push_back(text);
  }
  for (int i = 0; i < 20; ++i) texts.push_back("well");
  for (const auto& [workers, threads] : {std::pair{1, 1}, {1, 4}, {2, 1}, {2, 2}}) {
    const auto out = run_all(options(workers, threads, 0.6, true), texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      SCOPED_TRACE(texts[i] + ", threads " + std::to_string(threads));
      if (texts[i] == "well") {
        EXPECT_EQ(out[i].kind, Kind::answered) << out[i].reason;
        EXPECT_EQ(out[i].text, "well");
        continue;
      }
      EXPECT_EQ(out[i].kind, texts[i] == "hang" ? Kind::hung : Kind::died);
      EXPECT_NE(out[i].reason.find(deadly.at(texts[i])), std::string::npos) << out[i].reason;
    }
  }
}

TEST(Pool, WhatNobodyRepeatsAloneIsUnrepeatedAndNamesWhoWasThere) {
  for (const std::string text : {"pair segv", "pair hang"}) {
    const auto out = run_all(options(1, 2, 3.0), {text, text, "well", "well"});
    for (const std::size_t i : {0, 1}) {
      EXPECT_EQ(out[i].kind, Kind::unrepeated) << text;
      EXPECT_EQ(out[i].text, text) << "what it says alone";
      EXPECT_EQ(out[i].beside, std::vector<std::string>{text});
      EXPECT_NE(out[i].reason.find(text == "pair segv" ? "signal 11" : "no answer"), std::string::npos);
    }
    EXPECT_EQ(out[2].kind, Kind::answered);
    EXPECT_EQ(out[3].kind, Kind::answered);
  }
}

// The others go on in another process meanwhile, and are not run twice.
TEST(Pool, AHangCostsItsTimeoutOnce) {
  const auto counted = [](std::int64_t subject, const std::string& text) {
    ++shared().runs[std::stoi(text)];
    return run(subject, text == "5" ? "hang" : "well");
  };
  for (std::atomic<int>& runs : shared().runs) runs = 0;
  std::vector<std::string> texts;
  for (int i = 0; i < 60; ++i) texts.push_back(std::to_string(i));
  const auto begin = std::chrono::steady_clock::now();
  Pool pool(counted, options(1, 2, 2.0, true));
  const auto out = run_all(pool, texts);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 3500ms);
  EXPECT_EQ(out[5].kind, Kind::hung);
  for (int i = 0; i < 60; ++i) EXPECT_EQ(shared().runs[i], 1) << i;
}

TEST(Pool, ABrokenProcessIsReplacedAndOneBeatsNoneIsBlamed) {
  for (const int threads : {1, 4}) {
    std::vector<std::string> texts(40, "device");
    for (const std::size_t i : {6, 7, 30}) texts[i] = "break";
    const auto out = run_all(options(1, threads), texts);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(out[i].kind, Kind::answered) << i;
      EXPECT_EQ(out[i].text, texts[i]) << "a job met the damage of another";
    }
  }
}

TEST(Pool, WhatRanBeforeInTheProcessMayBeTheCause) {
  const std::vector<std::string> texts{"well", "damage", "frail"};
  const auto sure = run_all(options(1, 1, 10.0, true), texts);
  EXPECT_EQ(sure[2].kind, Kind::unrepeated);
  EXPECT_TRUE(sure[2].beside.empty());
  EXPECT_NE(sure[2].reason.find("code 9"), std::string::npos) << sure[2].reason;
  EXPECT_EQ(run_all(options(1, 1), texts)[2].kind, Kind::died) << "without `confirm` the first word counts";
}

// As by the machine that ran out of memory: it says nothing of the job, not even of the first of its process.
TEST(Pool, AKillFromOutsideIsRepeatedAlone) {
  const auto killed = [](std::int64_t subject, const std::string& text) {
    const int runs = ++shared().runs[std::stoi(text)];
    if (text == "1" || (text == "0" && runs == 1)) ::kill(::getpid(), SIGKILL);
    return run(subject, "well");
  };
  for (std::atomic<int>& runs : shared().runs) runs = 0;
  Pool pool(killed, options(1, 1, 10.0, true));
  const auto out = run_all(pool, {"0", "1"});
  EXPECT_EQ(out[0].kind, Kind::unrepeated);
  EXPECT_EQ(out[0].text, "well");
  EXPECT_NE(out[0].reason.find("signal 9"), std::string::npos) << out[0].reason;
  EXPECT_EQ(out[1].kind, Kind::died) << "twice is its own doing";
  EXPECT_EQ(shared().runs[1], 2);
}

// A process_damaged heap shows wherever the next vector grows, in the harness too.
TEST(Pool, ADefectAfterOtherJobsIsOfTheProcess) {
  for (const int threads : {1, 4}) {
    std::vector<std::string> texts(40, "allocating");
    for (const std::size_t i : {6, 30}) texts[i] = "damage";
    const auto out = run_all(options(1, threads), texts);
    int lost = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (out[i].kind == Kind::unrepeated) {
        ++lost;
        EXPECT_EQ(out[i].how, "broken");
        EXPECT_EQ(out[i].reason, "vector::_M_default_append");
      } else {
        EXPECT_EQ(out[i].kind, Kind::answered) << i;
      }
      EXPECT_EQ(out[i].text, texts[i]);
    }
    EXPECT_GE(lost, 1);
    EXPECT_LE(lost, 2 * threads);
  }
  Pool pool(run, options(1, 1));
  EXPECT_THROW(run_all(pool, {"well", "internal"}), std::runtime_error) << "a fresh process finds it too";
}

TEST(Pool, AProcessThatDiesIdleTakesNoJobWithIt) {
  Pool pool(run, options(1, 2));
  EXPECT_EQ(pool.run_one({0, "time bomb"}).text, "time bomb");
  std::this_thread::sleep_for(1s);  // it goes off long before, on a machine that is busy too
  EXPECT_EQ(pool.run_one({0, "well"}).kind, Kind::answered);
}

TEST(Pool, AFreshJobHasAProcessOfItsOwn) {
  Pool pool(run, options(1, 1));
  const std::string first = pool.run_one({0, "pid"}).text;
  EXPECT_EQ(pool.run_one({0, "pid"}).text, first);
  EXPECT_NE(pool.run_one({0, "pid", 0, true}).text, first);
  EXPECT_EQ(pool.run_one({0, "pid"}).text, first);
}

TEST(Pool, AnErrorOfTheRunnerIsTheCallers) {
  for (const int threads : {1, 3}) {
    Pool pool(run, options(1, threads, 0.5));
    EXPECT_THROW(run_all(pool, {"hang", "error"}), Error) << "whatever runs beside it is ended";
    EXPECT_EQ(pool.run_one({0, "well"}).text, "well");
    try {
      (void)pool.run_one({0, "internal"});
      FAIL() << "no error";
    } catch (const Error&) {
      FAIL() << "a defect is no bad input";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "a defect");
    }
  }
  EXPECT_THROW(Pool(run, options(0, 1)), Error);
  EXPECT_THROW(Pool(run, options(1, 0)), Error);
}

TEST(RunApart, EndsWhenItIsToldTo) {
  const auto begin = std::chrono::steady_clock::now();
  const JobResult out = run_apart(
      [] {
        std::this_thread::sleep_for(60s);
        return std::string("late");
      },
      0.0, [&] { return std::chrono::steady_clock::now() - begin > 100ms; });
  EXPECT_TRUE(out.text.empty());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(RunApart, GivesTextErrorOrLoss) {
  const JobResult good = run_apart([] { return std::to_string(::getpid()); }, 10.0);
  EXPECT_EQ(good.kind, Kind::answered);
  EXPECT_NE(good.text, std::to_string(::getpid()));
  EXPECT_THROW((void)run_apart([]() -> std::string { throw Error("bad input"); }, 10.0), Error);
  EXPECT_EQ(run_apart([] { return act("_exit").text; }, 10.0).kind, Kind::died);
  EXPECT_EQ(run_apart([] { return act("hang").text; }, 0.3).kind, Kind::hung);
  EXPECT_EQ(run_apart([] { return act("well").text; }, 0.0).text, "well") << "0 is no limit";
}

}  // namespace
}  // namespace samestate
