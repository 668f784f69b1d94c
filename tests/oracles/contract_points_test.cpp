#include "oracles/contract_points.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "oracles/contracts.h"
#include "reference/error.h"
#include "tests/harness/random_contract.h"
#include "tests/oracles/contract_error.h"

namespace samestate {
namespace {

std::string all_points(const Contract& c) {
  std::string out;
  for (const ContractPoint& point : contract_points()) out += point.value(c) + " ";
  return out;
}

TEST(ContractPoints, TheNamedRowsMeanWhatTheyMeant) {
  // In the order of contract_points(): what the fields of these contracts were before the grammar made them.
  EXPECT_EQ(all_points(contract_named("fp32")),
            "fp32 operand fp32 sequential exact difference none fp32 substitution pairwise fp32 no fp32 fp32 "
            "fp32 fp32 "
            "fp32 none fp32 fp32 no none fp32 none fp32 no fp32 fp32 exact ");
  EXPECT_EQ(all_points(contract_named("bf16")),
            "bf16 operand fp32 sequential ex2 difference none fp32 substitution pairwise bf16 no bf16 bf16 "
            "bf16 bf16 "
            "bf16 none bf16 bf16 no none bf16 none fp32 no bf16 tensor_core exact ");
  EXPECT_EQ(all_points(contract_named("tf32_truncated")),
            "fp32 operand tf32_truncated sequential ex2 difference none fp32 substitution pairwise "
            "tf32_truncated no "
            "tf32_truncated tf32_truncated fp32 tf32_truncated tf32_truncated none tf32_truncated "
            "tf32_truncated no "
            "none tf32_truncated none fp32 no fp32 tensor_core exact ");
  EXPECT_EQ(all_points(contract_named("bf16_fused_state")),
            "bf16 factor fp32 tree ex2 gate none fp32 block8/tf32 pairwise bf16 no none none none none "
            "bf16 bf16 "
            "bf16 bf16 yes none bf16 none bf16 yes bf16 tensor_core exact ");
  EXPECT_EQ(all_points(contract_named("fp32_fused")),
            "fp32 factor fp32 tree exact difference none fp32 block8/fp32 pairwise fp32 no none none none "
            "none fp32 "
            "fp32 fp32 fp32 yes none fp32 none fp32 yes fp32 fp32 exact ");
}

TEST(ContractPoints, CanonicalTextsAreSortedAndName) {
  EXPECT_EQ(contract_named("bf16+inverse:block16/tf32_truncated+beta_k:bf16").name,
            "bf16+beta_k:bf16+inverse:block16/tf32_truncated");
  EXPECT_EQ(contract_named("bf16+inverse:block16/tf32").name, "bf16_block16_tf32");
  EXPECT_EQ(contract_named("bf16_state_out_fp32+output:bf16").name, "bf16_state");
  EXPECT_EQ(contract_named("bf16+U:bf16").name, "bf16");
  // A value that a residual implies is not printed.
  EXPECT_EQ(contract_named("bf16+residual:bf16").name, "bf16+residual:bf16");
  EXPECT_EQ(contract_named("bf16+residual:bf16").U, Format::none);
  EXPECT_EQ(&contract_named("bf16+beta_k:bf16"), &contract_named("bf16+beta_k:bf16"));
  EXPECT_EQ(base_of(contract_named("bf16+beta_k:bf16")), "bf16");
}

TEST(ContractPoints, EveryContractSurvivesItsText) {
  std::mt19937_64 random(7);
  for (int n = 0; n < 500; ++n) {
    const Format input = n % 3 == 0 ? Format::bf16 : n % 3 == 1 ? Format::fp16 : Format::fp32;
    const Contract& c = testing::random_contract(random, 1 + n % 8, input);
    const Contract& again = contract_named(c.name);
    EXPECT_EQ(again.name, c.name);
    EXPECT_TRUE(same_points(again, c)) << c.name;
    Contract settled = c;
    settle(settled);
    EXPECT_TRUE(same_points(settled, c)) << c.name;
  }
}

TEST(ContractPoints, ErrorsNameTheValueTheAllowedOnesAndTheNearest) {
  const auto says = [](std::string_view text, std::initializer_list<const char*> words) {
    const std::string error = contract_error(text);
    EXPECT_NE(error.find("contract=" + std::string(text)), std::string::npos) << error;
    for (const char* word : words) EXPECT_NE(error.find(word), std::string::npos) << error;
  };
  says("bf16+beta_q:bf16", {"no rounding point 'beta_q'", "nearest: beta_k", "points: input, "});
  says("bf16+beta_k:bf17", {"beta_k:bf17: no such value", "nearest: bf16", "takes none, fp32, tf32"});
  says("bf17+beta_k:bf16", {"no such contract 'bf17'", "nearest: bf16", "known: fp32, "});
  says("bf16+", {"'' is no change; write POINT:VALUE"});
  says("bf16+beta_k", {"'beta_k' is no change"});
  says("bf16+beta_k:", {"is no change"});
  says("bf16+beta_k:bf16+beta_k:fp32", {"beta_k is changed twice"});
  says("bf16_fused+U:bf16", {"U:bf16 has no place beside residual:bf16"});
  says("fp32+merges:rows", {"merges:rows has no place beside inverse:substitution"});
  says("fp32+log2e:sum", {"log2e:sum has no place beside exponential:exact"});
  says("bf16+qk:fp16", {"qk:fp16 needs input:fp16"});
}

TEST(ContractPoints, AChangeThatHasNoPlaceChangesNothing) {
  Contract c = contract_named("bf16_fused");
  std::string why;
  EXPECT_FALSE(changed(c, "W", "bf16", &why));
  EXPECT_NE(why.find("residual:bf16"), std::string::npos);
  EXPECT_TRUE(same_points(c, contract_named("bf16_fused")));
  EXPECT_TRUE(changed(c, "residual", "none", &why));
  EXPECT_EQ(c.U, Format::fp32);
}

TEST(ContractPoints, NearestAndExactCardsDifferInTheCardAlone) {
  const Contract& nearest = contract_named("bf16+card:nearest+inverse:block16/tf32");
  EXPECT_TRUE(nearest.nearest);
  EXPECT_EQ(exact_contract(nearest.name).name, "bf16_block16_tf32");
  EXPECT_EQ(exact_contract("bf16").name, "bf16");
}

TEST(ContractPoints, FormatsHoldWhatIsNarrower) {
  EXPECT_TRUE(holds(Format::tf32, Format::bf16));
  EXPECT_TRUE(holds(Format::tf32, Format::fp16));
  EXPECT_FALSE(holds(Format::bf16, Format::fp16));
  EXPECT_FALSE(holds(Format::fp16, Format::bf16));
  EXPECT_FALSE(holds(Format::tf32, Format::fp32));
  EXPECT_TRUE(holds(Format::fp32, Format::tf32_truncated));
}

}  // namespace
}  // namespace samestate
