#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/error.h"
#include "reports/text/aligned.h"
#include "reports/text/bench.h"
#include "reports/text/equations.h"
#include "reports/text/identities.h"
#include "reports/text/mutants_json.h"
#include "reports/text/sweep_answer.h"
#include "tests/reports/records.h"

/// Tests the output of the verbs with tables of their own: aligned.h, bench.h, equations.h, identities.h,
/// mutants.h.
namespace samestate {
namespace {

using testing::occurrences;

MutantRow mutant(const std::string& name, bool killed, const std::string& equivalent = "") {
  MutantRow row;
  row.bug = "M13";
  row.name = name;
  row.system = "retention";
  row.form = "chunked";
  row.summary = "a | b";
  row.equivalent = equivalent;
  row.killed = killed;
  row.gate = killed ? "row" : "";
  row.line = "v1 retention T=9";
  row.cases = killed ? 7 : 90;
  row.planned = 90;
  row.ratio = killed ? std::numeric_limits<double>::infinity() : 0.5;
  row.seconds = 0.25;
  return row;
}

MutantTable mutants() {
  MutantTable table;
  table.rows = {mutant("dead", true), mutant("alive", false), mutant("same", false, "by symmetry"),
                mutant("alarm", true, "by symmetry")};
  table.rules = {{"fla", "rel < 1e-3", "test.py"}};
  table.rows[0].rules = {{"fla", false, 4, 0, 1}};
  table.not_modelled = {{"M73", "a backward pass"}};
  return table;
}

TEST(Mutants, EquivalentOnesAreNotScoredAndMustSurvive) {
  const MutantSummary summary = summarise(mutants());
  EXPECT_EQ(summary.score.killed, 1);
  EXPECT_EQ(summary.score.all, 2);
  EXPECT_EQ(summary.score.percent(), 50.0);
  EXPECT_EQ(summary.equivalent, 2);
  EXPECT_EQ(summary.survivors, (std::vector<std::size_t>{1}));
  EXPECT_EQ(summary.wrongly_killed, (std::vector<std::size_t>{3}));
  EXPECT_EQ(summary.by_rule.at("fla").killed, 0);
  EXPECT_EQ(summarise(MutantTable{}).score.percent(), 0.0);
}

TEST(Mutants, ARowGoesOnALineAndBack) {
  for (const MutantRow& row : mutants().rows) {
    const std::string line = mutant_line(row);
    EXPECT_EQ(line.find('\n'), line.npos);
    EXPECT_EQ(mutant_line(parse_mutant_line(line)), line);
    EXPECT_EQ(parse_mutant_line(line).ratio, row.ratio);
    EXPECT_EQ(parse_mutant_line(line).rules.size(), row.rules.size());
  }
  EXPECT_THROW((void)parse_mutant_line("{"), Error);
  EXPECT_THROW((void)parse_mutant_line("{\"bug\": 1}"), Error);
}

TEST(Mutants, TextMarkdownAndJsonSayTheSame) {
  const MutantTable table = mutants();
  const MutantSummary summary = summarise(table);
  const std::string text = mutants_text(table, summary);
  EXPECT_NE(text.find("killed by row after 7 cases, ratio inf\n     fla: passes\n"), text.npos) << text;
  EXPECT_NE(text.find("SURVIVES 90 cases, worst ratio 0.5 (equivalent)"), text.npos);
  EXPECT_NE(text.find("survivor: alive: a | b\n"), text.npos);
  EXPECT_NE(text.find("false alarm: alarm is equivalent (by symmetry)"), text.npos);
  const std::string page = mutants_markdown(table, summary);
  EXPECT_NE(page.find("1 of 2 killed (50.0 %)."), page.npos);
  EXPECT_NE(page.find("| fla: rel &lt; 1e-3 (test.py) | 0 of 1 | 0.0 % |"), page.npos) << page;
  EXPECT_NE(page.find("| M13 | dead | a \\| b | row | 7 | inf | passes |"), page.npos) << page;
  EXPECT_NE(page.find("| M13 | alive | a \\| b | survives | 90 | 0.5 | |"), page.npos) << page;
  const auto json = nlohmann::json::parse(mutants_json(table, summary, {}));
  EXPECT_EQ(json["killed"], 1);
  EXPECT_EQ(json["mutants"][0]["ratio"], "inf") << "JSON has no infinity";
  EXPECT_EQ(json["mutants"][0]["rules"]["fla"]["false_alarms"], 1);
  EXPECT_FALSE(json["mutants"][1].contains("rules")) << "it was not shown to them";
  EXPECT_EQ(json["not_modelled"]["M73"], "a backward pass");
}

TEST(Equations, ARowThatFailsIsCountedWhereverItIsShown) {
  const std::vector<EquationRow> rows = {
      {"A-1", "000", "first", "L1", "norms", "x < y * z", "OK*", "holds", "1 = 1", 2, 1e-16},
      {"B-1", "001", "second", "L2", "costs", "s", "ERRATUM", "failed", "1 != 2", 1, 0.5}};
  const std::string text = equations_text(rows);
  EXPECT_NE(text.find("000: first\n"), text.npos);
  EXPECT_NE(text.find("\n\n2 rows, 1 holds, 1 failed\n"), text.npos) << text;
  const std::string page = equations_markdown(rows);
  EXPECT_NE(page.find("| A-1 | L1 | norms | x &lt; y \\* z | OK\\* | holds | 1 = 1 |"), page.npos) << page;
  EXPECT_NE(page.find("\n## 001: second\n"), page.npos);
  const auto json = nlohmann::json::parse(equations_json(rows));
  EXPECT_EQ(json[1]["outcome"], "failed");
  EXPECT_EQ(json[0]["checks"], 2);
}

TEST(Identities, TheResidualOfANegativeControlIsNoneThatVanishes) {
  const std::vector<IdentityRow> rows = {{"EQ-02", "a", "norms", "p = q", "equal", 1e-16, 1e-50, true},
                                         {"X-1", "b", "norms", "p = r", "differs", 0.5, 0.5, true},
                                         {"EQ-03", "c", "norms", "q = r", "exact", 1e-3, 1e-3, false}};
  const std::string text = identities_text(rows);
  EXPECT_NE(
      text.find("3 identities, 1 not as expected; largest residual that should vanish 1.00e-03 in float64"),
      text.npos)
      << text;
  EXPECT_EQ(occurrences(text, "FAIL"), 1U);
  EXPECT_NE(identities_text(std::span(rows).first(1)).find("1 identity, 0 not"), text.npos);
  EXPECT_EQ(nlohmann::json::parse(identities_json(rows))[2]["passed"], false);
}

TEST(Bench, AWrongKernelHasNoTimeAndIsNamedWithItsCommand) {
  TimedCase good;
  good.record = testing::record(Verdict::pass, 0.5, "v1 retention T=9");
  good.time = {1e-3, 9e-4, 2e-3, 5};
  good.share = 0.25;
  good.operations = 2'000'000'000;
  good.peer = "fla", good.peer_ratio = 2.0, good.peer_time = {2e-3, 2e-3, 2e-3, 5};
  TimedCase wrong;
  wrong.record = testing::record(Verdict::fail, 2.0, "v1 retention T=10");
  wrong.peer_note = "no such shape";
  const std::vector<TimedCase> all = {good, wrong};
  const std::string text = bench_text(
      all, std::vector<DeviceRates>{{"cpu", 1e10, 0.0, 0.0, "a note"}, {"H100", 3e12, 7e14, 0.0, "b"}});
  EXPECT_NE(text.find("1 ms"), text.npos) << text;
  EXPECT_NE(text.find("25.0 %"), text.npos);
  EXPECT_NE(text.find("fla 2 ms (2x)"), text.npos);
  EXPECT_NE(text.find("Ceilings of cpu: a note.\n"), text.npos);
  EXPECT_NE(text.find("Ceilings of H100: copy 3000 GB/s, products bf16 700 and fp32 - TFLOP/s (b).\n"),
            text.npos);
  EXPECT_NE(text.find("No time of the peer in 1 case(s): no such shape\n"), text.npos);
  EXPECT_NE(text.find("fail: because: samestate bench --case 'v1 retention T=10'\n"), text.npos);
  EXPECT_NE(text.find("not counted"), text.npos) << "a floor of no operations is none";
  const auto json = nlohmann::json::parse(bench_json(all));
  EXPECT_EQ(json[0]["median"], 1e-3);
  EXPECT_TRUE(json[1]["median"].is_null()) << "no time, no number";
}

TEST(Bench, OwnSizesStandWhereHeadsWould) {
  TimedCase t;
  t.record = testing::record(Verdict::pass, 0.5, "v1 rms_norm T=9");
  t.sizes = "H=2 D=32";
  t.heads = 4, t.heads_judged = 2;
  const std::string text = bench_text(std::span(&t, 1), {});
  EXPECT_NE(text.find("H=2 D=32"), text.npos) << text;
  EXPECT_NE(text.find("(2 of 4 sequences)"), text.npos);
}

TEST(Bench, RanksAndTheirCutsStandInTheRow) {
  TimedCase t;
  t.record = testing::record(Verdict::pass, 0.5, "v1 retention form=sequence_parallel ranks=7 cuts=drawn");
  t.T = 65, t.Hk = 1, t.Hv = 2, t.dk = 4, t.dv = 4, t.chunk = 16;
  EXPECT_EQ(bench_text(std::span(&t, 1), {}).find("ranks="), std::string::npos);
  t.ranks = 1;
  EXPECT_NE(bench_text(std::span(&t, 1), {}).find("d4x4 C16 ranks=1  "), std::string::npos);
  t.ranks = 7, t.cuts = "drawn";
  const std::string text = bench_text(std::span(&t, 1), {});
  EXPECT_NE(text.find("B1 T65 H1/2 d4x4 C16 ranks=7 cuts=drawn  "), text.npos) << text;
  const auto json = nlohmann::json::parse(bench_json(std::span(&t, 1)));
  EXPECT_EQ(json[0]["ranks"], 7);
  EXPECT_EQ(json[0]["cuts"], "drawn");
}

TEST(Bench, ARowTakesTheWidthOfTheTerminal) {
  TimedCase t;
  t.record = testing::record(Verdict::pass, 0.5, "v1 retention T=9");
  t.time = {1e-3, 9e-4, 2e-3, 5};
  t.timed = "graph", t.variant = "prefill, fused 64", t.clock = 1.98e9, t.power = 440.0, t.slowed = "power";
  const std::string text = bench_text(std::span(&t, 1), {}, 80);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  for (const char* words :
       {"  1 ms    900 us..2 ms  graph\n", "\n    variant: prefill, fused 64; ", "verdict: pass\n"})
    EXPECT_NE(text.find(words), text.npos) << words << "\n" << text;
}

TEST(SweepAnswers, AValueThatALineLeavesOutIsTheOneAskedFor) {
  const auto point = [](const char* line, double x) {
    Measurement m;
    m.record = testing::record(Verdict::pass, 0.5, line);
    m.curve = "retention fp32 normal", m.x = x, m.tokens = 16, m.size = 1.0, m.rms_error = 1e-7;
    return m;
  };
  const std::vector<Measurement> words = {point("v1 retention T=16 final=none", 1.0),
                                          point("v1 retention T=16", 2.0)};
  const std::string text = sweep_answers(words, "final", {"none", "apart"}).front();
  EXPECT_NE(text.find("final=none, apart pass"), text.npos) << text;
  const std::vector<Measurement> numbers = {point("v1 retention T=16 chunk=2", 2.0),
                                            point("v1 retention T=16", 64.0)};
  const std::string chunks = sweep_answers(numbers, "chunk", {"2", "64"}).front();
  EXPECT_NE(chunks.find("chunk=2, 64 pass"), text.npos) << chunks;
}

TEST(Aligned, ColumnsBeginBelowEachOther) {
  EXPECT_EQ(aligned({{"a", "bb", "c"}, {"aaa", "b", "cc"}}), "a    bb  c\naaa  b   cc\n");
  EXPECT_EQ(aligned({}), "");
}

}  // namespace
}  // namespace samestate
