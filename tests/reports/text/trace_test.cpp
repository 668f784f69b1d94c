#include "reports/text/trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace samestate {
namespace {

/// Two warps of 10 us: the first waits twice, the second never and ends early.
BlockTrace small() {
  BlockTrace trace;
  trace.variant = "prefill <split>";
  trace.block = 3, trace.blocks = 8;
  trace.clock = 1.755e9;
  trace.roles = {"loads K", "carries S"};
  trace.ends = {10e-6, 6e-6};
  trace.waits = {{0, "K empty", 1e-6, 4e-6}, {0, "flags", 4e-6, 5e-6}, {0, "K empty", 8e-6, 9e-6}};
  return trace;
}

TEST(TraceText, SharesOfEveryRole) {
  EXPECT_EQ(trace_text(small()),
            "Block 3 of 8, prefill <split>: 10.0 us at 1755 MHz\n"
            "warps  role       us    works  waits for\n"
            "0      loads K    10.0  50 %   K empty 40 %, flags 10 %\n"
            "1      carries S  6.0   100 %  -\n");
}

TEST(TraceText, TakesTheWidth) {
  EXPECT_EQ(trace_text(small(), 44).substr(trace_text(small(), 44).find('\n') + 1),
            "warps  role       us    works  waits for\n"
            "0      loads K    10.0  50 %   K empty 40 %,\n"
            "                               flags 10 %\n"
            "1      carries S  6.0   100 %  -\n");
}

TEST(TraceText, WarpsOfOneRoleAreOneLineAWarpgroup) {
  BlockTrace trace = small();
  trace.roles.assign(12, "carries S");
  trace.ends.assign(12, 5e-6);
  trace.waits = {{5, "products", 0.0, 4e-6}};
  trace.complete = false;
  const std::string text = trace_text(trace);
  EXPECT_NE(text.find("4-7    carries S  5.0  80 %   products 20 %\n"), text.npos) << text;
  EXPECT_NE(text.find("8-11 "), text.npos) << text;
  EXPECT_NE(text.find("not kept"), text.npos) << text;
}

TEST(TraceEvents, WorkAndWaitsFillEveryWarpsTime) {
  const auto file = nlohmann::json::parse(trace_events(small()));
  EXPECT_EQ(file.at("otherData").at("clock_hz"), 1.755e9);
  std::map<int, double> until;
  std::vector<std::string> names;
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("ph") == "M") continue;
    const int warp = event.at("tid");
    EXPECT_NEAR(event.at("ts").get<double>(), until[warp], 1e-9);
    until[warp] += event.at("dur").get<double>();
    if (warp == 0) names.push_back(event.at("name"));
  }
  EXPECT_NEAR(until[0], 10.0, 1e-9);
  EXPECT_NEAR(until[1], 6.0, 1e-9);
  EXPECT_EQ(names, (std::vector<std::string>{"work", "K empty", "flags", "work", "K empty", "work"}));
}

TEST(TraceSvg, DrawsWhatLiesInTheWindowAndEscapesNames) {
  const std::string svg = trace_svg(small(), 3e-6, 6e-6);
  EXPECT_NE(svg.find("prefill &lt;split&gt;"), svg.npos);
  EXPECT_EQ(svg.find("<split>"), svg.npos);
  // K is empty from 3 to 4 of the 3 us that 900 units show, and flags come after it.
  EXPECT_NE(svg.find("<rect x=\"190.00\" y=\"28\" width=\"300.00\""), svg.npos) << svg;
  EXPECT_NE(svg.find("<title>flags 1.000 µs</title>"), svg.npos) << svg;
  EXPECT_EQ(svg.find("K empty 1.000"), svg.npos) << "the second wait for K lies behind the window";
  EXPECT_NE(svg.find("waits: K empty"), svg.npos);
}

}  // namespace
}  // namespace samestate
