#include "reports/records/board.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/error.h"
#include "reports/page/html_board.h"
#include "reports/records/digest.h"
#include "reports/text/board_text.h"
#include "tests/facts.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;
using testing::spit;

constexpr const char* kSubject = "python:fla.chunk";

class BoardFolder : public testing::Folder {
 protected:
  /// A case of the peer on line `line`.
  static Record of(Verdict verdict, double ratio, const std::string& line, const std::string& law = "") {
    Record made = record(verdict, ratio, line);
    made.kernel = "fla.gated_delta_rule.chunked";
    made.contract = "bf16+card:nearest";
    made.device = "cuda";
    made.law = law;
    made.options = std::string(" --subject ") + kSubject;
    return made;
  }
  static samestate::Run run(const std::string& version, const std::string& date) {
    samestate::Run made{"0.1.0", "", "NVIDIA H100", "13.0", "13.0", "ab"};
    made.plugins =
        std::string("python:other (0123) {\"numpy\":\"9\"}, ") + kSubject +
        " (4567) {\"python\":\"3.12\",\"fla\":\"" + version +
        "\",\"torch\":\"2.11.0\",\"FLA_X\":\"1\",\"torch.allow_tf32\":\"0\",\"device\":\"H100 {x}\"}";
    made.date = date;
    return made;
  }
  [[nodiscard]] std::filesystem::path folder(const char* name) const {
    std::filesystem::create_directories(path(name));
    return path(name);
  }
  static void write(const std::filesystem::path& file, const samestate::Run& run,
                    const std::vector<Record>& records) {
    JsonLinesWriter writer(file, run);
    for (const Record& r : records) writer.end(writer.start(r), r);
    writer.finish({});
  }
  static std::string texts(const std::vector<BoardChange>& changes) {
    std::string out;
    for (const BoardChange& c : changes) out += (c.worse ? "worse: " : "") + c.text + "\n";
    return out;
  }
};

TEST_F(BoardFolder, HasARowAKernelVersionDeviceAndContract) {
  const auto a = folder("a");
  write(a / "one.jsonl", run("0.6.0", "2026-11-27"),
        {of(Verdict::pass, 0.5, "v1 a"), of(Verdict::pass, 0.25, "v1 b"),
         of(Verdict::fail, 3.0, "v1 c", "reset"), of(Verdict::vacuous, 0.0, "v1 d"),
         of(Verdict::unsupported, 0.0, "v1 e"), of(Verdict::skipped, 0.0, "v1 f")});
  write(a / "two.jsonl", run("0.6.0", "2026-11-28"), {of(Verdict::pass, 0.75, "v1 g")});
  const Board board = read_board(a);
  ASSERT_EQ(board.rows.size(), 1U);
  const BoardRow& row = board.rows[0];
  EXPECT_EQ(row.versions, "fla 0.6.0, torch 2.11.0") << "of the record's subject, and no switch";
  EXPECT_EQ(row.device, "NVIDIA H100");
  EXPECT_TRUE(row.nearest());
  EXPECT_EQ(row.date, "2026-11-28");
  EXPECT_EQ(row.cases, 6) << "one that was skipped did not run";
  EXPECT_EQ(row.passed, 3);
  EXPECT_EQ(row.failed, 1);
  EXPECT_EQ(row.vacuous, 1);
  EXPECT_EQ(row.unsupported, 1);
  EXPECT_EQ(row.median, 0.5);
  EXPECT_EQ(row.worst, 3.0) << "of the failures too";
  EXPECT_EQ(row.worst_line, "v1 c");
  ASSERT_EQ(row.defects.size(), 1U);
  EXPECT_EQ(row.defects[0].what,
            "form chunked, law reset: o has more error than the contract's roundings make");
  EXPECT_EQ(row.defects[0].lines, std::vector<std::string>{"v1 c"});
  const std::string page = board_markdown(board, {}, false);
  EXPECT_NE(page.find("**1**"), page.npos) << page;
  EXPECT_EQ(lacking(page, "1 `v1 c`"), "") << page;
  EXPECT_EQ(page.find("What changed"), page.npos);
}

TEST_F(BoardFolder, TakesTheNewestRecordOfALine) {
  const auto a = folder("a");
  // The older run stands in the file whose name comes last.
  write(a / "z.jsonl", run("0.6.0", "2026-11-20"), {of(Verdict::fail, 3.0, "v1 a")});
  write(a / "b.jsonl", run("0.6.0", "2026-11-28"), {of(Verdict::pass, 0.5, "v1 a")});
  const Board board = read_board(a);
  ASSERT_EQ(board.rows.size(), 1U);
  EXPECT_EQ(board.rows[0].failed, 0);
  EXPECT_EQ(board.rows[0].passed, 1);
}

/// One fault fails in many regimes and is one defect; its smallest case stands first.
TEST_F(BoardFolder, GroupsFailuresAsTheGateDoes) {
  const auto a = folder("a");
  std::vector<Record> records{of(Verdict::pass, 0.5, "v1 gated_delta_rule T=1")};
  for (const char* regime : {"slow", "normal", "huge_v", "exact_reset"}) {
    records.push_back(of(Verdict::fail, 3.0, std::string("v1 gated_delta_rule T=65 regime=") + regime));
    records.back().regime = regime;
  }
  records.push_back(of(Verdict::fail, 2.0, "v1 gated_delta_rule T=9"));
  records.push_back(of(Verdict::crash, 0.0, "v1 gated_delta_rule T=7"));
  records.back().judgement.reason = "signal 11 (Segmentation fault)";
  write(a / "one.jsonl", run("0.6.0", "2026-11-27"), records);
  const Board board = read_board(a);
  const BoardRow& row = board.rows.at(0);
  ASSERT_EQ(row.defects.size(), 2U);
  EXPECT_EQ(row.defects[0].lines, std::vector<std::string>{"v1 gated_delta_rule T=7"}) << "a crash first";
  ASSERT_EQ(row.defects[1].lines.size(), 5U);
  EXPECT_EQ(row.defects[1].lines.front(), "v1 gated_delta_rule T=9");
  EXPECT_EQ(row.worst, std::numeric_limits<double>::infinity()) << "a crash gave nothing to compare";
  EXPECT_EQ(row.worst_line, "v1 gated_delta_rule T=7");
  EXPECT_EQ(parse_board(board_json(board, {}), "x").rows.at(0).worst, row.worst);
}

/// A case that never ended was ended from outside, or the process died in a concurrent one: the kernel is not
/// to blame.
TEST_F(BoardFolder, RemarksWhatNeverEnded) {
  const auto a = folder("a");
  {
    JsonLinesWriter writer(a / "one.jsonl", run("0.6.0", "2026-11-27"));
    const Record passed = of(Verdict::pass, 0.5, "v1 a");
    writer.end(writer.start(passed), passed);
    (void)writer.start(of(Verdict::pass, 0.5, "v1 killed"));
  }
  const Board board = read_board(a);
  EXPECT_EQ(board.rows.at(0).cases, 1);
  EXPECT_EQ(board.rows.at(0).failed, 0);
  EXPECT_TRUE(board.rows.at(0).defects.empty());
  EXPECT_EQ(board.notes, std::vector<std::string>{"one.jsonl: was started and never ended: v1 killed"});
}

/// Two states of one file are two rows, and what failed in the older is said to be of it.
TEST_F(BoardFolder, KeepsTheVersionsOfAFileApart) {
  const auto a = folder("a");
  Record failed = of(Verdict::fail, 3.0, "v1 a"), passed = of(Verdict::pass, 0.5, "v1 b");
  failed.options = passed.options = " --subject 'python:mine.py:f'";
  samestate::Run old = run("0", "2026-11-29"), now = old;
  old.plugins = "python:mine.py:f (9999999900000000) {\"torch\":\"2\"}";
  now.plugins = "python:mine.py:f (1111111100000000) {\"torch\":\"2\"}";
  write(a / "a.jsonl", old, {failed});
  write(a / "b.jsonl", now, {passed});
  const Board board = read_board(a);
  ASSERT_EQ(board.rows.size(), 2U);
  EXPECT_EQ(board.rows[0].versions, "torch 2, mine.py 11111111");
  EXPECT_TRUE(board.rows[0].newest);
  EXPECT_EQ(board.rows[0].failed, 0);
  EXPECT_FALSE(board.rows[1].newest) << "of the same date, the file that is named last counts";
  const std::string page = board_markdown(board, {}, false);
  EXPECT_EQ(lacking(page, "older torch 2 mine.py 99999999"), "") << page;
}

TEST_F(BoardFolder, NamesWhatChanged) {
  const auto a = folder("a"), b = folder("b");
  write(a / "x.jsonl", run("0.5.1", "2026-11-20"),
        {of(Verdict::fail, 3.0, "v1 fixed"), of(Verdict::pass, 0.2, "v1 broken"),
         of(Verdict::fail, 2.0, "v1 still"), of(Verdict::fail, 2.0, "v1 gone")});
  write(b / "x.jsonl", run("0.6.0", "2026-11-28"),
        {of(Verdict::pass, 0.9, "v1 fixed"), of(Verdict::fail, 7.0, "v1 broken"),
         of(Verdict::fail, 2.0, "v1 still"), of(Verdict::fail, 2.0, "v1 new")});
  const Board before = read_board(a), after = read_board(b);
  const auto changes = board_changes(before, after);
  const std::string said = texts(changes);
  for (const char* text : {"version fla 0.5.1, torch 2.11.0 is now fla 0.6.0, torch 2.11.0",
                           "1 case failed before and passes now: v1 fixed",
                           "worse: 1 case passed before and fails now: v1 broken",
                           "1 case failed before and was not run again: v1 gone",
                           "worse: 1 case fails and was not recorded before: v1 new",
                           "worse: worst ratio 3 is now 7: v1 broken"}) {
    EXPECT_NE(said.find(text), said.npos) << text << "\n" << said;
  }
  EXPECT_EQ(said.find("still"), said.npos) << said;
  ASSERT_FALSE(changes.empty());
  EXPECT_TRUE(changes.front().worse) << "the worse first";
  // A board's data file knows the failures, and not what passed.
  const auto from_file = texts(board_changes(parse_board(board_json(before, {}), "before.json"), after));
  EXPECT_EQ(lacking(from_file, "1 passes v1 fixed"), "") << from_file;
  EXPECT_EQ(lacking(from_file, "worse 2 fail recorded"), "") << from_file;
  EXPECT_TRUE(board_changes(after, after).empty());
  const std::string page = board_html(after, changes, true, "A <board>");
  EXPECT_NE(page.find("What changed"), page.npos);
  EXPECT_NE(page.find("A &lt;board&gt;"), page.npos);
  EXPECT_EQ(page, board_html(after, changes, true, "A <board>"));
}

TEST_F(BoardFolder, NamesKernelsAndCardsThatAreNewOrGone) {
  const auto a = folder("a"), b = folder("b");
  Record exact = of(Verdict::pass, 0.5, "v1 a");
  exact.contract = "bf16";
  Record other = exact;
  other.kernel = "fla.retention.chunked";
  write(a / "x.jsonl", run("0.6.0", "2026-11-20"), {of(Verdict::pass, 0.5, "v1 a"), other});
  Record fresh = exact;
  fresh.kernel = "fla.delta_rule.chunked";
  write(b / "x.jsonl", run("0.6.0", "2026-11-28"), {exact, fresh});
  const std::string said = texts(board_changes(read_board(a), read_board(b)));
  EXPECT_EQ(lacking(said, "contract bf16+card:nearest bf16"), "") << said;
  EXPECT_EQ(said.find("fla.gated_delta_rule.chunked: not recorded"), said.npos)
      << "a contract that was renamed is not gone";
  EXPECT_EQ(testing::occurrences(said, "not recorded any more"), 1U) << said;
  EXPECT_NE(said.find("new: 1 case, 0 failed"), said.npos) << said;
  EXPECT_EQ(lacking(said, "not recorded any more 1"), "") << said;
}

TEST_F(BoardFolder, RefusesWhatIsNone) {
  const auto error_of = [](auto&& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const auto a = folder("a");
  EXPECT_NE(error_of([&] { (void)read_board(a); }).find("no case"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)read_board(path("absent")); }).find("absent: cannot be read"),
            std::string::npos);
  spit(a / "foreign.jsonl", "{\"event\":\"run\"}\n{\"event\":\"run\"}\n");
  EXPECT_NE(error_of([&] { (void)read_board(a); }).find("foreign.jsonl"), std::string::npos);
  // A pipe would be waited for.
  const auto b = folder("b");
  ASSERT_EQ(::mkfifo((b / "pipe.jsonl").c_str(), 0600), 0);
  EXPECT_NE(error_of([&] { (void)read_board(b); }).find("pipe.jsonl: no regular file"), std::string::npos);
  // No judge passes a ratio above 1, and none is negative.
  const auto c = folder("c");
  for (const auto& [verdict, ratio] :
       {std::pair{Verdict::pass, 1e308}, {Verdict::pass, -5.0}, {Verdict::fail, -5.0}}) {
    write(c / "x.jsonl", run("0.6.0", "2026-11-27"), {of(verdict, ratio, "v1 a")});
    EXPECT_NE(error_of([&] { (void)read_board(c); }).find("x.jsonl:3: verdict"), std::string::npos) << ratio;
  }
  write(c / "x.jsonl", run("0.6.0", "2026-11-27"), {of(Verdict::pass, 0.5, "v1 a")});
  EXPECT_NE(error_of([&] {
              (void)read_board(c, [](const Record& r) { throw Error(r.line + " is no case"); });
            }).find("x.jsonl: damaged, case 0: v1 a is no case"),
            std::string::npos);
  for (const char* text :
       {"", "[]", "{\"format\":\"other\",\"rows\":[]}", "{\"format\":\"samestate-board-1\"}"})
    EXPECT_NE(error_of([&] { (void)parse_board(text, "x.json"); }).find("x.json: no board"),
              std::string::npos)
        << text;
  EXPECT_NE(error_of([&] {
              (void)parse_board(R"({"format":"samestate-board-1","rows":[{"kernel":1}]})", "x.json");
            }).find("x.json: a damaged board, row 0"),
            std::string::npos);
}

}  // namespace
}  // namespace samestate
