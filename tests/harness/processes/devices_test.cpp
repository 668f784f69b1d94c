#include "harness/processes/devices.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/processes/pool.h"

namespace samestate {
namespace {

HostDevice device(int n) {
  const std::string name = std::to_string(n);
  return {n, "GPU of a test", "id-" + name, "bus-" + name, "visible-" + name};
}

/// Devices 0.. of a host on which those of `lost` are gone.
struct Host {
  std::set<std::string> lost = {};
  int looks = 0;
  std::vector<std::string> said = {};

  std::shared_ptr<Devices> devices(int count) {
    std::vector<HostDevice> all;
    for (int i = 0; i < count; ++i) all.push_back(device(i));
    return std::make_shared<Devices>(
        all,
        [this](const std::optional<std::string>& visible) {
          ++looks;
          return !lost.contains(visible.value_or("visible-0"));
        },
        [this](const std::string& sentence) { said.push_back(sentence); });
  }
};

TEST(Devices, TheLeastLoadedIsChosenOfThoseThatAreLeft) {
  Host host;
  const auto devices = host.devices(3);
  EXPECT_EQ(devices->least({0, 0, 0}), 0);
  EXPECT_EQ(devices->least({1, 0, 0}), 1);
  EXPECT_EQ(devices->least({2, 1, 1}), 1);
  host.lost = {"visible-1"};
  EXPECT_TRUE(devices->is_gone(1, ""));
  EXPECT_EQ(devices->least({2, 0, 1}), 2);
  EXPECT_EQ(devices->left(), 2);
  EXPECT_FALSE(devices->is_left(1));
  EXPECT_FALSE(devices->is_left(Devices::kNone));
  EXPECT_FALSE(devices->is_left(3));
}

TEST(Devices, AProcessSeesItsOwnAloneAndWithoutOneNone) {
  Host host;
  EXPECT_EQ(host.devices(2)->visible_to(1), "visible-1");
  EXPECT_EQ(host.devices(2)->visible_to(Devices::kNone), "");
  EXPECT_EQ(host.devices(1)->visible_to(0), std::nullopt) << "the one that is there needs no name";
  EXPECT_EQ(host.devices(1)->visible_to(Devices::kNone), "");
  EXPECT_EQ(host.devices(2)->visible_as("id-1"), "visible-1");
  EXPECT_EQ(host.devices(2)->visible_as("of another host"), std::nullopt);
}

TEST(Devices, WhatWasSaidOfOneThatIsThereIsNotLookedIntoEachTime) {
  Host host;
  const auto devices = host.devices(2);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(devices->is_gone(0, "needs compute capability 9.0"));
  EXPECT_EQ(host.looks, 1);
  EXPECT_FALSE(devices->is_gone(1, "needs compute capability 9.0"));
  EXPECT_EQ(host.looks, 2) << "another device";
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(devices->is_gone(0, ""));
  EXPECT_EQ(host.looks, 5) << "what ended a process";
}

TEST(Devices, ALossIsSaidOnceAndStays) {
  Host host;
  const auto devices = host.devices(2);
  host.lost = {"visible-0"};
  EXPECT_TRUE(devices->is_gone(0, "no device"));
  EXPECT_TRUE(devices->is_gone(0, "no device"));
  ASSERT_EQ(host.said.size(), 1U);
  EXPECT_EQ(host.said[0],
            "device 0: GPU of a test, id-0, bus-0 is lost: its cases go to the one that is left");
  host.lost = {"visible-0", "visible-1"};
  EXPECT_TRUE(devices->is_gone(1, ""));
  EXPECT_NE(devices->losses().at(1).find("none is left"), std::string::npos);
  EXPECT_EQ(devices->least({0, 0}), Devices::kNone);
}

/// Answers with what the process of a job sees; "miss" says that there is no device, and "die" ends the
/// process, both only on device 1.
Answer act(std::int64_t, const std::string& text) {
  const char* const seen = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string visible = seen != nullptr ? seen : "all";
  if (visible == "visible-1" && text == "die") ::_exit(3);
  if (visible == "visible-1" && text == "miss") return {visible, {}, "no device"};
  if (visible == "visible-1" && text == "break") return {visible, "the context is gone", "error 700"};
  ::usleep(3000);
  return {visible, {}, visible.empty() ? "no device" : ""};
}

/// Results by number; each job starts once and ends once.
std::vector<JobResult> run_jobs(Pool& pool, const std::vector<Job>& jobs) {
  std::vector<JobResult> out(jobs.size());
  std::vector<int> started(jobs.size()), finished(jobs.size());
  std::size_t next = 0;
  pool.run(
      [&](std::int64_t) -> std::optional<Job> {
        if (next == jobs.size()) return std::nullopt;
        Job job = jobs[next];
        job.index = static_cast<std::int64_t>(next++);
        return job;
      },
      {[&](const Job& job) { ++started[static_cast<std::size_t>(job.index)]; },
       [&](const Job& job, JobResult result) {
         ++finished[static_cast<std::size_t>(job.index)];
         out[static_cast<std::size_t>(job.index)] = std::move(result);
       }});
  EXPECT_EQ(started, std::vector<int>(jobs.size(), 1));
  EXPECT_EQ(finished, std::vector<int>(jobs.size(), 1));
  return out;
}

Pool pool_of(const std::shared_ptr<Devices>& devices, int workers, int threads) {
  WorkerOptions options;
  options.workers = workers;
  options.threads = threads;
  options.confirm = true;
  options.devices = devices.get();
  return Pool(act, options);
}

std::map<std::string, int> counts_of(const std::vector<JobResult>& results) {
  std::map<std::string, int> counts;
  for (const JobResult& r : results) {
    EXPECT_EQ(r.kind, JobResult::Kind::answered);
    EXPECT_EQ(r.text, r.device.empty() ? "" : "visible-" + r.device.substr(3));
    ++counts[r.device];
  }
  return counts;
}

TEST(DevicesOfAPool, ProcessesAreDealtOverThem) {
  Host host;
  // One process is wanted, and each device has one.
  for (const auto& [workers, threads] : {std::pair{1, 2}, {4, 1}}) {
    const auto devices = host.devices(2);
    Pool pool = pool_of(devices, workers, threads);
    const auto counts = counts_of(run_jobs(pool, std::vector<Job>(40)));
    EXPECT_GE(counts.at("id-0"), 8);
    EXPECT_GE(counts.at("id-1"), 8);
  }
  EXPECT_EQ(host.looks, 0);
}

TEST(DevicesOfAPool, AJobGoesToTheDeviceThatItNames) {
  Host host;
  std::vector<Job> jobs(30);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].device = i % 3 == 0 ? "id-2" : i % 3 == 1 ? "id-0" : "";
    jobs[i].fresh = i % 5 == 0;
  }
  jobs[2].device = "of another host";
  const auto devices = host.devices(3);
  Pool pool = pool_of(devices, 3, 1);
  const auto results = run_jobs(pool, jobs);
  (void)counts_of(results);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i != 2 && !jobs[i].device.empty()) {
      EXPECT_EQ(results[i].device, jobs[i].device) << i;
    }
  }
}

TEST(DevicesOfAPool, OneThatIsLostGivesItsJobsToTheOthers) {
  for (const char* how : {"miss", "die", "break"}) {
    for (const bool fresh : {false, true}) {
      SCOPED_TRACE(how);
      Host host;
      host.lost = {"visible-1"};
      std::vector<Job> jobs(40);
      for (std::size_t i = 4; i < jobs.size(); ++i) {
        jobs[i].text = how;
        jobs[i].fresh = fresh;
      }
      const auto devices = host.devices(2);
      Pool pool = pool_of(devices, 2, 2);
      const auto results = run_jobs(pool, jobs);
      (void)counts_of(results);
      for (std::size_t i = 4; i < jobs.size(); ++i) EXPECT_EQ(results[i].device, "id-0");
      EXPECT_EQ(host.said.size(), 1U);
      // Another run of the pool knows it.
      EXPECT_EQ(counts_of(run_jobs(pool, std::vector<Job>(10))).at("id-0"), 10);
    }
  }
}

TEST(DevicesOfAPool, AFaultOnADeviceThatIsThereStaysWhatItIs) {
  Host host;
  std::vector<Job> jobs(8);
  for (Job& job : jobs) job.text = "die", job.device = "id-1";
  const auto devices = host.devices(2);
  Pool pool = pool_of(devices, 2, 1);
  for (const JobResult& r : run_jobs(pool, jobs)) {
    EXPECT_EQ(r.kind, JobResult::Kind::died);
    EXPECT_EQ(r.device, "id-1");
  }
  EXPECT_TRUE(host.said.empty());
}

TEST(DevicesOfAPool, WithNoneLeftProcessesSeeNone) {
  Host host;
  host.lost = {"visible-0", "visible-1"};
  std::vector<Job> jobs(10);
  for (Job& job : jobs) job.text = "miss";
  const auto devices = host.devices(2);
  EXPECT_TRUE(devices->is_gone(0, ""));
  Pool pool = pool_of(devices, 2, 1);
  for (const JobResult& r : run_jobs(pool, jobs)) {
    EXPECT_EQ(r.text, "") << "it saw a device";
    EXPECT_EQ(r.device, "");
  }
  EXPECT_EQ(host.said.size(), 2U);
}

}  // namespace
}  // namespace samestate
