#include "harness/systems/tensor_work.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "harness/cases/case_line.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

WorkOfSizes counted(const char* line) {
  static std::map<std::string, TensorSystem> known;
  const Case c = parse_case(line);
  const TensorSystem& system = known.try_emplace(c.system, *find_operator(c.system)).first->second;
  return work_of_sizes(system, c, c.T, c.form);
}

// Each thing that it depends on is asked of the case.
TEST(WorkOfSizes, ItIsThatOfTheCase) {
  const auto operations = [](const char* line) { return counted(line).operations; };
  EXPECT_NE(operations("v1 softmax_attention T=40"), operations("v1 softmax_attention T=41"));
  EXPECT_NE(operations("v1 softmax_attention T=40"), operations("v1 softmax_attention T=40 d=16"));
  EXPECT_NE(operations("v1 state_space_duality form=chunked T=40 chunk=4"),
            operations("v1 state_space_duality form=chunked T=40 chunk=20"));
  // Two inputs of 40 x 2 heads x 16 columns, values, and the output.
  EXPECT_EQ(counted("v1 softmax_attention T=40 H=2 Hkv=2 d=16 dv=8").elements, 40 * 2 * (2 * 16 + 2 * 8));
  EXPECT_EQ(counted("v1 softmax_attention T=40").tensors, 4);
}

double work(const std::string& line) {
  const Case c = parse_case(line);
  return system_named(c.system).work(c, kGatePolicy);
}

// Packed, each token counts as one of the longest sequence.
TEST(TensorWork, OfPackedSequencesItIsThatOfTheLongest) {
  const double of_one = work("v1 softmax_attention T=40");
  const double packed = work("v1 softmax_attention form=packed lengths=40,0,8");
  EXPECT_GT(packed, of_one * 48 / 40);
  EXPECT_LT(packed, of_one * 48 / 40 * 1.1);
}

}  // namespace
}  // namespace samestate
