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
       {"beta_k  bf16   120 x farther without (keys shared)",
        "cannot be told apart\npoint  values        why\nqk     fp32 or bf16  the same bits",
        "refused   in-kernel norm: no l2norm", "0 of 1 cases pass", "fail, twin 1.4: v1 gated_delta_rule",
        "1 of 2 points told apart", "\ncontract=bf16+beta_k:bf16\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

TEST(CardText, TablesTakeTheWidth) {
  CardRow row = card();
  row.points[1].why =
      "no probe of this search reaches the point, and the values of all of them are the same bits";
  EXPECT_NE(card_text(row, 60).find("cannot be told apart\n"
                                    "point  values        why\n"
                                    "qk     fp32 or bf16  no probe of this search reaches the\n"
                                    "                     point, and the values of all of them\n"
                                    "                     are the same bits\n"),
            std::string::npos)
      << card_text(row, 60);
}

TEST(CardText, SaysWhatIsASignAndNoProof) {
  CardRow row = card();
  EXPECT_EQ(card_text(row).find("likely"), std::string::npos);
  row.points[0].without = 6.0;
  row.points[0].told = false;
  row.points[0].likely = true;
  EXPECT_NE(card_text(row).find("6 x farther without (keys shared): likely, not told apart"),
            std::string::npos);
}

TEST(CardText, NamesTensorsThatAreRoundedAlone) {
  CardRow row = card();
  row.explained = false;
  row.loads_alone = "v alone";
  row.loads_alone_format = "bf16";
  EXPECT_NE(card_text(row).find("perhaps   v alone is rounded to bf16 as loaded"), std::string::npos);
  row.loads_alone = "q and k";
  EXPECT_NE(card_text(row).find("perhaps   q and k are rounded to bf16 as loaded"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(card_json(row))["rounds_alone"], "q and k");
}

TEST(CardText, NamesValuesThatAreNoNumbers) {
  CardRow row = card();
  row.probes[0].nonfinite = "o of sequence 0, token 9, head 0, channel 5 is nan; look at it";
  row.probes[0].explained = row.explained = false;
  const std::string text = card_text(row);
  EXPECT_NE(text.find("no number keys shared: o of sequence 0, token 9"), std::string::npos) << text;
  EXPECT_NE(text.find("verdict   outputs are not finite"), std::string::npos) << text;
  // Without finite outputs there is no contract either.
  row.contract = "";
  row.points.clear();
  EXPECT_EQ(card_text(row).find("\ncontract="), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(card_json(row))["contract"].is_null());
}

TEST(CardText, SaysAfterHowManyCasesTheGateWasCut) {
  CardRow row = card();
  row.cases_planned = 7;
  EXPECT_NE(card_text(row).find("gate      interrupted after 1 of 7 cases, of which 0 pass under it\n"),
            std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(card_json(row))["contract"], "bf16+beta_k:bf16") << "the search was done";
  row.stopped = "interrupted";
  EXPECT_TRUE(nlohmann::json::parse(card_json(row))["contract"].is_null()) << "of half a search";
}

TEST(CardText, SaysWhenNoContractExplains) {
  CardRow row = card();
  row.farthest = 0.5;
  row.worst = "keys shared";
  row.probes[0].left = 0.5;
  row.probes[0].explained = false;
  row.probes.insert(row.probes.begin(), {"keys apart", "v1 x", "", 1e-9, 1e-3, 1e-6});
  row.explained = false;
  row.twice = {"beta_exp_k"};
  const std::string text = card_text(row);
  for (const char* words :
       {"fit       at most 0.5 of the error of the outputs is left (probe keys shared)",
        "probes    1 of 2 are explained; not keys shared (0.5)", "perhaps   beta_exp_k: ",
        "verdict   no contract of the grammar explains all probes: exit 1, whatever the gate's cases say"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  }
  const auto json = nlohmann::json::parse(card_json(row));
  EXPECT_EQ(json["worst_probe"], "keys shared");
  EXPECT_EQ(json["probes"][1]["error_left"], 0.5);
  EXPECT_FALSE(json["probes"][1]["explained"].get<bool>());
  EXPECT_FALSE(json["holds"].get<bool>());
  EXPECT_TRUE(card_text(row).ends_with("contract=bf16+beta_k:bf16+card:nearest\n"));
  EXPECT_FALSE(nlohmann::json::parse(card_json(row))["explained"].get<bool>());
}

// The exit code is not that of the gate's cases, and each says what it stands for.
TEST(CardText, VerdictAgreesWithTheExitCode) {
  CardRow row = card();
  EXPECT_FALSE(card_holds(row));  // a case of the gate fails
  EXPECT_NE(card_text(row).find("a case of the gate fails under it: exit 1"), std::string::npos);
  for (const char* verdict : {"pass", "vacuous", "unsupported: no device"}) {
    row.cases[0].verdict = verdict;
    EXPECT_TRUE(card_holds(row)) << verdict;
  }
  EXPECT_NE(
      card_text(row).find("verdict   the contract explains the probes that have outputs; of the others"),
      std::string::npos);
  EXPECT_NE(card_text(row).find("unknown   1 of 2 probes have no outputs"), std::string::npos);
  row.probes.pop_back();
  EXPECT_NE(card_text(row).find("verdict   the contract explains the probes\n"), std::string::npos);
  EXPECT_EQ(card_text(row).find("unknown"), std::string::npos);
}

TEST(CardText, NamesTheGateThatFailed) {
  CardRow row = card();
  row.cases = {{"v1 gated_delta_rule regime=slow", "fail", 0.0, 1.7, "law merge"}};
  EXPECT_NE(card_text(row).find("fail by law merge (ratio 1.7), twin 0: v1"), std::string::npos)
      << card_text(row);
  EXPECT_EQ(nlohmann::json::parse(card_json(row))["cases"][0]["gate"], "law merge");
}

TEST(CardText, SaysThatInputsAreRoundedAsTheyAreLoaded) {
  CardRow row = card();
  EXPECT_EQ(card_text(row).find("inputs "), std::string::npos);
  row.loads = "fp16";
  EXPECT_NE(card_text(row).find("inputs    q, k and v are rounded to fp16 as they are loaded"),
            std::string::npos);
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
