#include "reports/text/card.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace samestate {
namespace {

CardRow card() {
  CardRow row;
  row.kernel = "my.kernel";
  row.declared = "bf16";
  row.contract = "bf16+beta_k:bf16";
  row.points = {{"beta_k", "operand", "bf16", 120.0, "keys shared", {}, "", true},
                {"qk", "operands", "fp32", 0.0, "", {{"bf16", 1.0, ""}}, "the same bits", false}};
  row.probes = {{"keys shared", "v1 gated_delta_rule", "", 1e-6, 1e-3},
                {"in-kernel norm", "v1 x", "no l2norm", 0.0, 0.0}};
  row.cases = {{"v1 gated_delta_rule regime=slow", "fail", 1.4}};
  row.farthest = 1e-3;
  row.explained = true;
  return row;
}

TEST(CardText, HasValueEvidenceAndContract) {
  const std::string text = card_text(card());
  for (const char* words :
       {"beta_k  bf16   120 x farther without (keys shared)", "cannot be told apart\nqk  fp32 or bf16",
        "refused   in-kernel norm: no l2norm", "0 of 1 cases pass", "fail, twin 1.4: v1 gated_delta_rule",
        "1 of 2 points told apart", "\ncontract=bf16+beta_k:bf16\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(CardText, SaysWhenNoContractExplains) {
  CardRow row = card();
  row.farthest = 0.5;
  row.explained = false;
  EXPECT_NE(card_text(row).find("no contract of the grammar explains them"), std::string::npos);
  EXPECT_TRUE(card_text(row).ends_with("contract=bf16+beta_k:bf16+card:nearest\n"));
  EXPECT_FALSE(nlohmann::json::parse(card_json(row))["explained"].get<bool>());
}

TEST(CardJson, HoldsEveryPoint) {
  const auto json = nlohmann::json::parse(card_json(card()));
  EXPECT_EQ(json["points"].size(), 2U);
  EXPECT_EQ(json["points"][0]["found"], "bf16");
  EXPECT_TRUE(json["points"][0]["told_apart"].get<bool>());
  EXPECT_EQ(json["points"][1]["like"][0]["value"], "bf16");
  EXPECT_EQ(json["probes"][1]["refused"], "no l2norm");
}

}  // namespace
}  // namespace samestate
