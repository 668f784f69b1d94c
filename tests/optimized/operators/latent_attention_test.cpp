#include "optimized/cpu/operators/latent_attention.h"

#include <gtest/gtest.h>

#include <vector>

namespace samestate {
namespace {

TEST(LatentAttentionKernel, RefusesACacheWithoutTheQueriesTokens) {
  const std::vector<float> data(64, 0.0F);
  std::vector<float> y(3, 7.0F);
  OperatorArguments call;
  call.batch = 1;
  call.tokens = 3;
  call.parameters = {{"D", 1}, {"H", 1}, {"dn", 1}, {"dr", 0}, {"dv", 1}, {"dc", 1}, {"q_lora", 0}};
  call.inputs = {{"x", {1, 3, 1}, data.data()},
                 {"c", {1, 2, 1}, data.data()},
                 {"q_up", {1, 1}, data.data()},
                 {"kv_up", {2, 1}, data.data()},
                 {"output", {1, 1}, data.data()}};
  call.outputs = {{"y", {1, 3, 1}, y.data()}};
  const Outcome outcome = cpu::latent_attention_absorbed(call, Contract{});
  EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
  EXPECT_NE(outcome.reason.find("2 tokens for 3 queries"), std::string::npos);
  EXPECT_EQ(y[0], 7.0F);
}

}  // namespace
}  // namespace samestate
