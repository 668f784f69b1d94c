#include <gtest/gtest.h>

#include <cmath>

#include "reference/error.h"
#include "reports/page/html.h"
#include "reports/records/json_lines.h"
#include "reports/text/csv.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::record;
using testing::slurp;
using testing::spit;

/// A timing with every field set.
TimedCase timed(std::int64_t T, double median, const std::string& kernel = "cuda.gated_delta_rule.chunked",
                const std::string& device = "cuda") {
  TimedCase t;
  t.record = record(Verdict::pass, 0.5, "v1 gated_delta_rule T=" + std::to_string(T) + " kernel=" + kernel);
  t.record.kernel = kernel;
  t.record.device = device;
  t.B = 2, t.T = T, t.Hk = 3, t.Hv = 6, t.dk = 8, t.dv = 16, t.chunk = 64;
  t.sizes = "D=8 N=2";
  t.ranks = 7, t.cuts = "drawn";
  t.heads = 12, t.heads_judged = 4;
  t.timed = "graph";
  t.time = {median, median * 0.9, median * 1.1, 30};
  t.calls_per_sample = 7, t.copies = 5;
  t.bytes = 12345, t.operations = 67890;
  t.copy_rate = 3e12, t.product_rate = 7e14;
  t.ceilings = "measured";
  t.memory_floor = median / 4, t.compute_floor = median / 5;
  t.share = 0.25;
  t.peer = "fla.chunk", t.peer_note = "a note";
  t.peer_time = {median * 3, median * 2.9, median * 3.1, 11};
  t.peer_ratio = 3.0;
  return t;
}

class Timings : public testing::Folder {
 protected:
  void write(const char* name, const std::vector<TimedCase>& all) {
    JsonLinesWriter writer(path(name), testing::run());
    for (const TimedCase& t : all) writer.timing(t);
  }
};

ReportInput input_of(const std::vector<TimedCase>& all) {
  ReportInput input;
  input.sources.push_back({"bench.jsonl", {}});
  input.sources[0].content.runs = {testing::run()};
  for (const TimedCase& t : all) input.sources[0].content.timings.push_back({t, 0});
  input.kernel_sources = testing::run().kernel_sources;
  return input;
}

std::string page_of(const ReportInput& input) { return html_text(input, report_data(input), {}); }

TEST_F(Timings, ComeBackBitForBit) {
  TimedCase none = timed(9, 0.1);
  none.time = {};
  none.share = none.memory_floor = none.compute_floor = none.peer_ratio =
      std::numeric_limits<double>::quiet_NaN();
  none.peer_time = {};
  write("run.jsonl", {timed(1024, 1.0 / 3.0), none});
  const RecordFile file = read_json_lines(path("run.jsonl"));
  ASSERT_EQ(file.timings.size(), 2U);
  EXPECT_TRUE(file.records.empty());
  // Every number and text: the table holds them all.
  TimedEvidence expected{timed(1024, 1.0 / 3.0), "", "", "", "", ""};
  TimedEvidence actual{file.timings[0].timed, "", "", "", "", ""};
  EXPECT_EQ(csv_text(timings_table(std::span(&expected, 1))), csv_text(timings_table(std::span(&actual, 1))));
  EXPECT_TRUE(std::isnan(file.timings[1].timed.time.median));
  EXPECT_EQ(file.timings[1].timed.time.samples, 0);
  EXPECT_TRUE(std::isnan(file.timings[1].timed.peer_ratio));
}

TEST_F(Timings, TheDeviceOfATimingIsThatOfItsRun) {
  write("run.jsonl", {timed(1024, 0.5), timed(64, 0.5, "cpu.gated_delta_rule.chunked", "cpu")});
  std::vector<TimedEvidence> all = read_timings(path("."));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].timed.record.device, "cuda");
  EXPECT_EQ(all[0].device, "H100");
  EXPECT_EQ(all[1].timed.record.device, "cpu");
  EXPECT_EQ(all[1].device, "cpu");
  // As samestate 0.1.0 wrote it: the GPU's name in the timing itself.
  std::string text = slurp(path("run.jsonl"));
  const std::string now = "\"device\":\"cuda\"";
  ASSERT_NE(text.find(now), text.npos);
  text.replace(text.find(now), now.size(), "\"device\":\"H100\"");
  spit(path("run.jsonl"), text);
  all = read_timings(path("."));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].timed.record.device, "cuda");
  EXPECT_EQ(all[0].device, "H100");
}

TEST_F(Timings, AppendedRunsKeepTheirOwn) {
  write("run.jsonl", {timed(1024, 0.5)});
  samestate::Run second = testing::run();
  second.kernel_sources = "changed";
  {
    JsonLinesWriter writer(path("run.jsonl"), second, JsonLinesWriter::Mode::append);
    writer.timing(timed(1024, 0.25));
  }
  const std::vector<TimedEvidence> all = read_timings(path("."));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].kernel_sources, testing::run().kernel_sources);
  EXPECT_EQ(all[1].kernel_sources, "changed");
  const std::vector<TimedEvidence> latest = latest_timings(all);
  ASSERT_EQ(latest.size(), 1U) << "the same case, kernel and device: the later one stands";
  EXPECT_EQ(latest[0].timed.time.median, 0.25);
  EXPECT_TRUE(read_timings(path("absent")).empty());
}

TEST_F(Timings, ACutFileKeepsWhatIsWhole) {
  write("run.jsonl", {timed(1024, 0.5), timed(2048, 1.0)});
  const std::string text = slurp(path("run.jsonl"));
  spit(path("cut.jsonl"), text.substr(0, text.size() - 40));
  const RecordFile file = read_json_lines(path("cut.jsonl"));
  EXPECT_EQ(file.timings.size(), 1U);
  EXPECT_EQ(file.cut_lines, 1);
}

TEST_F(Timings, DamageIsNamed) {
  write("run.jsonl", {timed(1024, 0.5)});
  const std::string text = slurp(path("run.jsonl"));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const std::size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return rejection(other.replace(at, from.size(), to));
  };
  EXPECT_NE(changed("\"share\":0.25", "\"share\":\"much\"").find("share"), std::string::npos);
  EXPECT_NE(changed("\"share\":0.25,", "").find("no field 'share'"), std::string::npos);
  EXPECT_NE(changed("\"p10\":", "\"p11\":").find("no field 'p10'"), std::string::npos);
  EXPECT_NE(changed("\"samples\":30", "\"samples\":3.5").find("samples"), std::string::npos);
  EXPECT_NE(changed("\"timing\"", "\"timings\"").find("event 'timings'"), std::string::npos);
  EXPECT_NE(rejection(text.substr(text.find('\n') + 1)).find("before the line of its run"),
            std::string::npos);
}

TEST_F(Timings, ThePageShowsThemByDevice) {
  TimedCase wrong = timed(4096, 1.0);
  wrong.time = {};
  wrong.record.judgement.verdict = Verdict::fail;
  const std::string page =
      page_of(input_of({timed(1024, 0.5), wrong, timed(64, 0.5, "cpu.gated_delta_rule.chunked", "cpu")}));
  EXPECT_NE(page.find("<section id=\"evidence\""), std::string::npos);
  EXPECT_NE(page.find("<h4>H100</h4>"), std::string::npos);
  EXPECT_NE(page.find("<h4>cpu</h4>"), std::string::npos);
  EXPECT_NE(page.find("H100: 1 of 2 cases have a time; of the speed that the floor allows "),
            std::string::npos);
  EXPECT_NE(page.find("2 of 2 beside a peer are faster than it, peer / kernel 3 to 3."), std::string::npos);
  EXPECT_NE(page.find("may multiply in tf32"), std::string::npos);
  EXPECT_NE(page.find(">a note<"), std::string::npos) << "what the peer says of itself";
  EXPECT_EQ(page.find("No case and no point"), std::string::npos);
  EXPECT_NE(page.find(">4/12<"), std::string::npos);
  EXPECT_NE(page.find("samestate bench --case &#39;v1 gated_delta_rule T=1024"), std::string::npos);
  EXPECT_NE(page.find(">500000<"), std::string::npos) << "half a second in microseconds";
  EXPECT_NE(page.find("fla.chunk"), std::string::npos);
  EXPECT_EQ(occurrences(page, ">fresh<"), 2U) << "a CPU kernel is built with the command that shows it";
  ReportInput carried = input_of({timed(1024, 0.5)});
  carried.timings = timings_of(carried.sources[0].content, "evidence.jsonl");
  carried.timings.front().carried = true;
  carried.sources[0].content.timings.clear();
  EXPECT_NE(
      page_of(carried).find("H100: 1 of 1 cases have a time, recorded earlier and kept as evidence, none "
                            "in these files; of"),
      std::string::npos);
  ReportInput other = input_of({timed(1024, 0.5)});
  other.kernel_sources = "changed";
  EXPECT_NE(page_of(other).find(">stale<"), std::string::npos);
  EXPECT_EQ(page_of(input_of({})).find("<section id=\"evidence\""), std::string::npos);
  TimedCase alone = timed(1024, 0.5);
  alone.peer = alone.peer_note = "";
  alone.peer_time = {};
  alone.peer_ratio = std::nan("");
  EXPECT_EQ(page_of(input_of({alone})).find("in tf32"), std::string::npos) << "no peer, nothing to say of it";
}

TEST_F(Timings, NoRecordedTextBecomesMarkup) {
  constexpr const char* hostile = "</script><script>alert(1)</script>\" onload=\"x' & \x01\xff";
  TimedCase t = timed(1024, 0.5);
  t.record.line = t.record.kernel = t.record.device = t.record.contract = t.record.system = hostile;
  t.timed = t.ceilings = t.peer = t.peer_note = hostile;
  TimedCase u = t;
  u.T = 2048;
  u.record.line += "2";
  const ReportInput input = input_of({t, u});
  EXPECT_EQ(occurrences(page_of(input), "<script>alert"), 0U);
  for (const Figure& figure : report_data(input).timing_figures)
    EXPECT_EQ(figure.id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos);
}

TEST_F(Timings, PlotsAgainstLengthAndBatch) {
  std::vector<TimedCase> all = {timed(8192, 4.0), timed(1024, 0.5), timed(4096, 2.0)};
  for (const std::int64_t B : {1, 64}) {
    TimedCase decode = timed(1, 0.25, "cuda.gated_delta_rule.recurrent");
    decode.B = B;
    decode.chunk = 0;
    decode.record.line += " B=" + std::to_string(B);
    all.push_back(decode);
  }
  ReportInput input = input_of(all);
  input.sources[0].content.runs.push_back(testing::run());
  input.sources[0].content.runs.back().device = "H200";
  input.sources[0].content.timings.push_back({timed(1024, 1.0), 1});  // one length: no plot
  const ReportData data = report_data(input);
  ASSERT_EQ(data.timing_figures.size(), 2U);
  const Figure& length = data.timing_figures[0];
  ASSERT_EQ(length.curves.size(), 3U) << "kernel, floor, peer";
  EXPECT_NE(length.caption.find("whose float32 products may be tf32"), std::string::npos);
  ASSERT_EQ(length.curves[0].marks.size(), 3U);
  EXPECT_EQ(length.curves[0].marks[0].x, 1024);
  EXPECT_EQ(length.curves[0].marks[0].y, 0.5e6);
  EXPECT_EQ(length.curves[0].marks[0].point, 1) << "the second timing, after no points";
  EXPECT_EQ(length.curves[1].marks[0].y, 0.5e6 / 4) << "the larger floor";
  EXPECT_EQ(length.curves[2].marks[2].y, 4.0e6 * 3);
  EXPECT_EQ(data.timing_figures[1].curves[0].marks[1].x, 64);
  EXPECT_EQ(figures_of(data).size(), 3U);
  EXPECT_TRUE(report_data(input_of({timed(1024, 0.5)})).timing_figures.empty());
}

TEST_F(Timings, AKernelWithoutATimeIsNotDrawn) {
  TimedCase wrong = timed(2048, 1.0);
  wrong.time = {};
  EXPECT_TRUE(report_data(input_of({timed(1024, 0.5), wrong})).timing_figures.empty());
}

}  // namespace
}  // namespace samestate
