#include "optimized/cpu/operators/retnet.h"

#include <gtest/gtest.h>

namespace samestate {
namespace {

TEST(MultiScaleRetentionKernel, KeysOfOddWidthCannotTurn) {
  OperatorArguments call;
  call.parameters = {{"D", 4}, {"H", 1}, {"dk", 3}, {"dv", 2}};
  const Outcome outcome = cpu::multi_scale_retention_chunks(call, Contract{});
  EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
  EXPECT_NE(outcome.reason.find("dk=3"), std::string::npos);
}

}  // namespace
}  // namespace samestate
