#include "reports/records/baseline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <limits>

#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

Record record(const std::string& line, double ratio, Verdict verdict = Verdict::pass) {
  Record r;
  r.line = line;
  r.judgement.verdict = verdict;
  r.judgement.ratio = ratio;
  return r;
}

class BaselineFile : public ::testing::Test {
 protected:
  BaselineFile() : path_(fs::temp_directory_path() / ("samestate-baseline-" + std::to_string(::getpid()))) {}
  ~BaselineFile() override { fs::remove(path_); }
  [[nodiscard]] std::string error(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    try {
      (void)read_baseline(path_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  fs::path path_;
};

TEST_F(BaselineFile, ComesBackBitForBit) {
  const std::vector<Record> records{record("a", 0.1), record("b", 1.0 / 3.0), record("c", 2.0, Verdict::fail),
                                    record("d", 0.0, Verdict::vacuous),
                                    record("e", std::numeric_limits<double>::infinity())};
  const Baseline out = baseline_of(records, "9.9");
  EXPECT_EQ(out.ratios.size(), 2U);
  write_baseline(path_, out);
  const Baseline in = read_baseline(path_);
  EXPECT_EQ(in.version, "9.9");
  EXPECT_EQ(in.ratios, out.ratios);
}

TEST_F(BaselineFile, DamagedOnesAreErrors) {
  EXPECT_NE(error("").find("no baseline"), std::string::npos);
  EXPECT_NE(error("[]").find("no baseline"), std::string::npos);
  EXPECT_EQ(lacking(error("{\"schema\": 2}"), "schema 2 1"), "");
  EXPECT_NE(error("{\"schema\": 1}").find("damaged"), std::string::npos);
  EXPECT_NE(error("{\"schema\":1,\"samestate\":\"x\",\"ratios\":{\"a\":\"b\"}}").find("'a'"),
            std::string::npos);
  EXPECT_NE(error("{\"schema\":1,\"samestate\":\"x\",\"ratios\":{\"a\":-1}}").find("-1"), std::string::npos);
  fs::remove(path_);
  EXPECT_THROW((void)read_baseline(path_), Error);
}

TEST(Baseline, GrowthAboveFactorAndFloorIsARegression) {
  const Baseline before{"1",
                        {{"grew", 0.2},
                         {"a little", 0.2},
                         {"low", 0.01},
                         {"most", 0.1},
                         {"gone", 0.5},
                         {"zero", 0.0},
                         {"failed", 0.3}}};
  const std::vector<Record> now{record("grew", 0.41),
                                record("a little", 0.4),
                                record("low", 0.1),
                                record("most", 0.9),
                                record("new", 0.9),
                                record("zero", 0.2),
                                record("failed", 7.0, Verdict::fail)};
  const BaselineReport report = compare_with(before, now, 2.0);
  ASSERT_EQ(report.grown.size(), 3U);
  EXPECT_EQ(now[report.grown[0].record].line, "zero");
  EXPECT_EQ(now[report.grown[1].record].line, "most");
  EXPECT_EQ(now[report.grown[2].record].line, "grew");
  EXPECT_EQ(report.grown[2].before, 0.2);
  EXPECT_EQ(report.compared, 5);
  EXPECT_EQ(report.unknown, 1);
  EXPECT_EQ(report.not_run, 1);
}

}  // namespace
}  // namespace samestate
