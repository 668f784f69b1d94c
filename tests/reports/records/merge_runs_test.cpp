#include "reports/records/merge_runs.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>

#include "harness/records/hash.h"
#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;
using testing::slurp;
using testing::spit;

constexpr std::int64_t kTotal = 12;
const std::string kVersion = "0.1.0";

Record record_of(std::int64_t number) {
  Record out = record(Verdict::pass, 0.01 * static_cast<double>(number + 1),
                      "v1 retention T=" + std::to_string(number));
  return out;
}

std::string plan() {
  PlanHash hash;
  for (std::int64_t i = 0; i < kTotal; ++i) hash.add(record_of(i).line, record_of(i).kernel);
  return hash.text();
}

/// Writes the file of one shard of a gate of kTotal cases, every `shards`-th of them; `change` may plant a fault in its run.
void write_shard(const std::filesystem::path& path, std::int64_t shard, std::int64_t shards,
                 const std::function<void(Run&, RunEnd&)>& change = {}) {
  Run run = testing::run();
  run.part = {"gate", shard, shards, (kTotal - shard + shards - 1) / shards, kTotal, plan(), {{"seed", "1"}}};
  run.planned = run.part.cases;
  RunEnd end{1.5, "1"};
  if (change) change(run, end);
  JsonLinesWriter writer(path, run);
  // In another order than the plan's.
  for (std::int64_t i = kTotal - 1; i >= 0; --i) {
    if (i % shards == shard) writer.end(writer.start(record_of(i), i), record_of(i));
  }
  writer.finish(end);
}

class Merge : public testing::Folder {
 protected:
  [[nodiscard]] NamedRecords read(const std::string& name) const {
    return {name, read_json_lines(path(name.c_str()))};
  }

  std::vector<NamedRecords> shards(std::int64_t count) {
    std::vector<NamedRecords> files;
    for (std::int64_t i = count - 1; i >= 0; --i) {
      const std::string name = std::to_string(i) + ".jsonl";
      write_shard(path(name.c_str()), i, count);
      files.push_back(read(name));
    }
    return files;
  }

  /// Shard 1 of 3 with `change` in its run, merged with the others.
  std::string error_with(const std::function<void(samestate::Run&, RunEnd&)>& change) {
    std::vector<NamedRecords> files = shards(3);
    write_shard(path("1.jsonl"), 1, 3, change);
    files[1] = read("1.jsonl");
    return error_of(files);
  }

  /// Shard 1 of 3 with its text changed, merged with the others.
  std::string error_with_text(const std::string& pattern, const std::string& by) {
    std::vector<NamedRecords> files = shards(3);
    const std::string before = slurp(path("1.jsonl"));
    const std::string after =
        std::regex_replace(before, std::regex(pattern), by, std::regex_constants::format_first_only);
    EXPECT_NE(before, after) << pattern;
    spit(path("1.jsonl"), after);
    files[1] = read("1.jsonl");
    return error_of(files);
  }

  static std::string error_of(const std::vector<NamedRecords>& files, const std::string& version = kVersion) {
    try {
      (void)merge_runs(files, version);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

#define EXPECT_SAYS(error, facts)                \
  do {                                           \
    const std::string said = error;              \
    EXPECT_EQ(lacking(said, facts), "") << said; \
  } while (false)

TEST_F(Merge, AnyNumberOfShardsIsTheWholeInItsOrder) {
  for (const std::int64_t count : {1, 2, 3, 7, 12}) {
    const MergedRun merged = merge_runs(shards(count), kVersion);
    ASSERT_EQ(merged.records.size(), static_cast<std::size_t>(kTotal)) << count;
    for (std::int64_t i = 0; i < kTotal; ++i) {
      const Record& r = merged.records[static_cast<std::size_t>(i)];
      EXPECT_EQ(r.line, record_of(i).line);
      EXPECT_EQ(r.judgement.ratio, record_of(i).judgement.ratio);
      EXPECT_EQ(merged.numbers[static_cast<std::size_t>(i)], i);
    }
    EXPECT_EQ(merged.run.part.shards, 1);
    EXPECT_EQ(merged.run.planned, kTotal);
    EXPECT_EQ(merged.end.seconds, 1.5 * static_cast<double>(count));
    EXPECT_EQ(merged.end.seed, "1");
    EXPECT_EQ(std::ssize(merged.seconds), count);
  }
}

TEST_F(Merge, SeveralRunsMayStandInOneFile) {
  (void)shards(3);
  spit(path("all.jsonl"), slurp(path("0.jsonl")) + slurp(path("1.jsonl")) + slurp(path("2.jsonl")));
  EXPECT_EQ(std::ssize(merge_runs({read("all.jsonl")}, kVersion).records), kTotal);
  spit(path("twice.jsonl"), slurp(path("all.jsonl")) + slurp(path("1.jsonl")));
  EXPECT_SAYS(error_of({read("twice.jsonl")}), "twice.jsonl shard 1/3");
}

TEST_F(Merge, WhatTheEndsSayIsThereTogether) {
  std::vector<NamedRecords> files = shards(3);
  write_shard(path("1.jsonl"), 1, 3, [](samestate::Run& run, RunEnd& end) {
    run.part.cases += 2;
    end.not_complete = "The budget ended before 2 of 6 cases.";
    end.not_started = {{"k", 2}};
    end.looks_like = {{"4", "a sign"}};
    end.grown = {{7, 0.01}};
    end.compared = 3;
    end.notes = {"left out"};
    end.interrupted = true;
  });
  files[1] = read("1.jsonl");
  const MergedRun merged = merge_runs(files, kVersion);
  EXPECT_EQ(merged.end.not_complete, "In shard 1/3: The budget ended before 2 of 6 cases.");
  EXPECT_EQ(merged.end.not_started.at("k"), 2);
  EXPECT_EQ(merged.left, 2);
  EXPECT_EQ(merged.records[4].looks_like, "a sign");
  ASSERT_EQ(merged.end.grown.size(), 1U);
  EXPECT_EQ(merged.end.grown[0].number, 7);
  EXPECT_EQ(merged.end.grown[0].before, 0.01);
  EXPECT_EQ(merged.end.compared, 3);
  EXPECT_EQ(merged.end.notes, (std::vector<std::string>{"left out"}));
  EXPECT_TRUE(merged.end.interrupted);
}

TEST_F(Merge, NamesTheShardThatIsMissingOrTwice) {
  std::vector<NamedRecords> files = shards(3);
  std::vector<NamedRecords> two{files[0], files[2]};
  EXPECT_SAYS(error_of(two), "shard 1/3 missing");
  EXPECT_SAYS(error_of({files[2]}), "1/3 2/3 missing");
  two = files;
  two.push_back({"copy.jsonl", files[1].content});
  EXPECT_SAYS(error_of(two), "shard 1/3 1.jsonl copy.jsonl");
  EXPECT_SAYS(error_of({}), "no file");
}

TEST_F(Merge, RefusesPartsOfOtherRuns) {
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.options["seed"] = "2"; }), "--seed 1 2");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.options["where"] = "T=1"; }),
              "--where none");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.plan = "0123456789abcdef"; }),
              "hash plan");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.total = 13; }), "number cases 12");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.shards = 4; }), "number shards 3");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.verb = "sweep"; }), "verb gate");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.part.verb = ""; }), "which plan");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.plugins = "other.so (1)"; }), "plugins");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.kernel_sources = "x"; }), "CUDA sources");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.commit = "def"; }), "commit abc123");
  EXPECT_SAYS(error_with([](samestate::Run& run, RunEnd&) { run.version = "0.2.0"; }), "1.jsonl 0.2.0");
  EXPECT_SAYS(error_of(shards(2), "0.3.0"), "0.3.0");
  EXPECT_EQ(error_with([](samestate::Run& run, RunEnd&) { run.commit = ""; }), "");
  EXPECT_EQ(error_with([](samestate::Run& run, RunEnd&) { run.device = "H200"; }), "");
}

TEST_F(Merge, RefusesCasesThatAreMissingCutOrTwice) {
  EXPECT_SAYS(error_with_text("\\{[^\\n]*\"event\":\"finish\"[^\\n]*\\n", ""), "1.jsonl shard 1/3 end");
  EXPECT_SAYS(error_with_text("(\"event\":\"finish\")[^\\n]*\\n", "$1"), "1.jsonl shard 1/3 end");
  EXPECT_SAYS(error_with_text("\\{[^\\n]*\"event\":\"end\",\"case\":7,[^\\n]*\\n", ""),
              "1.jsonl case 7 began end");
  EXPECT_SAYS(error_with_text("\\{[^\\n]*\"event\":\"start\",\"case\":7,[^\\n]*\\n\\{[^\\n]*\"event\":"
                              "\"end\",\"case\":7,[^\\n]*\\n",
                              ""),
              "1.jsonl: holds 3 of the 4 cases of shard 1/3");
  EXPECT_SAYS(error_with_text("(\"event\":\"end\",\"case\":)7,", "$014,"), "1.jsonl case 4 twice");
  EXPECT_SAYS(error_with_text("(\"event\":\"end\",\"case\":)7,", "$0199,"), "1.jsonl case 99 shard 1/3");
  // A case from another shard, or from another plan, shows in the plan's hash.
  EXPECT_SAYS(error_with_text("(\"event\":\"end\",\"case\":7,\"line\":\"v1 retention T=)7", "$0170"),
              "not those of plan");
  EXPECT_SAYS(error_with_text("(\"event\":\"end\",\"case\":7,[^\\n]*\"kernel\":\"cpu)", "$01x"),
              "not those of plan");
}

TEST_F(Merge, ASearchGoesOnInItsFile) {
  const auto write = [&](const std::string& name, std::int64_t shard, std::int64_t from, std::int64_t to,
                         bool finish, JsonLinesWriter::Mode mode) {
    samestate::Run run = testing::run();
    run.part = {"fuzz", shard, 2, 0, 0, "kernels", {{"seed", "0x7"}}};
    JsonLinesWriter writer(path(name.c_str()), run, mode);
    for (std::int64_t i = from; i < to; ++i) {
      if (i % 2 == shard) writer.end(writer.start(record_of(i), i), record_of(i));
    }
    // One that was under way when the process was killed.
    if (!finish) writer.start(record_of(to), to);
    RunEnd end{2.0, "0x7"};
    end.kinds = {{"fail", 2}};
    if (finish) writer.finish(end);
  };
  using Mode = JsonLinesWriter::Mode;
  write("0.jsonl", 0, 0, 4, false, Mode::replace);
  write("1.jsonl", 1, 0, 9, true, Mode::replace);
  EXPECT_SAYS(error_of({read("0.jsonl"), read("1.jsonl")}), "0.jsonl shard 0/2 end");
  write("0.jsonl", 0, 4, 10, true, Mode::append);
  const MergedRun merged = merge_runs({read("1.jsonl"), read("0.jsonl")}, kVersion);
  ASSERT_EQ(merged.records.size(), 9U);
  EXPECT_EQ(merged.records[4].line, record_of(4).line);
  EXPECT_EQ(merged.end.kinds.at("fail"), 4);
  // A case of the other shard.
  write("2.jsonl", 1, 0, 3, true, Mode::replace);
  const std::string text = slurp(path("2.jsonl"));
  spit(path("2.jsonl"), std::regex_replace(text, std::regex("\"case\":1,"), "\"case\":2,"));
  EXPECT_SAYS(error_of({read("0.jsonl"), read("2.jsonl")}), "2.jsonl case 2 shard 1/2");
}

TEST_F(Merge, ASweepHasEveryPoint) {
  PlanHash hash;
  const auto point = [](std::int64_t i) {
    Measurement m;
    m.series = "chunk";
    m.curve = "bf16";
    m.x = static_cast<double>(i);
    m.record = record_of(i);
    return m;
  };
  for (std::int64_t i = 0; i < 6; ++i) hash.add(record_of(i).line, "chunk\tbf16");
  const auto write = [&](const std::string& name, std::int64_t shard, std::int64_t from, std::int64_t to,
                         JsonLinesWriter::Mode mode) {
    samestate::Run run = testing::run();
    run.part = {"sweep", shard, 2, 3, 6, hash.text(), {}};
    JsonLinesWriter writer(path(name.c_str()), run, mode);
    for (std::int64_t i = from; i < to; ++i) {
      if (i % 2 == shard) writer.point(point(i), i);
    }
  };
  using Mode = JsonLinesWriter::Mode;
  write("0.jsonl", 0, 0, 6, Mode::replace);
  write("1.jsonl", 1, 0, 4, Mode::replace);
  EXPECT_SAYS(error_of({read("0.jsonl"), read("1.jsonl")}), "1.jsonl 2 3 points shard 1/2");
  // A point that had no device is measured again: what stands later counts.
  write("1.jsonl", 1, 3, 6, Mode::append);
  const MergedRun merged = merge_runs({read("1.jsonl"), read("0.jsonl")}, kVersion);
  ASSERT_EQ(merged.points.size(), 6U);
  EXPECT_EQ(merged.points[3].x, 3.0);
}

TEST_F(Merge, RefusesWhatIsNoRunFile) {
  spit(path("empty.jsonl"), "");
  EXPECT_SAYS(error_of({read("empty.jsonl")}), "empty.jsonl run");
  // A hostile shard of a million: one sentence, at once.
  std::vector<NamedRecords> files = shards(1);
  const std::string text = slurp(path("0.jsonl"));
  spit(path("0.jsonl"),
       std::regex_replace(text, std::regex("(\"of_shard\")"), "\"shard\":\"5/9223372036854775807\",$1",
                          std::regex_constants::format_first_only));
  EXPECT_SAYS(error_of({read("0.jsonl")}), "shards 0/9223372036854775807");
  EXPECT_LT(error_of({read("0.jsonl")}).size(), 500U);
  for (const std::string bad : {"4/4", "-1/2", "1", "1/", "a/b", "1/2x"}) {
    spit(path("0.jsonl"),
         std::regex_replace(text, std::regex("(\"of_shard\")"), "\"shard\":\"" + bad + "\",$1",
                            std::regex_constants::format_first_only));
    EXPECT_THROW((void)read("0.jsonl"), Error) << bad;
  }
}

}  // namespace
}  // namespace samestate
