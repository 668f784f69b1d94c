#include "fuzz/search/search.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "fuzz/search/checkpoint.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;
using faulty::planted_table;

const KernelTable& cpu() {
  static const KernelTable table(kernels());
  return table;
}

SearchOptions of(std::int64_t cases, int workers = 2) {
  SearchOptions o;
  o.filter.system = "retention";
  o.filter.device = "cpu";
  o.seed = 9;
  o.max_cases = cases;
  o.workers = {workers, 30.0};
  return o;
}

/// Judgements by index, as they stand in a checkpoint.
std::map<std::int64_t, std::string> judged(const SearchOptions& options, const KernelTable& table = cpu()) {
  std::map<std::int64_t, std::string> out;
  SearchObserver observer;
  observer.finished = [&](const Task& task, const Record& record, bool) {
    EXPECT_TRUE(out.emplace(task.index, record.line + result_text({record.judgement, 0.0, 0})).second);
  };
  (void)search(table, options, observer);
  return out;
}

class TemporaryFile {
 public:
  TemporaryFile() : path_(fs::temp_directory_path() / ("samestate-search-" + std::to_string(::getpid()))) {
    clear();
  }
  ~TemporaryFile() { clear(); }
  void clear() const { fs::remove(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

 private:
  fs::path path_;
};

TEST(Search, DoesNotDependOnTheNumberOfWorkers) {
  const auto one = judged(of(60, 1));
  EXPECT_EQ(one.size(), 60U);
  EXPECT_EQ(judged(of(60, 3)), one);
}

TEST(Search, ShardsAreDisjointAndTogetherAreAll) {
  const auto whole = judged(of(90));
  std::map<std::int64_t, std::string> together;
  for (std::int64_t shard = 0; shard < 3; ++shard) {
    SearchOptions o = of(90);
    o.shard = shard;
    o.shards = 3;
    for (auto& [index, text] : judged(o)) EXPECT_TRUE(together.emplace(index, text).second) << index;
  }
  EXPECT_EQ(together, whole);
}

TEST(Search, FindsAPlantedFaultAndACrash) {
  KernelTable table = planted_table([](const Kernel& base, const Arguments& a, const Contract& c) {
    if (a.q.shape[1] == 17) std::raise(SIGKILL);
    const Outcome outcome = base.run(a, c);
    if (a.q.shape[1] > 20) a.o(0, 20, 0, 0) += 1;
    return outcome;
  });
  SearchOptions o = of(300);
  o.filter = {"", "", "planted.gated_delta_rule.chunked"};
  const SearchResult result = search(table, o, {});
  EXPECT_GT(result.counts.at(Verdict::fail), 10);
  EXPECT_GT(result.counts.at(Verdict::crash), 0);
  EXPECT_GT(result.counts.at(Verdict::pass), 10);
  std::int64_t last = -1;
  for (const Found& found : result.failures) {
    EXPECT_GT(found.index, last);
    last = found.index;
  }
}

TEST(Search, GoesOnAfterAKill) {
  const TemporaryFile file;
  const auto whole = judged(of(120));
  SearchOptions o = of(120);
  o.checkpoint = file.path();
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    (void)search(cpu(), o, {});
    ::_exit(0);
  }
  const auto lines = [&] {
    const std::string text = file.text();
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 6000 && lines() < 20; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ::kill(pid, SIGKILL);
  int status = 0;
  ::waitpid(pid, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status)) << "it was done before it was killed";
  ASSERT_LT(lines(), 120);
  file.write(file.text() + "17\t0.5\tpass");  // what a kill within a write leaves
  o.resume = true;
  std::int64_t replayed = 0;
  std::map<std::int64_t, std::string> together;
  SearchObserver observer;
  observer.finished = [&](const Task& task, const Record& record, bool from_file) {
    replayed += from_file;
    EXPECT_TRUE(together.emplace(task.index, record.line + result_text({record.judgement, 0.0, 0})).second);
  };
  const SearchResult result = search(cpu(), o, observer);
  EXPECT_GE(replayed, 19);
  EXPECT_EQ(result.cases, 120);
  EXPECT_EQ(together, whole);
}

std::string error_of(const SearchOptions& o) {
  try {
    (void)search(cpu(), o, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Search, UnusableCheckpointsAreErrorsAndStayAsTheyAre) {
  const TemporaryFile file;
  SearchOptions o = of(20);
  o.checkpoint = file.path();
  (void)search(cpu(), o, {});
  const std::string good = file.text();
  EXPECT_NE(error_of(o).find("exists"), std::string::npos);
  o.resume = true;
  const auto refused = [&](const std::string& text, const std::string& word) {
    file.write(text);
    EXPECT_NE(error_of(o).find(word), std::string::npos) << error_of(o);
    EXPECT_EQ(file.text(), text);
  };
  std::string damaged = good;
  damaged[good.find('\n', good.find('\n') + 1) + 3] ^= 1;
  refused(damaged, "line 3");
  refused("samestate-fuzz-checkpoint 2 " + good.substr(28), "line 1");
  refused("", "line 1");
  refused("something else\n", "line 1");
  file.write(good);
  o.seed = 10;
  EXPECT_NE(error_of(o).find("name another file"), std::string::npos);
  EXPECT_EQ(file.text(), good);
  EXPECT_EQ(checkpoint_seed(file.path()), 9U);
}

TEST(Search, BadOptionsAreErrors) {
  SearchOptions o = of(10);
  o.shard = o.shards = 2;
  EXPECT_NE(error_of(o).find("shard 2/2"), std::string::npos);
  o = of(0);
  EXPECT_NE(error_of(o).find("--budget"), std::string::npos);
  o = of(10);
  o.resume = true;
  EXPECT_NE(error_of(o).find("--checkpoint"), std::string::npos);
}

TEST(Search, ABudgetEndsIt) {
  SearchOptions o = of(0);
  o.budget = 0.3;
  const SearchResult result = search(cpu(), o, {});
  EXPECT_GT(result.cases, 0);
  EXPECT_LT(result.seconds, 20.0);
}

}  // namespace
}  // namespace samestate
