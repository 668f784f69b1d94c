#include "reports/records/digest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "reports/text/csv.h"
#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::spit;

constexpr const char* kKernel = "cuda.retention.chunked";

class DigestFolder : public testing::Folder {
 protected:
  static Record of(Verdict verdict, const char* line, const char* contract, const char* kernel = kKernel) {
    Record made = testing::record(verdict, verdict == Verdict::pass ? 0.5 : 2.0, line);
    made.kernel = kernel;
    made.device = "cuda";
    made.contract = contract;
    return made;
  }
  /// A run of sources `hash` on `date`.
  static samestate::Run run(const char* hash, const char* date, const char* device = "H200") {
    samestate::Run made = testing::run();
    made.device = device;
    made.plugins = "";
    made.kernel_sources = std::string(kKernel) + "=" + hash;
    made.date = date;
    return made;
  }
  [[nodiscard]] std::filesystem::path folder(const char* name) const {
    std::filesystem::create_directories(path(name));
    return path(name);
  }
  static void write(const std::filesystem::path& file, const samestate::Run& run,
                    const std::vector<Record>& records, const std::vector<TimedCase>& timings = {}) {
    JsonLinesWriter writer(file, run);
    for (const Record& r : records) writer.end(writer.start(r), r);
    for (const TimedCase& t : timings) writer.timing(t);
    if (!records.empty()) writer.finish({});
  }
  static TimedCase timed(double median) {
    TimedCase t;
    t.record = of(Verdict::pass, "v1 retention T=64", "bf16");
    t.T = 64;
    t.timed = "graph";
    t.time = {median, median * 0.9, median * 1.1, 30};
    t.share = 1.0 / 3.0;
    t.slowed = "heat";
    t.peer = "fla.chunk";
    t.peer_time = {median * 3, median * 2.9, median * 3.1, 11};
    return t;
  }
  /// The error of reading a digest of this text.
  [[nodiscard]] std::string rejection(const std::string& text) const {
    spit(path("damaged.json"), text);
    try {
      (void)read_digest(path("damaged.json"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(DigestFolder, SaysWhatTheRecordsSaid) {
  const auto raw = folder("raw"), kept = folder("kept");
  write(raw / "gate.jsonl", run("ab12", "2026-11-29"),
        {of(Verdict::pass, "v1 retention T=1", "bf16"), of(Verdict::fail, "v1 retention T=2", "bf16"),
         of(Verdict::pass, "v1 retention T=3", "fp32"), of(Verdict::vacuous, "v1 retention T=4", "fp32")});
  write(raw / "bench.jsonl", run("ab12", "2026-11-28"), {}, {timed(1.0 / 7.0)});
  const Board board = read_board(raw);
  spit(kept / "kernels.json", board_json(board, {}));
  spit(kept / "other.json", "{\"format\":\"of another program\"}");
  const std::vector<Evidence> before = read_evidence(raw), after = read_evidence(kept);
  ASSERT_EQ(before.size(), 1U);
  ASSERT_EQ(after.size(), 1U) << "one entry a kernel, whatever its contracts";
  EXPECT_EQ(after[0].passed, 2);
  EXPECT_EQ(after[0].failed, 1);
  EXPECT_EQ(after[0].kernel, before[0].kernel);
  EXPECT_EQ(after[0].device, "H200");
  EXPECT_EQ(after[0].driver, before[0].driver);
  EXPECT_EQ(after[0].toolkit, before[0].toolkit);
  EXPECT_EQ(after[0].kernel_sources, "ab12");
  EXPECT_EQ(after[0].file, "kernels.json");
  // Every number of a timing but those of its judgement, bit for bit.
  std::vector<TimedEvidence> timings = read_timings(kept), recorded = read_timings(raw);
  ASSERT_EQ(timings.size(), 1U);
  ASSERT_EQ(recorded.size(), 1U);
  EXPECT_EQ(timings[0].date, "2026-11-28");
  EXPECT_EQ(timings[0].timed.record.device, "cuda");
  Record& judged = recorded[0].timed.record;
  Record bare = timings[0].timed.record;
  EXPECT_EQ(bare.judgement.ratio, judged.judgement.ratio);
  judged = bare;
  recorded[0].file = timings[0].file;
  EXPECT_EQ(csv_text(timings_table(recorded)), csv_text(timings_table(timings)));
  // The board of the digest is that of the records, and its file the same text.
  EXPECT_EQ(board_json(read_board(kept), {}), board_json(board, {}));
  ASSERT_EQ(read_board(kept).rows.at(0).defects.size(), 1U) << "failing lines are kept";
  EXPECT_EQ(read_board(kept).rows.at(0).defects[0].lines, std::vector<std::string>{"v1 retention T=2"});
}

TEST_F(DigestFolder, NewRunsReplaceTheirRowsAlone) {
  const auto kept = folder("kept"), fresh = folder("fresh");
  {
    const auto raw = folder("raw");
    write(raw / "h200.jsonl", run("ab12", "2026-11-28"),
          {of(Verdict::pass, "v1 retention T=1", "bf16"), of(Verdict::pass, "v1 retention T=2", "bf16"),
           of(Verdict::pass, "v1 retention T=3", "fp32")});
    write(raw / "h100.jsonl", run("ab12", "2026-11-27", "H100"),
          {of(Verdict::pass, "v1 retention T=1", "bf16")});
    write(raw / "bench.jsonl", run("ab12", "2026-11-28"), {}, {timed(2.0)});
    spit(kept / "kernels.json", board_json(read_board(raw), {}));
  }
  write(fresh / "h200.jsonl", run("cd34", "2026-11-29"), {of(Verdict::fail, "v1 retention T=9", "bf16")});
  write(fresh / "bench.jsonl", run("cd34", "2026-11-29"), {}, {timed(1.0)});
  const std::vector<std::filesystem::path> both{kept, fresh};
  const Board board = read_board(both);
  std::string rows;
  for (const BoardRow& row : board.rows)
    rows += row.device + " " + row.contract + " " + row.sources + " " + std::to_string(row.cases) + "\n";
  EXPECT_EQ(rows, "H100 bf16 ab12 1\nH200 bf16 cd34 1\nH200 fp32 ab12 1\n")
      << "what ran on another device or under another contract stays";
  ASSERT_EQ(board.timings.size(), 1U);
  EXPECT_EQ(board.timings[0].timed.time.median, 1.0);
  // In the other order of the folders too: dates decide.
  const std::vector<std::filesystem::path> turned{fresh, kept};
  EXPECT_EQ(board_json(read_board(turned), {}), board_json(board, {}));
  // The same sources run again: their row is the newer run's.
  write(fresh / "h200.jsonl", run("ab12", "2026-11-29"), {of(Verdict::pass, "v1 retention T=7", "bf16")});
  const Board again = read_board(both);
  ASSERT_EQ(again.rows.size(), 3U);
  EXPECT_EQ(again.rows[1].cases, 1);
  EXPECT_EQ(again.rows[1].date, "2026-11-29");
}

// Digests of before have an object a timing.
TEST_F(DigestFolder, ReadsTimingsThatAreObjects) {
  const auto raw = folder("raw");
  TimedCase other = timed(2.0);
  other.record.line = "v1 retention T=128";
  other.slowed = "";  // a field that one of them has
  write(raw / "bench.jsonl", run("ab12", "2026-11-28"), {}, {timed(1.0 / 7.0), other});
  const std::string text = board_json(read_board(raw), {});
  nlohmann::ordered_json digest = nlohmann::ordered_json::parse(text);
  const nlohmann::ordered_json columns = digest["timings"];
  digest["timings"] = nlohmann::ordered_json::array();
  for (const auto& row : columns["rows"]) {
    nlohmann::ordered_json object;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (!row[i].is_null()) object[columns["fields"][i].get<std::string>()] = row[i];
    }
    digest["timings"].push_back(std::move(object));
  }
  EXPECT_EQ(board_json(parse_board(digest.dump(), "before"), {}), text);
}

TEST_F(DigestFolder, RefusesADamagedOne) {
  const auto raw = folder("raw");
  write(raw / "gate.jsonl", run("ab12", "2026-11-29"), {of(Verdict::pass, "v1 retention T=1", "bf16")},
        {timed(1.0)});
  const std::string text = board_json(read_board(raw), {});
  EXPECT_EQ(rejection(text), "");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return rejection(other.replace(at, from.size(), to));
  };
  EXPECT_EQ(lacking(changed("\"samples\":30", "\"samples\":3.5"), "damaged.json timing 0"), "");
  EXPECT_NE(changed("\"pass\",", "\"good\",").find("verdict"), std::string::npos);
  EXPECT_EQ(lacking(changed("\"verdict\",", ""), "damaged.json timing"), "");
  EXPECT_NE(changed("\"pass\": 1", "\"pass\": \"1\"").find("row 0"), std::string::npos);
  EXPECT_NE(rejection(text.substr(0, text.size() / 2)).find("no board"), std::string::npos);
  // Half a file is not the file of another program.
  EXPECT_THROW((void)read_evidence(path(".")), Error);
  // The line is not a case.
  spit(path("damaged.json"), text);
  const auto check = [](const Record& r) {
    if (r.line == "v1 retention T=1") throw Error("is no case");
  };
  EXPECT_THROW((void)read_board(path("damaged.json"), check), Error);
  EXPECT_THROW((void)read_digest(path("absent.json")), Error);
  EXPECT_TRUE(digests_in(path("absent")).empty());
}

}  // namespace
}  // namespace samestate
