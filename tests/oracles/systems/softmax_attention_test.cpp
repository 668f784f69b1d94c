#include <gtest/gtest.h>

#include <string>

#include "oracles/systems/operator.h"
#include "tests/oracles/systems/signature_error.h"

namespace samestate {
namespace {

TEST(SoftmaxAttentionOperators, SizesThatDoNotFitNameTheKey) {
  for (const char* system : {"softmax_attention", "gated_attention"}) {
    EXPECT_NE(error_of(system, {{"H", 3}}).find("H=3"), std::string::npos) << system;
    EXPECT_NE(error_of(system, {{"H", 2}, {"Hkv", 4}}).find("Hkv=4"), std::string::npos) << system;
    EXPECT_EQ(error_of(system, {{"H", 6}, {"Hkv", 3}}), "") << system;
  }
  for (const char* system : {"rotary_embedding", "gated_attention"}) {
    EXPECT_NE(error_of(system, {{"d", 15}, {"pairs", 8}}).find("pairs=8"), std::string::npos) << system;
    EXPECT_EQ(error_of(system, {{"d", 15}, {"pairs", 7}}), "") << system;
  }
}

TEST(ShortConvolutionOperator, BiasIsATensorOfTheCallsThatHaveOne) {
  const Operator& op = *find_operator("short_convolution");
  Call call;
  call.tokens = 3;
  for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
  const std::size_t without = op.signature(call).inputs.size();
  call.parameters["bias"] = 1;
  EXPECT_EQ(op.signature(call).inputs.size(), without + 1);
  EXPECT_EQ(op.signature(call).inputs.back().name, "bias");
}

}  // namespace
}  // namespace samestate
