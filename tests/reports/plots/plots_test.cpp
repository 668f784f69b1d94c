#include "reports/plots/plots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "reference/error.h"
#include "tests/reports/points.h"

namespace samestate {
namespace {

using testing::occurrences;
using testing::point;
using testing::record;

const std::vector<std::string> kSources = {"a.jsonl"};
const std::set<std::string> kSizes = {"Hk", "Hv", "dk", "dv"};

Figure simple() {
  Figure figure;
  figure.id = "plot-1";
  figure.title = "a title";
  figure.x = {"tokens", 2, false, false, {}};
  figure.y = {"error", 10, false, false, {}};
  figure.curves = {{"fp32", 0, Curve::Style::line_dots, {{1, 1e-3, 0}, {2, 2e-3, 1}}}};
  return figure;
}

bool no_gnuplot() { return gnuplot_version().empty(); }

TEST(Plots, WhatCannotStandOnALogarithmicAxisIsLeftOut) {
  const double infinity = std::numeric_limits<double>::infinity();
  Figure figure = simple();
  figure.curves[0].marks = {{1, 0.0, 0}, {2, -1.0, 0}, {0, 1.0, 0}, {4, infinity, 0}, {8, std::nan(""), 0}};
  EXPECT_TRUE(figure.empty());
  EXPECT_EQ(gnuplot_script({figure}, "p"), "");
  figure.x.zero_at = 0.5;
  EXPECT_FALSE(figure.empty()) << "zero has a place of its own";
  const std::string script = gnuplot_script({figure}, "p");
  EXPECT_NE(script.find("0.5 1 0 0\nEOD"), std::string::npos) << script;
}

TEST(Plots, NoTextEndsItsStringOrRunsACommand) {
  Figure figure = simple();
  figure.title = "x'; system('touch /tmp/owned')\n`id` \"$(id)\" @m \\";
  figure.curves[0].name = figure.title;
  figure.legend = {{figure.title, 0, Curve::Style::line}};
  const std::string script = gnuplot_script({figure}, "p");
  EXPECT_EQ(script.find("system('"), std::string::npos) << script;
  for (const char* bad : {"`", "\"", "@m", "\\ "}) EXPECT_EQ(script.find(bad), std::string::npos) << bad;
  EXPECT_NE(script.find("set title 'x; system(touch /tmp/owned)id (id) m "), std::string::npos) << script;
}

TEST(Plots, TheSubjectStandsOnALineOfItsOwn) {
  Figure figure = simple();
  figure.title = "a system, slow: error of o' by chunk";
  const std::string script = gnuplot_script({figure}, "p");
  EXPECT_NE(script.find("set title 'a system, slow'.\"\\n\".'error of o by chunk' font"), std::string::npos)
      << script;
}

TEST(Plots, DrawnSvgHoldsItsPointsAndNothingThatRuns) {
  if (no_gnuplot()) GTEST_SKIP() << "gnuplot is not there";
  const std::vector<std::string> svgs = draw({simple(), Figure(), simple()});
  ASSERT_EQ(svgs.size(), 3U);
  EXPECT_EQ(svgs[1], "") << "nothing to draw";
  EXPECT_EQ(svgs[0], svgs[2]) << "the same figure, the same bytes";
  EXPECT_TRUE(svgs[0].starts_with("<svg ")) << svgs[0].substr(0, 80);
  EXPECT_EQ(occurrences(svgs[0], "class=\"mark\""), 2U);
  EXPECT_NE(svgs[0].find("data-point=\"1\"><title>fp32: 0.002 at 2</title>"), std::string::npos);
  EXPECT_EQ(occurrences(svgs[0], "<g"), occurrences(svgs[0], "</g>"));
  for (const char* bad : {"script", "onmouse", "xlink", " id=", "Produced", "rgb(", "black"})
    EXPECT_EQ(svgs[0].find(bad), std::string::npos) << bad;
  const std::string file = svg_file(svgs[0]);
  EXPECT_NE(file.find("prefers-color-scheme:dark"), std::string::npos);
}

TEST(Plots, OnePointIsDrawn) {
  if (no_gnuplot()) GTEST_SKIP() << "gnuplot is not there";
  Figure figure = simple();
  figure.curves[0].marks.resize(1);
  EXPECT_EQ(occurrences(draw({figure})[0], "class=\"mark\""), 1U);
  figure.x.log_base = figure.y.log_base = 0;
  EXPECT_EQ(occurrences(draw({figure})[0], "class=\"mark\""), 1U);
}

TEST(Plots, WithoutGnuplotTheRemedyIsNamed) {
  const char* path = std::getenv("PATH");
  const std::string old = path == nullptr ? "" : path;
  setenv("PATH", "/nonexistent", 1);
  std::string message;
  try {
    (void)draw({simple()});
  } catch (const Error& error) {
    message = error.what();
  }
  setenv("PATH", old.c_str(), 1);
  EXPECT_NE(message.find("gnuplot-nox"), std::string::npos) << message;
  EXPECT_NE(message.find("--no-plots"), std::string::npos) << message;
}

TEST(SweepFigures, AChunkSeriesGivesErrorStateRatioCostAndWhere) {
  const std::vector<SweepPoint> points = {point("bf16", 4, 2e-4), point("bf16", 1, 1e-4),
                                          point("fp32", 1, 1e-8)};
  const std::vector<FigureGroup> groups = sweep_figures(points, kSources, kSizes);
  ASSERT_EQ(groups.size(), 1U);
  std::vector<std::string> ids;
  for (const Figure& figure : groups[0].figures) ids.push_back(figure.id);
  EXPECT_EQ(ids, (std::vector<std::string>{"plot-1-error", "plot-1-state", "plot-1-ratio", "plot-1-cost",
                                           "plot-1-alone-0", "plot-1-alone-2", "plot-1-token",
                                           "plot-1-position", "plot-1-head"}));
  const Curve& rms = groups[0].figures[0].curves[5];
  EXPECT_EQ(rms.name, "bf16, RMS error");
  ASSERT_EQ(rms.marks.size(), 2U);
  EXPECT_EQ(rms.marks[0].point, 1) << "in order of x, by the index of the point";
  EXPECT_EQ(rms.marks[1].point, 0);
}

/// Size 0.05, RMS error 1e-8: what is drawn is 2e-7; the state's 2e-8 over its 0.5 is 4e-8.
TEST(SweepFigures, ErrorsAreOverTheSizeOfWhatIsExpected) {
  const std::vector<SweepPoint> points = {point("fp32", 1, 1e-8)};
  const std::vector<Figure> figures = sweep_figures(points, kSources, kSizes)[0].figures;
  const auto drawn = [&](std::size_t figure, std::size_t curve) {
    return figures[figure].curves[curve].marks[0].y;
  };
  EXPECT_DOUBLE_EQ(drawn(0, 2), 2e-7);
  EXPECT_DOUBLE_EQ(drawn(0, 0), 8e-7) << "its bound";
  EXPECT_DOUBLE_EQ(drawn(1, 2), 4e-8);
  std::vector<SweepPoint> nothing = points;
  nothing[0].measurement.size = 0.0;
  const std::vector<FigureGroup> groups = sweep_figures(nothing, kSources, kSizes);
  ASSERT_EQ(groups.size(), 1U);
  for (const Figure& figure : groups[0].figures)
    EXPECT_NE(figure.id, "plot-1-error") << "nothing was expected: no share of it";
}

TEST(SweepFigures, TheBoundOfAnOperatorIsNamedAWorstCase) {
  std::vector<SweepPoint> points = {point("fp32", 1, 1e-8)};
  const auto caption = [&] { return sweep_figures(points, kSources, kSizes)[0].figures[0].caption; };
  EXPECT_NE(caption().find("the RMS that the bound predicts"), std::string::npos) << caption();
  points[0].measurement.record.judgement.gate = "element";
  EXPECT_NE(caption().find("the RMS of the worst case"), std::string::npos) << caption();
}

TEST(SweepFigures, AGroupSaysTheSizesThatItsCasesShare) {
  std::vector<SweepPoint> points = {point("fp32", 1, 1e-8), point("fp32", 2, 1e-8)};
  for (SweepPoint& p : points)
    p.measurement.record.line = "v1 retention chunk=8 T=256 Hv=2 dk=32 contract=fp32 kernel=a.b.c seed=0x1";
  EXPECT_NE(sweep_figures(points, kSources, kSizes)[0].about.find("128 tokens, Hv=2 dk=32, output"),
            std::string::npos)
      << sweep_figures(points, kSources, kSizes)[0].about;
  points[1].measurement.record.line = "v1 retention chunk=8 T=256 Hv=2 dk=64 seed=0x1";
  EXPECT_EQ(sweep_figures(points, kSources, kSizes)[0].about.find("dk="), std::string::npos);
}

TEST(SweepFigures, ChunkSizesStandFirstAndAnUnknownSeriesIsDrawn) {
  const std::vector<SweepPoint> points = {point("fp32", 1, 1e-8, "temperature"),
                                          point("fp32", 64, 1e-8, "length"), point("fp32", 1, 1e-8)};
  const std::vector<FigureGroup> groups = sweep_figures(points, kSources, kSizes);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].series, "chunk");
  EXPECT_EQ(groups[2].series, "temperature");
  EXPECT_EQ(groups[2].figures[0].x.label, "temperature");
}

TEST(SweepFigures, DecayZeroHasAPlaceBelowTheRest) {
  std::vector<SweepPoint> points = {point("fp32", 0.0, 1e-8, "decay"), point("fp32", 0.0005, 1e-8, "decay")};
  points[0].measurement.record.regime = "none";
  const std::vector<FigureGroup> groups = sweep_figures(points, kSources, kSizes);
  ASSERT_EQ(groups.size(), 1U) << "regimes of one decay curve belong together";
  ASSERT_TRUE(groups[0].figures[0].x.zero_at.has_value());
  EXPECT_NEAR(*groups[0].figures[0].x.zero_at, 1e-4, 1e-12);
}

TEST(SweepFigures, APointThatIsMeasuredAgainReplacesTheFirst) {
  const std::vector<SweepPoint> points = {point("fp32", 1, 1e-8), point("fp32", 2, 1e-8),
                                          point("fp32", 1, 5e-8)};
  const std::vector<SweepPoint> kept = latest(points);
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].measurement.rms_error, 5e-8);
}

TEST(SweepFigures, AdviceNamesTheLastFlatChunk) {
  const std::vector<SweepPoint> points = {point("bf16", 1, 1.0), point("bf16", 4, 1.2),
                                          point("bf16", 16, 1.3), point("bf16", 64, std::nan(""))};
  const std::vector<ChunkAdvice> advice = chunk_advice(points);
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].least_error, 0);
  EXPECT_EQ(advice[0].flat_to, 1) << "1.3 is more than 1.25 times the least";
  EXPECT_EQ(advice[0].least_flops, 0);
  EXPECT_EQ(advice[0].least_bytes, 3);
  EXPECT_EQ(advice[0].failing, 0);
}

// A wrong kernel's figures are of it alone.
TEST(SweepFigures, AdviceSaysThatItsKernelFails) {
  std::vector<SweepPoint> points = {point("bf16", 1, 1.0), point("bf16", 4, 1.2)};
  points[1].measurement.record.judgement.verdict = Verdict::fail;
  points.push_back(points[0]);
  points[2].measurement.record.kernel = "mine";
  const std::vector<ChunkAdvice> advice = chunk_advice(points);
  ASSERT_EQ(advice.size(), 2U);
  EXPECT_EQ(advice[0].failing, 1);
  EXPECT_EQ(advice[1].failing, 0);
}

TEST(SweepFigures, AdviceNamesTheSmallerOfEqualChunksInAnyOrder) {
  std::vector<SweepPoint> points = {point("bf16", 8, 1.0), point("bf16", 4, 1.0), point("bf16", 16, 1.0)};
  for (SweepPoint& p : points) p.measurement.flops = p.measurement.bytes = 7.0;
  const std::vector<ChunkAdvice> advice = chunk_advice(points);
  ASSERT_EQ(advice.size(), 1U);
  EXPECT_EQ(advice[0].least_error, 1);
  EXPECT_EQ(advice[0].least_flops, 1);
  EXPECT_EQ(advice[0].least_bytes, 1);
  EXPECT_EQ(advice[0].flat_to, 2);
}

TEST(RatioFigure, CountsEachJudgedRatioOnce) {
  std::vector<Record> records = {record(Verdict::pass, 0.0),   record(Verdict::pass, 0.05),
                                 record(Verdict::pass, 0.051), record(Verdict::pass, 1.0),
                                 record(Verdict::fail, 1.01),  record(Verdict::fail, std::nan("")),
                                 record(Verdict::skipped, 0.5)};
  const Figure figure = ratio_figure(records);
  double within = 0;
  for (const Mark& mark : figure.curves.at(0).marks) within += mark.y;
  EXPECT_EQ(within, 3);
  EXPECT_EQ(figure.curves[0].marks[0].y, 1) << "0.05 belongs to the first step";
  ASSERT_EQ(figure.curves.at(1).marks.size(), 1U);
  EXPECT_EQ(figure.curves[1].marks[0].y, 2);
  EXPECT_NE(figure.caption.find("6 judged cases (1 of them exactly 0"), std::string::npos) << figure.caption;
  EXPECT_TRUE(ratio_figure({}).empty());
}

}  // namespace
}  // namespace samestate
