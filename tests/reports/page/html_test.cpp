#include "reports/page/html.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "oracles/reasons.h"
#include "reference/error.h"
#include "reports/page/html_table.h"
#include "reports/page/report.h"
#include "reports/text/csv.h"
#include "tests/reports/points.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::point;
using testing::record;
using testing::slurp;

class Html : public testing::Folder {};

/// Text that would do harm wherever it is not escaped.
constexpr const char* kHostile = "</script><script>alert(1)</script>\" onload=\"x' & \x01\xff";

ReportInput input_of(std::vector<SweepPoint> points, std::vector<Record> records) {
  ReportInput input;
  input.sources.push_back({"a.jsonl", {}});
  input.sources[0].content.runs = {testing::run()};
  for (const SweepPoint& p : points) input.sources[0].content.points.push_back(p.measurement);
  input.sources[0].content.records = std::move(records);
  return input;
}

std::string page_of(const ReportInput& input) {
  const ReportData data = report_data(input);
  return html_text(input, data, {});
}

TEST_F(Html, TheFirstThingSaysWhetherItPassed) {
  EXPECT_NE(page_of(input_of({}, {record(Verdict::pass, 0.5), record(Verdict::fail, 2)}))
                .find("1 of 2 cases failed"),
            std::string::npos);
  const std::string failed = page_of(input_of({}, {record(Verdict::fail, 2)}));
  EXPECT_LT(failed.find("href=\"#failures\""), failed.find("id=\"failures\"")) << "and leads to them";
  EXPECT_NE(failed.find("id=\"failures\""), std::string::npos);
  EXPECT_NE(failed.find("class=\"tag bad cause\""), std::string::npos)
      << "a sentence needs more than its words";
  EXPECT_EQ(page_of(input_of({}, {record(Verdict::pass, 0.5)})).find("#failures"), std::string::npos);
  EXPECT_NE(page_of(input_of({point("bf16", 1, 1e-3)}, {})).find("1 of 1 points judged, none failed"),
            std::string::npos);
  EXPECT_NE(page_of(input_of({}, {})).find("No case and no point was recorded"), std::string::npos);
}

// On a telephone the first screen has the headline and what follows it.
TEST_F(Html, WhichChunkIsAnsweredBeforeWhatStandsOut) {
  std::vector<SweepPoint> points = {point("bf16", 16, 1e-3), point("bf16", 64, 1e-3)};
  for (SweepPoint& p : points) p.measurement.series = "chunk";
  const std::string page = page_of(input_of(points, {}));
  const std::size_t answer = page.find("Which chunk?"), passed = page.find("none failed");
  ASSERT_NE(answer, std::string::npos);
  EXPECT_LT(passed, answer);
  EXPECT_EQ(page.substr(passed, answer - passed).find("<table"), std::string::npos);
  EXPECT_NE(page.find("<table class=\"stacked\">", answer), std::string::npos);
}

// A hint that a pointer shows is a text of the page too.
TEST_F(Html, ColumnsAreExplainedBelowTheirTable) {
  HtmlTable table({{"kernel"}, {"flat up to", true, "the largest chunk that costs nothing"}});
  table.row();
  const std::string html = table.html();
  EXPECT_NE(html.find("<dt>flat up to</dt><dd>the largest chunk that costs nothing</dd>"), std::string::npos);
  EXPECT_EQ(html.find("<dt>kernel</dt>"), std::string::npos);
  HtmlTable plain({{"kernel"}});
  plain.row();
  EXPECT_EQ(plain.html().find("<dl>"), std::string::npos);
}

TEST_F(Html, WhatWasNotRunForWantOfADeviceStandsBelow) {
  std::vector<Record> records = {record(Verdict::pass, 0.5, "v1 a"), record(Verdict::skipped, 0, "v1 b")};
  records[1].kernel = "cuda.one";
  EXPECT_EQ(page_of(input_of({}, records)).find("for want of a device"), std::string::npos);
  records[1].judgement.gate = kNoDevice;
  const std::string page = page_of(input_of({}, records));
  const std::size_t passed = page.find("none failed"),
                    absent = page.find("not run for want of a device: 1 case of");
  ASSERT_NE(absent, std::string::npos);
  EXPECT_LT(passed, absent);
  EXPECT_LT(absent, page.find("<h3>", passed));
}

TEST_F(Html, WhatStandsOutIsOneOfEachKernelAndContract) {
  std::vector<SweepPoint> points = {point("bf16", 1, 1e-3), point("bf16", 2, 1e-3), point("fp32", 1, 1e-8)};
  points[0].measurement.record.judgement.ratio = 0.75;
  points[1].measurement.record.judgement.ratio = 0.625;
  points[2].measurement.record.judgement.ratio = 0.5;
  const ReportInput input = input_of(points, {});
  const std::string answers = html_answers(input, report_data(input));
  const std::size_t begin = answers.find("stand out from their groups");
  ASSERT_NE(begin, std::string::npos);
  const std::string out = answers.substr(begin, answers.find("<h3>", begin) - begin);
  EXPECT_EQ(occurrences(out, "<tr>") - occurrences(out, "<thead><tr>"), 2U) << out;
  EXPECT_NE(out.find(">0.75<"), std::string::npos);
  EXPECT_EQ(out.find(">0.625<"), std::string::npos);
  EXPECT_NE(out.find(">0.5<"), std::string::npos);
  // Neither this table nor the longer one of cases scrolls sideways on a telephone.
  EXPECT_NE(out.find("class=\"stacked\""), std::string::npos);
  const std::string gate = page_of(input_of({}, {record(Verdict::pass, 0.5), record(Verdict::pass, 0.25)}));
  const std::size_t table = gate.find("What stands out from its group");
  ASSERT_NE(table, std::string::npos);
  EXPECT_LT(gate.find("class=\"stacked\"", table), gate.find("</table>", table));
}

TEST_F(Html, TheTitleIsTheHeading) {
  ReportInput input = input_of({}, {});
  input.title = kHostile;
  const std::string page = page_of(input);
  EXPECT_EQ(occurrences(page, "<h1>&lt;/script&gt;"), 1U);
  EXPECT_EQ(occurrences(page, "<title>&lt;/script&gt;"), 1U);
}

TEST_F(Html, NoRecordedTextBecomesMarkup) {
  Record bad = record(Verdict::fail, 2.0, kHostile);
  bad.kernel = bad.system = bad.form = bad.contract = bad.regime = bad.law = bad.device = kHostile;
  bad.judgement.reason = bad.judgement.gate = kHostile;
  SweepPoint p = point("bf16", 1, 1e-3);
  p.measurement.record = bad;
  p.measurement.series = p.measurement.curve = kHostile;
  ReportInput input = input_of({p}, {bad});
  input.title = kHostile;
  input.sources[0].name = kHostile;
  input.sources[0].content.runs[0].device = kHostile;
  input.evidence = {{kHostile, kHostile, kHostile, kHostile, kHostile, kHostile, 1, 0}};
  input.mutants = nlohmann::json::array({{{kHostile, kHostile}, {"killed", true}}})
                      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string page = page_of(input);
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(occurrences(page, "\" onload"), occurrences(page, "\\\" onload"))
      << "only inside the JSON of commands";
  EXPECT_EQ(page.find('\x01'), std::string::npos);
  EXPECT_EQ(page.find('\xff'), std::string::npos);
  EXPECT_EQ(occurrences(page, "<script"), 2U);
  EXPECT_EQ(occurrences(page, "</script>"), 2U);
}

TEST_F(Html, IsOneFileThatLoadsNothing) {
  const std::string page = page_of(input_of({point("bf16", 1, 1e-3)}, {record(Verdict::pass, 0.5)}));
  for (const char* outside : {"http://", "https://", "src=", "@import", "url("})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
}

TEST_F(Html, NumbersThatAreNoneAreShownAsSuchAndSortLast) {
  SweepPoint p = point("bf16", 1, std::nan(""));
  p.measurement.rms_bound = std::numeric_limits<double>::infinity();
  const std::string page = page_of(input_of({p}, {}));
  EXPECT_NE(page.find("data-v=\"nan\">nan<"), std::string::npos);
  EXPECT_NE(page.find("data-v=\"inf\">∞<"), std::string::npos);
  p.measurement.state_size = p.measurement.condition = std::nan("");
  const std::string stateless = page_of(input_of({p}, {}));
  EXPECT_EQ(stateless.find("RMS nan"), std::string::npos) << "a system without a state has no RMS of one";
  EXPECT_NE(stateless.find("data-v=\"nan\">-<"), std::string::npos);
}

TEST_F(Html, EvidenceOfOtherSourcesIsStale) {
  ReportInput input = input_of({}, {});
  input.kernel_sources = "bbbb";
  input.evidence = {{"cuda.retention.a", "H100", "13", "13", "aaaa", "f.jsonl", 3, 0},
                    {"cuda.retention.b", "H100", "13", "13", "bbbb", "f.jsonl", 4, 0}};
  const std::string page = page_of(input);
  EXPECT_EQ(occurrences(page, ">stale<"), 1U);
  EXPECT_EQ(occurrences(page, ">fresh<"), 1U);
  EXPECT_EQ(occurrences(page, "class=\"stacked\""), 1U) << "a telephone has no room for nine columns";
}

TEST_F(Html, ListingsTakeArraysOfObjectsAndNothingElse) {
  ReportInput input = input_of({}, {});
  input.mutants = R"([{"bug": "M13", "killed": true, "cases": 7, "ratio": "inf",
      "rules": {"fla": {"killed": false, "tests": 2}}}, {"bug": "M14", "killed": false, "cases": 9, "ratio": 2}])";
  const std::string page = page_of(input);
  EXPECT_NE(page.find("<section id=\"mutants\">"), std::string::npos);
  EXPECT_NE(page.find("<button>fla</button>"), std::string::npos);
  EXPECT_NE(page.find(">missed<"), std::string::npos);
  EXPECT_NE(page.find("data-v=\"7\""), std::string::npos);
  EXPECT_NE(page.find("2 rows. Killed by this gate 1 of 2, by fla 0 of 1. "), std::string::npos);
  for (const char* bad :
       {"", "{", "3", "[1, 2]", "{\"a\": 1}", "[{\"a\": 1}, 2]", "[]", "[{\"verdict\": \"OK\"}]"}) {
    input.mutants = bad;
    EXPECT_THROW((void)page_of(input), Error) << bad;
  }
  input.mutants = R"([{"bug": "M13", "killed": true}])";
  EXPECT_NE(page_of(input).find("Recorded without --public"), std::string::npos);
  input.equations = input.mutants;
  EXPECT_THROW((void)page_of(input), Error) << "the two options exchanged";
}

TEST_F(Html, TheReportIsWrittenWholeAndTwiceAlike) {
  const ReportInput input =
      input_of({point("bf16", 1, 1e-3), point("bf16", 4, 2e-3)}, {record(Verdict::pass, 0.5)});
  const bool plots = !gnuplot_version().empty();
  const ReportFiles files = write_report(path("report"), input, plots);
  EXPECT_EQ(files.points, 2);
  EXPECT_EQ(files.cases, 1);
  EXPECT_EQ(files.plots > 0, plots);
  (void)write_report(path("again"), input, plots);
  for (const std::string& name : files.names) {
    const std::string text = slurp(path("report") / name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_EQ(text, slurp(path("again") / name)) << name;
  }
  const auto json = nlohmann::json::parse(slurp(path("report") / "report.json"));
  EXPECT_EQ(json["points"]["rows"].size(), 2U);
  EXPECT_EQ(json["profiles"]["rows"].size(), 10U);
}

TEST_F(Html, NothingOfAnEarlierReportStaysBesideThePage) {
  (void)write_report(path("report"), input_of({point("bf16", 1, 1e-3)}, {record(Verdict::pass, 0.5)}), false);
  testing::spit(path("report") / "mine.csv", "x");
  std::filesystem::create_directory(path("report") / "plots");
  testing::spit(path("report") / "plots" / "plot-1-error.svg", "x");
  (void)write_report(path("report"), input_of({}, {record(Verdict::pass, 0.5)}), false);
  const auto present = [&](const char* name) { return std::filesystem::exists(path("report") / name); };
  EXPECT_FALSE(present("points.csv") || present("profiles.csv") || present("plots/plot-1-error.svg"));
  EXPECT_TRUE(present("cases.csv") && present("mine.csv"));
}

TEST_F(Html, AFolderThatCannotBeWrittenIsNamed) {
  testing::spit(path("file"), "x");
  for (const auto& folder : {path("file"), path("file") / "inside"}) {
    try {
      (void)write_report(folder, input_of({}, {record(Verdict::pass, 0.5)}), false);
      ADD_FAILURE() << folder;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("file"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(slurp(path("file")), "x");
}

TEST_F(Html, CsvQuotesAndDefusesText) {
  const DataTable table{
      "t",
      {"a", "b", "c"},
      {{std::string("x,\"y\"\n"), 0.1, std::int64_t{3}},
       {std::string("=HYPERLINK(1)"), -std::numeric_limits<double>::infinity(), std::int64_t{-1}}}};
  EXPECT_EQ(csv_text(table), "a,b,c\r\n\"x,\"\"y\"\"\n\",0.1,3\r\n'=HYPERLINK(1),-inf,-1\r\n");
  const auto json = nlohmann::json::parse(json_text(std::vector{table}));
  EXPECT_EQ(json["t"]["rows"][1][1], "-inf");
  EXPECT_EQ(json["t"]["rows"][0][0], "x,\"y\"\n");
}

TEST_F(Html, EveryPointOfTheCsvHasItsColumns) {
  const std::vector<SweepPoint> points = {point("bf16", 1, 1e-3)};
  const DataTable table = points_table(points, std::vector<std::string>{"a.jsonl"});
  ASSERT_EQ(table.rows.size(), 1U);
  EXPECT_EQ(table.rows[0].size(), table.columns.size());
  const DataTable cases = cases_table(std::vector{record(Verdict::pass, 0.5)});
  EXPECT_EQ(cases.rows[0].size(), cases.columns.size());
}

}  // namespace
}  // namespace samestate
