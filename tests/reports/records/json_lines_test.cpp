#include "reports/records/json_lines.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <latch>
#include <limits>
#include <thread>
#include <tuple>

#include "reference/error.h"
#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;
using testing::slurp;
using testing::spit;

constexpr double infinity = std::numeric_limits<double>::infinity();
const Run run = testing::run();

class JsonLines : public testing::Folder {
 protected:
  /// Two cases that end and one that does not.
  std::filesystem::path two_and_a_start() {
    const auto file = path("run.jsonl");
    JsonLinesWriter writer(file, run);
    writer.end(writer.start(record(Verdict::pass, 0.5, "v1 a")), record(Verdict::pass, 0.5, "v1 a"));
    writer.end(writer.start(record(Verdict::fail, 2.0, "v1 b")), record(Verdict::fail, 2.0, "v1 b"));
    static_cast<void>(writer.start(record(Verdict::vacuous, 0.0, "v1 c")));
    return file;
  }
};

bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

void expect_same(const Record& a, const Record& b) {
  EXPECT_EQ(a.line, b.line);
  EXPECT_EQ(a.kernel, b.kernel);
  EXPECT_EQ(a.system, b.system);
  EXPECT_EQ(a.form, b.form);
  EXPECT_EQ(a.contract, b.contract);
  EXPECT_EQ(a.regime, b.regime);
  EXPECT_EQ(a.law, b.law);
  EXPECT_EQ(a.device, b.device);
  EXPECT_EQ(a.judgement.verdict, b.judgement.verdict);
  EXPECT_EQ(a.judgement.gate, b.judgement.gate);
  EXPECT_EQ(a.judgement.worst.sequence, b.judgement.worst.sequence);
  EXPECT_EQ(a.judgement.worst.head, b.judgement.worst.head);
  EXPECT_EQ(a.judgement.worst.token, b.judgement.worst.token);
  EXPECT_EQ(a.judgement.worst.channel, b.judgement.worst.channel);
  EXPECT_EQ(a.judgement.rows, b.judgement.rows);
  EXPECT_EQ(a.judgement.held, b.judgement.held);
  EXPECT_EQ(a.judgement.held_of, b.judgement.held_of);
  EXPECT_EQ(a.judgement.held_which, b.judgement.held_which);
  EXPECT_EQ(a.judgement.reason, b.judgement.reason);
  EXPECT_EQ(a.gpu, b.gpu);
  EXPECT_EQ(a.outputs, b.outputs);
  const auto numbers = [](const Record& r) {
    const Judgement& j = r.judgement;
    return std::vector{j.ratio,        j.error,        j.bound,       j.expected,   j.actual,
                       j.row_ratio,    j.head_ratio,   j.state_ratio, j.hard_ratio, j.twin_ratio,
                       j.median_ratio, j.relative_rms, r.seconds};
  };
  const auto of_a = numbers(a);
  const auto of_b = numbers(b);
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_TRUE(same_bits(of_a[i], of_b[i])) << "number " << i << ": " << of_a[i] << " became " << of_b[i];
  }
}

TEST_F(JsonLines, EveryFieldComesBackBitForBit) {
  std::vector<Record> records;
  for (Verdict verdict : {Verdict::pass, Verdict::fail, Verdict::vacuous, Verdict::unsupported,
                          Verdict::skipped, Verdict::crash, Verdict::timeout, Verdict::flaky}) {
    records.push_back(record(verdict, 0.1 * static_cast<double>(records.size())));
    records.back().law = "split";
  }
  records[1].judgement.ratio = std::numeric_limits<double>::quiet_NaN();
  records[1].judgement.error = infinity;
  records[2].judgement.actual = -infinity;
  records[3].judgement.worst = {};
  records[4].judgement.rows = std::numeric_limits<std::int64_t>::max();
  records[0].gpu = "GPU-8f6d";
  records[0].policy = "deep";
  records[0].outputs = "o:0123456789abcdef";
  records[0].tuned = "first: scan: BLOCK=64", records[0].retuned = "full: pass: scan: BLOCK=32";
  samestate::Run on_two = run;
  on_two.gpus = {"0: NVIDIA H100, GPU-8f6d", "1: NVIDIA H100, GPU-8f6e"};
  records[5].judgement.reason = "quote \" backslash \\ newline \n bell \a umlaut \u00fc";
  {
    JsonLinesWriter writer(path("out/run.jsonl"), on_two);
    for (const Record& r : records) writer.end(writer.start(r), r);
  }
  const RecordFile file = read_json_lines(path("out/run.jsonl"));
  ASSERT_EQ(file.records.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) expect_same(records[i], file.records[i]);
  EXPECT_EQ(file.records[0].tuned, records[0].tuned);
  EXPECT_EQ(file.records[0].retuned, records[0].retuned);
  EXPECT_EQ(file.records[0].policy, "deep");
  EXPECT_EQ(file.records[1].policy, "") << "a record of before there were policies is read";
  ASSERT_EQ(file.runs.size(), 1U);
  EXPECT_EQ(file.runs[0].version, "0.1.0");
  EXPECT_EQ(file.runs[0].commit, "abc123");
  EXPECT_EQ(file.runs[0].device, "H100");
  EXPECT_EQ(file.runs[0].gpus, on_two.gpus);
  EXPECT_EQ(file.runs[0].driver, "13.0");
  EXPECT_EQ(file.runs[0].toolkit, "13.1");
  EXPECT_EQ(file.runs[0].kernel_sources, "0123abcd");
  EXPECT_EQ(file.cut_lines, 0);
}

TEST_F(JsonLines, StagesComeBackAndDamagedOnesAreRefused) {
  Record staged = record(Verdict::fail, 3.0);
  staged.judgement.stage = "rule";
  staged.judgement.stages = {{"projections", Verdict::pass, 0.25, "element"},
                             {"rule", Verdict::fail, infinity, "twin share"}};
  {
    JsonLinesWriter writer(path("run.jsonl"), run);
    writer.end(writer.start(staged), staged);
  }
  const RecordFile file = read_json_lines(path("run.jsonl"));
  const Judgement& j = file.records.at(0).judgement;
  EXPECT_EQ(j.stage, "rule");
  ASSERT_EQ(j.stages.size(), 2U);
  EXPECT_EQ(j.stages[0].stage, "projections");
  EXPECT_EQ(j.stages[0].ratio, 0.25);
  EXPECT_EQ(j.stages[1].verdict, Verdict::fail);
  EXPECT_EQ(j.stages[1].ratio, infinity);
  EXPECT_EQ(j.stages[1].gate, "twin share");
  const std::string text = testing::slurp(path("run.jsonl"));
  for (const auto& [from, to, says] :
       {std::tuple{R"("verdict":"pass","ratio":0.25)", R"("verdict":"past","ratio":0.25)", "a verdict"},
        {R"({"stage":"projections")", R"({"stages":"projections")", "no field 'stage'"},
        {R"("ratio":0.25)", R"("ratio":[])", "'ratio'"}}) {
    std::string damaged = text;
    const std::size_t at = damaged.find(from);
    ASSERT_NE(at, damaged.npos) << from;
    const std::string why = rejection(damaged.replace(at, std::string(from).size(), to));
    EXPECT_NE(why.find(says), why.npos) << why;
  }
}

TEST_F(JsonLines, BytesThatAreNoUtf8DoNotStopARun) {
  Record broken = record(Verdict::fail, 3.0);
  broken.judgement.reason = "kernel said \xff\xfe";
  {
    JsonLinesWriter writer(path("run.jsonl"), run);
    writer.end(writer.start(broken), broken);
  }
  const RecordFile file = read_json_lines(path("run.jsonl"));
  EXPECT_EQ(file.records.at(0).judgement.reason, "kernel said \uFFFD\uFFFD");
}

TEST_F(JsonLines, AStartWithoutAnEndIsACrash) {
  const RecordFile file = read_json_lines(two_and_a_start());
  ASSERT_EQ(file.records.size(), 3U);
  EXPECT_EQ(file.records[2].line, "v1 c");
  EXPECT_EQ(file.records[2].judgement.verdict, Verdict::crash);
  EXPECT_FALSE(file.records[2].judgement.reason.empty());
}

TEST_F(JsonLines, ARunSaysHowItEnded) {
  auto planned = run;
  planned.planned = 3;
  const RunEnd end{1.5, "7", 3, "Interrupted before 2 of 3 cases.", {"too little", "far too little"}};
  const auto written = [&](std::int64_t cases, bool finished) {
    {
      JsonLinesWriter writer(path("run.jsonl"), planned);
      for (std::int64_t i = 0; i < cases; ++i) {
        const Record one = record(Verdict::fail, 2.0);
        writer.end(writer.start(one), one);
      }
      if (finished) writer.finish(end);
    }
    return read_json_lines(path("run.jsonl"));
  };
  const RecordFile file = written(1, true);
  EXPECT_EQ(file.runs.at(0).planned, 3);
  EXPECT_EQ(file.ends.at(0).exit, 3);
  EXPECT_EQ(file.ends[0].seconds, 1.5);
  EXPECT_EQ(file.ends[0].seed, "7");
  EXPECT_EQ(shortcomings(file),
            (std::vector<std::string>{"Interrupted before 2 of 3 cases.", "too little", "far too little"}));
  EXPECT_EQ(shortcomings(written(1, false)),
            std::vector<std::string>{"The process was ended before 2 of 3 cases were."});
  EXPECT_TRUE(shortcomings(written(3, false)).empty());
  EXPECT_NE(slurp(path("run.jsonl")).find(R"("command":"samestate repro )"), std::string::npos);
}

TEST_F(JsonLines, ACutAnywhereLosesAtMostTheCutLine) {
  const std::string whole = slurp(two_and_a_start());
  std::size_t last_count = 0;
  for (std::size_t length = 0; length <= whole.size(); ++length) {
    spit(path("cut.jsonl"), whole.substr(0, length));
    const RecordFile file = read_json_lines(path("cut.jsonl"));
    EXPECT_GE(file.records.size(), last_count) << "cut after " << length << " bytes";
    last_count = file.records.size();
    const bool at_line_end = length == 0 || whole[length - 1] == '\n' || whole[length] == '\n';
    EXPECT_EQ(file.cut_lines, at_line_end ? 0 : 1) << "cut after " << length << " bytes";
  }
  EXPECT_EQ(last_count, 3U);
}

TEST_F(JsonLines, TheStartIsOnDiskWhenTheProcessDies) {
  const auto file = path("run.jsonl");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    JsonLinesWriter writer(file, run);
    static_cast<void>(writer.start(record(Verdict::vacuous, 0.0, "v1 deadly")));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const RecordFile found = read_json_lines(file);
  ASSERT_EQ(found.records.size(), 1U);
  EXPECT_EQ(found.records[0].line, "v1 deadly");
  EXPECT_EQ(found.records[0].judgement.verdict, Verdict::crash);
}

TEST_F(JsonLines, AppendingGoesOnAfterACutLine) {
  const auto file = two_and_a_start();
  const std::string whole = slurp(file);
  spit(file, whole.substr(0, whole.size() - 5));
  {
    JsonLinesWriter writer(file, run, JsonLinesWriter::Mode::append);
    writer.end(writer.start(record(Verdict::pass, 0.1, "v1 d")), record(Verdict::pass, 0.1, "v1 d"));
  }
  const RecordFile found = read_json_lines(file);
  EXPECT_EQ(found.runs.size(), 2U);
  EXPECT_EQ(found.cut_lines, 1);
  ASSERT_EQ(found.records.size(), 3U);
  EXPECT_EQ(found.records[2].line, "v1 d");
}

TEST_F(JsonLines, ThreadsShareAWriter) {
  {
    JsonLinesWriter writer(path("run.jsonl"), run);
    std::vector<std::thread> threads;
    std::latch together(8);
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        const Record r = record(Verdict::pass, 0.1);
        together.arrive_and_wait();
        for (int i = 0; i < 500; ++i) writer.end(writer.start(r), r);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const RecordFile file = read_json_lines(path("run.jsonl"));
  EXPECT_EQ(file.records.size(), 4000U);
  for (const Record& r : file.records) EXPECT_EQ(r.judgement.verdict, Verdict::pass);
}

TEST_F(JsonLines, RejectsWithFileAndLine) {
  const std::string good = slurp(two_and_a_start());
  EXPECT_EQ(rejection(good), "");
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const auto expect_rejected = [&](const std::string& text, const std::string& where,
                                   const std::string& what) {
    const std::string message = rejection(text);
    EXPECT_NE(message.find("bad.jsonl:" + where + ":"), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  expect_rejected(replaced("\"schema\":1", "\"schema\":2"), "1", "schema 2");
  expect_rejected("{\"tests\": 3}\n", "1", "'schema'");
  expect_rejected("[1]\n", "1", "'schema'");
  expect_rejected(replaced("\"event\":\"end\"", "\"event\":\"stop\""), "3", "stop");
  expect_rejected(replaced("\"ratio\":0.5,", ""), "3", "'ratio'");
  expect_rejected(replaced("\"ratio\":0.5", "\"ratio\":\"big\""), "3", "big");
  expect_rejected(replaced("\"verdict\":\"pass\"", "\"verdict\":\"fine\""), "3", "fine");
  expect_rejected(replaced("\"rows\":130", "\"rows\":1.5"), "3", "1.5");
  expect_rejected(replaced("\"line\":\"v1 b\"", "\"line\":7"), "4", "'line'");
}

TEST_F(JsonLines, OneWriterAtATime) {
  {
    const JsonLinesWriter first(path("run.jsonl"), testing::run());
    for (const auto mode : {JsonLinesWriter::Mode::append, JsonLinesWriter::Mode::replace})
      EXPECT_THROW(JsonLinesWriter(path("run.jsonl"), testing::run(), mode), Error);
  }
  EXPECT_EQ(read_json_lines(path("run.jsonl")).runs.size(), 1U) << "and the refused one has cut nothing off";
  EXPECT_NO_THROW(JsonLinesWriter(path("run.jsonl"), testing::run()));
  EXPECT_NO_THROW(JsonLinesWriter("/dev/null", testing::run()));
}

TEST_F(JsonLines, LinesOfAnyLengthUpToALimit) {
  // About the size of the reader's buffer, with and without an end of line.
  for (const std::size_t length : {65534U, 65535U, 65536U, 131070U, 200000U}) {
    const std::string line =
        "{\"schema\":1,\"event\":\"stop\",\"x\":\"" + std::string(length - 34, 'x') + "\"}";
    ASSERT_EQ(line.size(), length);
    for (const char* end : {"", "\n", "\n\n"})
      EXPECT_EQ(lacking(rejection(line + end), "bad.jsonl:1 'stop'"), "") << length;
    EXPECT_NE(rejection("\n" + line + "\n[]\n").find("bad.jsonl:2: event"), std::string::npos) << length;
  }
  EXPECT_EQ(lacking(rejection(std::string(64'000'001, ' ')), "bad.jsonl:1 64 MB"), "");
}

TEST_F(JsonLines, RejectsTwoWritersAndDamageInTheMiddle) {
  const std::string good = slurp(two_and_a_start());
  const std::size_t second = good.find('\n') + 1;
  const std::size_t third = good.find('\n', second) + 1;
  const std::string start = good.substr(second, third - second);
  EXPECT_NE(rejection(good.substr(0, second) + start + start).find(":3: case 0 starts twice"),
            std::string::npos);
  const std::string damaged = good.substr(0, second) + start.substr(0, 20) + "\n" + good.substr(third);
  EXPECT_EQ(lacking(rejection(damaged), "bad.jsonl:2 JSON"), "");
  EXPECT_THROW(static_cast<void>(read_json_lines(path("absent.jsonl"))), Error);
}

}  // namespace
}  // namespace samestate
