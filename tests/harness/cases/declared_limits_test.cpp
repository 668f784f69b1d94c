#include "harness/cases/declared_limits.h"

#include <gtest/gtest.h>

#include "harness/cases/case_line.h"
#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

bool holds(const std::string& condition, const std::string& line) {
  const Case c = parse_case("v1 " + line);
  return DeclaredLimits(std::span(&condition, 1), system_named(c.system)).hold(c);
}

TEST(DeclaredLimits, EveryComparison) {
  const std::string line = "gated_delta_rule dk=64 dv=48 Hk=2 Hv=4 T=100 chunk=32 contract=bf16 heads=tiled";
  for (const char* condition : {"dk <= 64",
                                "dk >= 64",
                                "dk = 64",
                                "dk != 63",
                                "dv % 16 = 0",
                                "dv % 32 = 16",
                                "chunk in 16 32 64",
                                "dk in 1..64",
                                "dk in 64..64",
                                "dv <= dk",
                                "Hv >= Hk",
                                "contract = bf16",
                                "contract in fp32 bf16",
                                "heads = tiled",
                                "heads != interleaved",
                                "l2norm = 0",
                                "state = none",
                                "layout = dense",
                                "sequences <= 1",
                                "dk<=64",
                                "T >= 100",
                                "form = chunked"})
    EXPECT_TRUE(holds(condition, line)) << condition;
  for (const char* condition :
       {"dk <= 63", "dk >= 65", "dk = 63", "dk != 64", "dv % 32 = 0", "chunk in 16 64", "dk in 65..99",
        "dk <= dv", "contract = fp32", "contract in fp32 tf32", "heads = interleaved", "l2norm = 1",
        "state != none", "sequences >= 2", "form = packed", "form != chunked"})
    EXPECT_FALSE(holds(condition, line)) << condition;
}

/// Tokens of the shortest and of the longest sequence; without packing every sequence has T.
TEST(DeclaredLimits, LengthsOfSequences) {
  const std::string packed = "gated_delta_rule form=packed lengths=1,0,7";
  for (const char* condition :
       {"shortest = 0", "longest = 7", "shortest <= 0", "longest in 7..8", "sequences = 3"})
    EXPECT_TRUE(holds(condition, packed)) << condition;
  for (const char* condition : {"shortest >= 1", "longest >= 8", "shortest != 0", "longest <= 6"})
    EXPECT_FALSE(holds(condition, packed)) << condition;
  EXPECT_TRUE(holds("shortest >= 1", "gated_delta_rule form=packed lengths=1,2"));
  EXPECT_TRUE(holds("shortest = 5", "gated_delta_rule B=3 T=5"));
  EXPECT_TRUE(holds("longest <= 5", "rms_norm B=3 T=5"));
}

/// Tests what a function with a decay or a scale of its own declares.
TEST(DeclaredLimits, OfScaleAndRegime) {
  const System& system = system_named("retention");
  const std::vector<std::string> conditions{"regime = retnet", "scale in default -0.5 2"};
  const DeclaredLimits limits(conditions, system);
  EXPECT_TRUE(limits.hold(parse_case("v1 retention T=4 regime=retnet")));
  EXPECT_TRUE(limits.hold(parse_case("v1 retention T=4 regime=retnet scale=-0.5")));
  EXPECT_FALSE(limits.hold(parse_case("v1 retention T=4 regime=retnet scale=1")));
  EXPECT_FALSE(limits.hold(parse_case("v1 retention T=4")));
}

TEST(DeclaredLimits, ACondition) {
  EXPECT_TRUE(holds("dk <= 128 if contract = bf16", "gated_delta_rule dk=256"));
  EXPECT_FALSE(holds("dk <= 128 if contract = bf16", "gated_delta_rule dk=256 contract=bf16"));
  EXPECT_TRUE(holds("chunk in 16 32 if contract in bf16 fp16", "gated_delta_rule chunk=32 contract=fp16"));
  EXPECT_FALSE(holds("chunk in 16 32 if contract in bf16 fp16", "gated_delta_rule chunk=64 contract=fp16"));
}

TEST(DeclaredLimits, LawsThatChangeTheDecay) {
  EXPECT_TRUE(holds("law != reset", "retention T=8 regime=retnet"));
  EXPECT_FALSE(holds("law != reset", "retention T=8 regime=retnet law=reset"));
  EXPECT_TRUE(holds("law in none split", "retention T=8"));
  EXPECT_TRUE(holds("law in none split", "retention T=8 law=split"));
  EXPECT_FALSE(holds("law in none split", "retention T=8 law=reset"));
}

TEST(DeclaredLimits, SizesOfASystemOfNamedTensors) {
  EXPECT_TRUE(holds("D % 4 = 0", "rms_norm D=64"));
  EXPECT_FALSE(holds("D % 4 = 0", "rms_norm D=65"));
  EXPECT_FALSE(holds("B <= 2", "rms_norm B=3"));
}

TEST(DeclaredLimits, TheFirstThatIsBrokenIsNamed) {
  const std::vector<std::string> both{"dk <= 64", "dv <= 64"};
  const DeclaredLimits limits(both, system_named("retention"));
  EXPECT_EQ(limits.text(), "dk <= 64, dv <= 64");
  EXPECT_EQ(limits.broken_by(parse_case("v1 retention dk=65 dv=65")), "dk <= 64");
  EXPECT_EQ(limits.broken_by(parse_case("v1 retention dk=64 dv=65")), "dv <= 64");
  EXPECT_EQ(limits.broken_by(parse_case("v1 retention")), "");
  EXPECT_EQ(DeclaredLimits().text(), "none");
  EXPECT_TRUE(DeclaredLimits().hold(parse_case("v1 retention dk=4096")));
}

TEST(DeclaredLimits, WhatCannotBeReadNamesConditionValueAndRemedy) {
  const auto refusal = [](const std::string& condition) -> std::string {
    try {
      (void)DeclaredLimits(std::span(&condition, 1), system_named("gated_delta_rule"));
      return {};
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(refusal("dk <= 64"), "");
  for (const auto& [condition, facts] : std::vector<std::pair<std::string, std::string>>{
           {"width <= 8", "'width' gated_delta_rule Hk, Hv, dk, dv"},
           {"seed <= 8", "'seed' run"},
           {"law = resett", "law=resett"},
           {"dk < 64", "'<' KEY <= N"},
           {"dk <=", "ends number"},
           {"dk <= many", "'many' key"},
           {"dk <= contract", "'contract' number"},
           {"dk <= -1", "'-1'"},
           {"dk % 0 = 0", "least 1"},
           {"dk % 8", "ends `=`"},
           {"chunk in 64..1", "range"},
           {"chunk in 16 x", "chunk=x number"},
           {"contract = bf61", "bf61"},
           {"contract <= bf16", "'contract' order contract in"},
           {"regime in 1..3", "'regime' order"},
           {"regime = foo", "regime=foo gated_delta_rule"},
           {"heads = mixed", "heads=mixed"},
           {"form = decode", "gated_delta_rule chunked, recurrent"},
           {"dk <= 64 or dv <= 64", "'or' after"},
           {"dk <= 64 if", "ends key"},
           {"dk <= 64 if T = 1 if B = 1", "'if' after"},
           {"dk <= 99999999999999999999", "64 bits"},
           {"", "ends key"}}) {
    const std::string said = refusal(condition);
    EXPECT_NE(said.find("limit '" + condition + "'"), std::string::npos) << condition << ": " << said;
    EXPECT_EQ(lacking(said, facts), "") << condition << ": " << said;
  }
}

TEST(DeclaredLimits, TheNearestCaseLiesInside) {
  const std::vector<std::string> conditions{"dk <= 128",      "dk % 16 = 0", "dv in 32..64",
                                            "chunk in 16 64", "T >= 1",      "B = 1",
                                            "Hk != 3",        "Hv >= Hk",    "dk = 1 if B = 7"};
  const DeclaredLimits limits(conditions, system_named("gated_delta_rule"));
  for (const char* line : {"gated_delta_rule dk=200 dv=7 chunk=33 T=0 B=4 Hk=3 Hv=3",
                           "gated_delta_rule dk=3 dv=300 chunk=1", "gated_delta_rule"}) {
    const Case c = limits.nearest(parse_case(std::string("v1 ") + line));
    EXPECT_EQ(limits.broken_by(c), "") << line;
  }
  const Case c = limits.nearest(parse_case("v1 gated_delta_rule dk=200 dv=7 chunk=33 T=0 B=4"));
  EXPECT_EQ(c.dk, 128);
  EXPECT_EQ(c.dv, 32);
  EXPECT_EQ(c.chunk, 16);
  EXPECT_EQ(c.T, 1);
  EXPECT_EQ(c.B, 1);
}

}  // namespace
}  // namespace samestate
