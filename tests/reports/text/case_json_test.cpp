#include "reports/text/case_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/reports/records.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

TEST(CaseJson, ADeeperLookStandsBesideTheFirstVerdict) {
  Record first = testing::record(Verdict::vacuous, 0.0, "v1 a");
  first.policy = "gate";
  const std::string object = case_json(first, {});
  EXPECT_EQ(Json::parse(object).at("policy"), "gate");
  EXPECT_FALSE(Json::parse(object).contains("deeper"));
  Record deeper = testing::record(Verdict::pass, 0.7, "v1 a");
  deeper.policy = "deep";
  deeper.judgement.gate = "sampled tensor";
  deeper.judgement.bound = std::numeric_limits<double>::infinity();
  deeper.judgement.held = 0;
  const std::string both = with_deeper(object, deeper);
  EXPECT_EQ(both.find('\n'), both.size() - 1) << "one line, so that many are JSON Lines";
  Json read = Json::parse(both);
  const Json found = read.at("deeper");
  EXPECT_EQ(found.at("policy"), "deep");
  EXPECT_EQ(found.at("verdict"), "pass");
  EXPECT_EQ(found.at("gate"), "sampled tensor");
  EXPECT_EQ(found.at("ratio"), 0.7);
  EXPECT_EQ(found.at("bound"), "inf");
  EXPECT_FALSE(found.contains("held"));
  deeper.judgement.held = 96, deeper.judgement.held_of = 400, deeper.judgement.held_which = "0 1";
  EXPECT_EQ(Json::parse(with_deeper(object, deeper)).at("deeper").at("held_of"), 400);
  read.erase("deeper");
  EXPECT_EQ(read, Json::parse(object)) << "the first verdict stays as it is";
}

}  // namespace
}  // namespace samestate
